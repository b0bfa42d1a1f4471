-- name: add_flow<!
insert into flows (id, name, file, title, digest, cwd, state, owner, epoch, recover, priority, not_before, note, created,
                   started, parent, parent_key, labels)
values (:id, :name, :file, :title, :digest, :cwd, :state, :owner, :epoch, :recover, :priority, :not_before, :note,
        :created, :started, :parent, :parent_key, :labels)
returning n;

-- name: put_flow_text!
insert into flow_texts (flow, name, redacted, packed, body) values (:flow, :name, :redacted, :packed, :body)
on conflict (flow, name) do update
set redacted = excluded.redacted, packed = excluded.packed, body = excluded.body;

-- name: drop_flow_text!
delete from flow_texts where flow = :flow and name = :name;

-- name: get_flow_texts
select t.name, t.redacted, t.packed, t.body from flow_texts t join flows f on f.n = t.flow
where f.id = :id and (:name = '' or t.name = :name);

-- name: get_flow
select n, id, name, file, title, digest, cwd, state, outcome, owner, epoch, recover, priority, not_before, note, created,
       started, ended, last_seq, first_seq, cost_usd, tokens, parent, parent_key, labels
from flows
where id = :id;

-- name: flows_with_prefix
select id from flows where id >= :low and id < :high order by id limit 6;

-- name: list_flows
select n, id, name, file, title, digest, cwd, state, outcome, owner, epoch, recover, priority, not_before, note, created,
       started, ended, last_seq, first_seq, cost_usd, tokens, parent, parent_key, labels
from flows
where n < :before
  and (:state = '' or state = :state)
  and (:outcome = '' or outcome = :outcome)
  and (:is_open = 0 or state <> 'ended' or outcome = 'stopped')
  and (:is_top = 0 or parent is null)
  and (:name = '' or name = :name)
  and (:file = '' or file = :file)
  and (:cwd = '' or cwd = :cwd)
  and (:label = '' or exists (select 1 from json_each(labels) where key = :label and value = :value))
  and created >= :since
order by n desc
limit :limit;

-- name: last_flow_of_name
-- Without rehearsals: what a script gave is not taken over.
select id from flows where name = :name and parent is null
  and not exists (select 1 from json_each(labels) where key = 'leadrope' and value in ('demo', 'rehearsal'))
order by n desc limit 1;

-- name: last_flow_of_file
select id from flows where file = :file and parent is null
  and not exists (select 1 from json_each(labels) where key = 'leadrope' and value in ('demo', 'rehearsal'))
order by n desc limit 1;

-- name: child_flows
select id from flows where parent = :parent and (:parent_key = '' or parent_key = :parent_key) order by n;

-- name: flow_place
select state, owner, epoch from flows where n = :flow;

-- name: claim_flow!
-- One that was stopped is continued as one that was cut off is. One that is queued for an owner is that owner's.
update flows
set state = 'running', owner = :owner, epoch = epoch + 1, outcome = null, ended = null, note = '', not_before = 0,
    started = coalesce(started, :now)
where id = :id
  and (state in ('interrupted', 'waiting') or (state = 'queued' and (owner is null or owner = :owner))
       or (state = 'paused' and owner is null) or (state = 'ended' and outcome = 'stopped'));

-- name: next_queued_flow
-- Those inside another one are continued by that one.
select id from flows
where state = 'queued' and not_before <= :now and parent is null and (owner is null or owner = :owner)
order by priority desc, n
limit 1;

-- name: flows_queued_for
select id from flows
where state = 'queued' and not_before <= :until and parent is null and (owner is null or owner = :owner);

-- name: queued_flows_left_over
-- May start, and wait for nobody in particular.
select id from flows
where state = 'queued' and not_before <= :now and parent is null and owner is null
order by priority desc, n;

-- name: count_queued_flows
select count(*) from flows where state = 'queued';

-- name: count_carried_flows
select count(*) from flows where owner is not null and state in ('running', 'paused') and parent is null
  and recover = 'resume';

-- name: next_queued_flow_due
select min(not_before) from flows where state = 'queued' and not_before > :now;

-- name: set_flow_recover!
update flows set recover = :recover where id = :id;

-- name: wake_flow!
update flows set not_before = 0, note = '' where n = :flow and state = 'queued' and owner is null;

-- name: requeue_flow!
update flows set state = 'queued', owner = null, note = :note, not_before = :not_before
where n = :flow and owner = :owner and epoch = :epoch;

-- name: count_family_outcomes
-- Of an execution and of those inside it.
with recursive family (id, n) as (
    select id, n from flows where id = :id
    union all
    select flows.id, flows.n from flows join family on flows.parent = family.id
)
select count(*) from flow_outcomes where flow in (select n from family);

-- name: leave_inner_flows!
-- Whoever had the execution had those inside it, too, and can write to none of them any more.
with recursive inside (id) as (
    select id from flows where parent = :id
    union all
    select flows.id from flows join inside on flows.parent = inside.id
)
update flows set state = 'interrupted', owner = null, epoch = epoch + 1, ended = :now
where id in (select id from inside) and owner is not null;

-- name: leave_flow!
update flows set state = :state, owner = null, ended = :ended, note = :note
where n = :flow and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: end_flow!
update flows
set state = 'ended', outcome = :outcome, owner = null, ended = :ended, note = '', cost_usd = max(cost_usd, :cost_usd),
    tokens = max(tokens, :tokens)
where n = :flow and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: change_flow!
update flows set digest = :digest, title = :title
where n = :flow and state = 'running' and owner = :owner and epoch = :epoch;

-- name: flows_of_owner
select id, owner from flows where owner = :owner;

-- name: flows_without_owner
select id, owner from flows where owner is not null and owner not in (select id from owners);

-- name: flow_recover
select n, state, recover, parent is null from flows where id = :id and owner = :owner;

-- name: abandon_flow!
-- The owner is named: whoever has claimed it since keeps it.
update flows
set state = :state, owner = null, note = :note, ended = case :state when 'interrupted' then :now else ended end
where id = :id and owner = :owner;

-- name: last_resumed
select body from flow_events where flow = :flow and type = 'execution.resumed' order by seq desc limit :limit;

-- name: stale_flows
-- What belongs to another flow goes with that one.
select n, id, state, coalesce(ended, created) from flows
where n < :before and parent is null and state in ('ended', 'interrupted')
order by n desc
limit :limit;

-- name: delete_flow!
delete from flows where id = :id and state in ('ended', 'interrupted');

-- name: extend_flow_log<!
-- The numbers of events are given here, in the transaction that writes them: there is no gap, whoever dies.
update flows set last_seq = last_seq + :count
where n = :flow and owner = :owner and epoch = :epoch
returning last_seq;

-- name: extend_unowned_flow_log<!
update flows set last_seq = last_seq + :count
where n = :flow and owner is null
returning last_seq, epoch;

-- name: extend_new_flow_log<!
update flows set last_seq = :count where n = :flow and last_seq = 0
returning last_seq;

-- name: add_flow_event*!
insert into flow_events (flow, seq, epoch, time, type, packed, body) values (?, ?, ?, ?, ?, ?, ?);

-- name: read_flow_events
select seq, epoch, time, packed, body from flow_events
where flow = :flow and seq >= :seq
order by seq
limit :limit;

-- name: read_flow_events_of_type
select seq, epoch, time, packed, body from flow_events
where flow = :flow and seq >= :seq and type = :type
order by seq
limit :limit;

-- name: end_unowned_flow!
-- Also one that waits in the queue for a particular owner, which has not begun with it.
update flows set state = 'ended', outcome = 'stopped', owner = null, ended = :now, note = ''
where n = :flow and (state = 'queued' or (owner is null and state <> 'ended'));

-- name: pause_unowned_flow!
update flows set state = 'paused', owner = null, note = 'paused by a person'
where n = :flow and (state = 'queued' or (owner is null and state = 'waiting'));

-- name: queue_paused_flow!
update flows set state = 'queued', note = '', not_before = 0
where n = :flow and state = 'paused' and owner is null;

-- name: set_flow_paused!
update flows set state = :state, note = :note
where n = :flow and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: add_flow_control!
insert into flow_controls (flow, kind, body, created) values (:flow, :kind, :body, :created);

-- name: open_flow_controls
select c.n, f.id, c.kind, c.body from flows f join flow_controls c on c.flow = f.n
where f.owner = :owner and c.taken = 0
order by c.n;

-- name: take_flow_control!
update flow_controls set taken = 1 where n = :n and taken = 0;

-- name: drop_flow_controls!
delete from flow_controls where flow = :flow;

-- name: begin_unit!
insert into flow_begins (flow, step, iteration, item, times, first, last, inputs, inputs_bytes)
select n, :step, :iteration, :item, 1, :now, :now, :inputs, :inputs_bytes from flows
where n = :flow and state in ('running', 'paused') and owner = :owner and epoch = :epoch
  and not exists (select 1 from flow_outcomes
                  where flow = :flow and step = :step and iteration = :iteration and item = :item)
on conflict (flow, step, iteration, item) do update set times = times + 1, last = excluded.last,
    inputs = excluded.inputs, inputs_bytes = excluded.inputs_bytes;

-- name: settle_unit!
insert into flow_outcomes (flow, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended,
                           sum, redacted, packed, body)
select n, :step, :iteration, :item, :status, :branch, :cost_usd, :tokens, :run, :attempts, :started, :ended, :sum,
       :redacted, :packed, :body
from flows
where n = :flow and state in ('running', 'paused') and owner = :owner and epoch = :epoch
on conflict (flow, step, iteration, item) do nothing;

-- name: add_flow_cost!
update flows set cost_usd = cost_usd + :cost_usd, tokens = tokens + :tokens where n = :flow;

-- name: carry_outcomes!
-- What another flow has done already is told again; it is not paid for again.
insert into flow_outcomes (flow, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended,
                           sum, redacted, packed, body)
select f.n, o.step, o.iteration, o.item, o.status, o.branch, o.cost_usd, o.tokens, o.run, o.attempts, o.started,
       o.ended, 1, o.redacted, o.packed, o.body
from flow_outcomes o join flows f on f.n = :flow
where o.flow = :source and o.step = :step and f.state = 'running' and f.owner = :owner and f.epoch = :epoch
order by o.n
on conflict (flow, step, iteration, item) do nothing;

-- name: outcome_status
select status from flow_outcomes where flow = :flow and step = :step and iteration = :iteration and item = :item;

-- name: read_outcomes
select n, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended, sum, redacted, packed,
       body
from flow_outcomes
where flow = :flow and n > :after
order by n;

-- name: read_outcomes_of_step
select n, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended, sum, redacted, packed,
       body
from flow_outcomes
where flow = :flow and step = :step and n > :after
order by n;

-- name: unit_inputs
select inputs, inputs_bytes, times, first, last from flow_begins
where flow = :flow and step = :step and iteration = :iteration and item = :item;

-- name: unit_outcome
select n, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended, sum, redacted, packed,
       body
from flow_outcomes
where flow = :flow and step = :step and iteration = :iteration and item = :item;

-- name: open_begins
select b.step, b.iteration, b.item, b.times, b.first, b.last from flow_begins b
where b.flow = :flow
  and (:is_all = 1
       or not exists (select 1 from flow_outcomes o where o.flow = b.flow and o.step = b.step
                      and o.iteration = b.iteration and o.item = b.item))
order by b.first, b.step, b.iteration, b.item;

-- name: get_cached
select key, type, created, packed, body from flow_cache where key = :key and created >= :since;

-- name: put_cached!
insert into flow_cache (key, type, created, bytes, packed, body) values (:key, :type, :now, :bytes, :packed, :body)
on conflict (key) do update set type = excluded.type, created = excluded.created, bytes = excluded.bytes,
    packed = excluded.packed, body = excluded.body;

-- name: drop_old_cached!
delete from flow_cache where created < :since;

-- name: drop_most_cached!
-- The newest stay, as far as both numbers reach.
delete from flow_cache where key in (
    select key from (
        select key, row_number() over newest as place, sum(bytes) over newest as total from flow_cache
        window newest as (order by created desc, key rows unbounded preceding)
    )
    where place > :most or total > :most_bytes
);

-- name: count_cached
select count(*) from flow_cache where :type = '' or type = :type;

-- name: clear_cached!
delete from flow_cache where :type = '' or type = :type;

-- name: put_dataset!
insert into datasets (name, columns, count, bytes, flow, updated, redacted, packed, body)
values (:name, :columns, :count, :bytes, :flow, :now, :redacted, :packed, :body)
on conflict (name) do update set columns = excluded.columns, count = excluded.count, bytes = excluded.bytes,
    flow = excluded.flow, updated = excluded.updated, redacted = excluded.redacted, packed = excluded.packed,
    body = excluded.body;

-- name: get_dataset
select name, columns, count, bytes, flow, updated, redacted, packed, body from datasets where name = :name;

-- name: list_datasets
select name, columns, count, bytes, flow, updated, redacted from datasets order by name;

-- name: delete_dataset!
delete from datasets where name = :name;
