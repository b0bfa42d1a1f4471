-- Version 1. Forward only: a later version adds a file, it never changes this one.
-- Times are seconds since the epoch, for people; no timer rests on them.

create table owners (
    id text primary key,
    pid integer not null,
    boot text not null,
    kind text not null,
    started real not null
) strict;

create table runs (
    n integer primary key,
    id text not null unique,
    created real not null,
    started real,
    ended real,
    state text not null
        check (state in ('queued', 'starting', 'running', 'waiting', 'paused', 'parked', 'ended')),
    outcome text,
    owner text,
    attempt integer not null default 1,
    last_seq integer not null default 0,
    first_seq integer not null default 1,
    priority integer not null default 0,
    lane text not null default '',
    account text not null default '',
    not_before real not null default 0,
    note text not null default '',
    title text not null,
    cwd text not null default '',
    provider text not null default '',
    agent text not null default '',
    model text not null default '',
    session_id text,
    parent text,
    cost_usd real not null default 0,
    tokens integer not null default 0,
    last_action text not null default '',
    error_kind text,
    labels text not null
) strict;

-- Beside the row, and not in it: the row is written again with every batch of events, and listed by the thousand.
create table texts (
    run integer primary key references runs (n) on delete cascade,
    request text not null,
    policy text not null,
    place text not null default '{}',
    result text
) strict;

create index runs_by_state on runs (state, priority desc, n) where state <> 'ended';
create index runs_by_owner on runs (owner) where owner is not null;
create index runs_by_created on runs (created);

-- Append-only. `packed` bodies are deflated.
create table events (
    run integer not null references runs (n) on delete cascade,
    seq integer not null,
    attempt integer not null,
    time real not null,
    source text not null,
    type text not null,
    packed integer not null,
    body blob not null,
    primary key (run, seq)
) strict, without rowid;

-- What a person is asked. `state` leaves 'pending' once.
create table approvals (
    id text primary key,
    run integer not null references runs (n) on delete cascade,
    attempt integer not null,
    asked_id text not null,
    kind text not null check (kind in ('approval', 'question')),
    state text not null
        check (state in ('pending', 'approved', 'denied', 'expired', 'withdrawn')),
    fingerprint text not null default '',
    requested real not null,
    decided real,
    by text not null default '',
    reason text not null default '',
    used integer not null default 0,
    asked text not null,
    answer text
) strict;

create index approvals_pending on approvals (state) where state = 'pending';
create index approvals_by_run on approvals (run);

-- What other processes want of a run's owner.
create table orders (
    n integer primary key,
    run integer not null references runs (n) on delete cascade,
    kind text not null,
    body text not null default '{}',
    created real not null,
    taken integer not null default 0
) strict;

create index orders_open on orders (run) where taken = 0;

create table holds (
    account text primary key,
    until real not null,
    note text not null
) strict;

create table sessions (
    id text primary key,
    run text not null,
    cwd text not null,
    used real not null
) strict;

create table artifacts (
    run integer not null references runs (n) on delete cascade,
    name text not null,
    kind text not null,
    created real not null,
    body blob not null,
    primary key (run, name)
) strict;
