-- Version 3: workflows. A flow is one execution of one; what became of each of its units is written once.

create table flows (
    n integer primary key,
    id text not null unique,
    name text not null default '',
    file text not null default '',
    title text not null default '',
    digest text not null,
    cwd text not null default '',
    state text not null check (state in ('running', 'waiting', 'interrupted', 'ended')),
    outcome text check (outcome in ('succeeded', 'degraded', 'failed', 'stopped')),
    owner text,
    created real not null,
    ended real,
    cost_usd real not null default 0,
    tokens integer not null default 0,
    parent text references flows (id) on delete cascade,
    parent_key text not null default '',
    labels text not null,
    check ((state = 'running') = (owner is not null)),
    check ((state = 'ended') = (outcome is not null))
) strict;

create index flows_running on flows (owner) where state = 'running';
create index flows_by_name on flows (name, n);
create index flows_by_file on flows (file, n);
create index flows_by_parent on flows (parent, parent_key) where parent is not null;

-- text, inputs, settings, result: one row each. `packed` bodies are deflated.
create table flow_texts (
    flow integer not null references flows (n) on delete cascade,
    name text not null,
    redacted integer not null,
    packed integer not null,
    body blob not null,
    primary key (flow, name)
) strict;

-- Units that were started. One that is here and has no outcome was cut off, or runs.
create table flow_begins (
    flow integer not null references flows (n) on delete cascade,
    step text not null,
    iteration integer not null,
    item integer not null,
    times integer not null,
    first real not null,
    last real not null,
    primary key (flow, step, iteration, item)
) strict, without rowid;

-- Append-only. item -1: the unit has none; iteration -1: the step as a whole, which has no item.
create table flow_outcomes (
    n integer primary key,
    flow integer not null references flows (n) on delete cascade,
    step text not null,
    iteration integer not null check (iteration >= -1),
    item integer not null check (item >= -1 and (iteration >= 0 or item = -1)),
    status text not null check (status in ('succeeded', 'degraded', 'failed', 'skipped')),
    branch text,
    cost_usd real not null,
    tokens integer not null,
    run text,
    attempts integer not null,
    started real not null,
    ended real not null,
    sum integer not null,
    redacted integer not null,
    packed integer not null,
    body blob not null,
    unique (flow, step, iteration, item)
) strict;

-- What a workflow waits for a person to say. `state` leaves 'pending' once.
create table flow_waits (
    token text primary key,
    flow integer not null references flows (n) on delete cascade,
    step text not null,
    iteration integer not null,
    item integer not null,
    asked text not null,
    fingerprint text not null,
    state text not null check (state in ('pending', 'approved', 'denied', 'withdrawn')),
    choice text not null default '',
    reason text not null default '',
    by text not null default '',
    requested real not null,
    decided real,
    used integer not null default 0
) strict;

create index flow_waits_pending on flow_waits (state) where state = 'pending';
create index flow_waits_by_flow on flow_waits (flow);

-- Outputs of steps that say `cache`, by what they were computed from.
create table flow_cache (
    key text primary key,
    type text not null,
    created real not null,
    bytes integer not null,
    packed integer not null,
    body blob not null
) strict;

create index flow_cache_by_age on flow_cache (created, key, bytes);

create table datasets (
    name text primary key,
    columns text not null,
    count integer not null,
    bytes integer not null,
    flow text,
    updated real not null,
    redacted integer not null,
    packed integer not null,
    body blob not null
) strict;
