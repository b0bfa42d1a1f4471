-- Version 5: executions of workflows wait in the queue, have events, and take controls, as runs do. A claim has a number,
-- `epoch`: what a process writes after another one has taken its run or execution over is refused.

alter table runs add column epoch integer not null default 0;

-- Made anew for its states and checks, which cannot be changed in place; the other tables keep their references.
create table flows_new (
    n integer primary key,
    id text not null unique,
    name text not null default '',
    file text not null default '',
    title text not null default '',
    digest text not null,
    cwd text not null default '',
    state text not null check (state in ('queued', 'running', 'waiting', 'paused', 'interrupted', 'ended')),
    outcome text check (outcome in ('succeeded', 'degraded', 'failed', 'stopped')),
    owner text,
    epoch integer not null default 0,
    recover text not null default 'fail' check (recover in ('fail', 'resume')),
    priority integer not null default 0,
    not_before real not null default 0,
    note text not null default '',
    created real not null,
    started real,
    ended real,
    last_seq integer not null default 0,
    first_seq integer not null default 1,
    cost_usd real not null default 0,
    tokens integer not null default 0,
    parent text references flows (id) on delete cascade,
    parent_key text not null default '',
    labels text not null,
    check (state <> 'running' or owner is not null),
    check (owner is null or state in ('queued', 'running', 'paused')),
    check ((state = 'ended') = (outcome is not null))
) strict;

insert into flows_new (n, id, name, file, title, digest, cwd, state, outcome, owner, created, started, ended, cost_usd,
                       tokens, parent, parent_key, labels)
select n, id, name, file, title, digest, cwd, state, outcome, owner, created, created, ended, cost_usd,
       tokens, parent, parent_key, labels
from flows;

drop table flows;
alter table flows_new rename to flows;

create index flows_of_owners on flows (owner) where owner is not null;
create index flows_queued on flows (priority desc, n) where state = 'queued';
create index flows_by_name on flows (name, n);
create index flows_by_file on flows (file, n);
create index flows_by_parent on flows (parent, parent_key) where parent is not null;

-- Append-only. Of an execution with all that runs inside it: the events of a called workflow are in its caller's log.
create table flow_events (
    flow integer not null references flows (n) on delete cascade,
    seq integer not null,
    epoch integer not null,
    time real not null,
    type text not null,
    packed integer not null,
    body blob not null,
    primary key (flow, seq)
) strict, without rowid;

-- What other processes want of an execution's owner.
create table flow_controls (
    n integer primary key,
    flow integer not null references flows (n) on delete cascade,
    kind text not null,
    body text not null default '{}',
    created real not null,
    taken integer not null default 0
) strict;

create index flow_controls_by_flow on flow_controls (flow);

-- The resolved parameters of a unit, cut where they are long; null where nothing is known of them.
alter table flow_begins add column inputs blob;
alter table flow_begins add column inputs_bytes integer not null default 0;
