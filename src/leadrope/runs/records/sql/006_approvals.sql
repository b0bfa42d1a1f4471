-- Version 6: everything that a person is asked is one table, whether a run or a step of a workflow asks it. `state`
-- leaves 'pending' once.

create table approvals_new (
    id text primary key,
    kind text not null check (kind in ('tool_call', 'question', 'plan', 'step')),
    state text not null check (state in ('pending', 'approved', 'denied', 'expired', 'withdrawn')),
    run integer references runs (n) on delete cascade,
    attempt integer not null default 1,
    asked_id text not null default '',
    flow integer references flows (n) on delete cascade,
    -- The id of the outermost execution: it continues after the answer, and with it the one that asks.
    execution text not null default '',
    step text not null default '',
    iteration integer not null default 0,
    item integer not null default -1,
    fingerprint text not null default '',
    requested real not null,
    decided real,
    by text not null default '',
    reason text not null default '',
    used integer not null default 0,
    asked text not null,
    answer text,
    check ((run is null) <> (flow is null)),
    check ((flow is null) = (execution = ''))
) strict;

insert into approvals_new (id, kind, state, run, attempt, asked_id, fingerprint, requested, decided, by, reason, used,
                           asked, answer)
select id,
       case when kind = 'approval' then 'tool_call'
            when json_valid(asked) and json_extract(asked, '$.kind') = 'plan' then 'plan'
            else 'question' end,
       state, run, attempt, asked_id, fingerprint, requested, decided, by, reason, used, asked, answer
from approvals;

with recursive callers (start, id, parent) as (
    select n, id, parent from flows
    union all
    select callers.start, flows.id, flows.parent from callers join flows on flows.id = callers.parent
)
insert into approvals_new (id, kind, state, flow, execution, step, iteration, item, fingerprint, requested, decided, by,
                           reason, used, asked, answer)
select w.token,
       iif(json_extract(w.told, '$.kind') = 'command', 'tool_call', 'step'),
       w.state, w.flow, (select id from callers where start = w.flow and parent is null), w.step, w.iteration, w.item,
       w.fingerprint, w.requested, w.decided, w.by, w.reason, w.used,
       iif(json_extract(w.told, '$.kind') = 'command',
           -- Of a call only its text was kept, and the name of its tool in the title: `push: Bash`.
           json_set(w.told, '$.kind', 'tool_call',
                    '$.call', json_object('id', '',
                                          'name', substr(json_extract(w.told, '$.title'),
                                                         instr(json_extract(w.told, '$.title'), ': ') + 2),
                                          'input', json_object('command', json_extract(w.told, '$.detail')))),
           json_set(w.told, '$.kind', 'step')),
       iif(w.state in ('approved', 'denied'),
           json_object('approved', json(iif(w.state = 'approved', 'true', 'false')), 'by', w.by, 'reason', w.reason,
                       'choice', w.choice),
           null)
from (select *, iif(json_valid(asked), asked, json_object('detail', asked)) as told from flow_waits) w;

update approvals_new
set by = case by
    when 'person' then 'user'
    when 'callback' then 'program'
    when 'supervisor' then 'leadrope'
    when 'recovery' then 'leadrope'
    when 'workflow' then 'leadrope'
    else 'user:' || by end
where by not in ('', 'user', 'program', 'policy', 'timeout', 'nobody', 'leadrope', 'unknown')
  and by not like 'user:%' and by not like 'token:%';

drop table approvals;
drop table flow_waits;
alter table approvals_new rename to approvals;

create index approvals_pending on approvals (requested, id) where state = 'pending';
create index approvals_by_run on approvals (run) where run is not null;
create index approvals_by_flow on approvals (flow) where flow is not null;
create index approvals_by_execution on approvals (execution) where execution <> '';
