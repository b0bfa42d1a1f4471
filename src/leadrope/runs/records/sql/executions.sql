-- name: add_execution<!
insert into executions (id, name, file, title, digest, cwd, state, owner, epoch, recover, priority, not_before, note, created,
                   started, parent, parent_key, labels)
values (:id, :name, :file, :title, :digest, :cwd, :state, :owner, :epoch, :recover, :priority, :not_before, :note,
        :created, :started, :parent, :parent_key, :labels)
returning n;

-- name: put_execution_text!
insert into execution_documents (execution, name, redacted, packed, body) values (:execution, :name, :redacted, :packed, :body)
on conflict (execution, name) do update
set redacted = excluded.redacted, packed = excluded.packed, body = excluded.body;

-- name: drop_execution_text!
delete from execution_documents where execution = :execution and name = :name;

-- name: get_execution_texts
select t.name, t.redacted, t.packed, t.body from execution_documents t join executions f on f.n = t.execution
where f.id = :id and (:name = '' or t.name = :name);

-- name: get_execution
select n, id, name, file, title, digest, cwd, state, outcome, owner, epoch, recover, priority, not_before, note, created,
       started, ended, last_seq, first_seq, cost_usd, tokens, parent, parent_key, labels
from executions
where id = :id;

-- name: executions_with_prefix
select id from executions where id >= :low and id < :high order by id limit 6;

-- name: list_executions
select n, id, name, file, title, digest, cwd, state, outcome, owner, epoch, recover, priority, not_before, note, created,
       started, ended, last_seq, first_seq, cost_usd, tokens, parent, parent_key, labels
from executions
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

-- name: last_execution_of_name
-- Without rehearsals: what a script gave is not taken over.
select id from executions where name = :name and parent is null
  and not exists (select 1 from json_each(labels) where key = 'leadrope' and value in ('demo', 'rehearsal'))
order by n desc limit 1;

-- name: last_execution_of_file
select id from executions where file = :file and parent is null
  and not exists (select 1 from json_each(labels) where key = 'leadrope' and value in ('demo', 'rehearsal'))
order by n desc limit 1;

-- name: child_executions
select id from executions where parent = :parent and (:parent_key = '' or parent_key = :parent_key) order by n;

-- name: execution_place
select state, owner, epoch from executions where n = :execution;

-- name: claim_execution!
-- One that was stopped is continued as one that was cut off is. One that is queued for an owner is that owner's.
update executions
set state = 'running', owner = :owner, epoch = epoch + 1, outcome = null, ended = null, note = '', not_before = 0,
    started = coalesce(started, :now)
where id = :id
  and (state in ('interrupted', 'waiting') or (state = 'queued' and (owner is null or owner = :owner))
       or (state = 'paused' and owner is null) or (state = 'ended' and outcome = 'stopped'));

-- name: next_queued_execution
-- Those inside another one are continued by that one.
select id from executions
where state = 'queued' and not_before <= :now and parent is null and (owner is null or owner = :owner)
order by priority desc, n
limit 1;

-- name: executions_queued_for
select id from executions
where state = 'queued' and not_before <= :until and parent is null and (owner is null or owner = :owner);

-- name: queued_executions_left_over
-- May start, and wait for nobody in particular.
select id from executions
where state = 'queued' and not_before <= :now and parent is null and owner is null
order by priority desc, n;

-- name: count_queued_executions
select count(*) from executions where state = 'queued';

-- name: count_carried_executions
select count(*) from executions where owner is not null and state in ('running', 'paused') and parent is null
  and recover = 'resume';

-- name: next_queued_execution_due
select min(not_before) from executions where state = 'queued' and not_before > :now;

-- name: set_execution_recover!
update executions set recover = :recover where id = :id;

-- name: wake_execution!
update executions set not_before = 0, note = '' where n = :execution and state = 'queued' and owner is null;

-- name: requeue_execution!
update executions set state = 'queued', owner = null, note = :note, not_before = :not_before
where n = :execution and owner = :owner and epoch = :epoch;

-- name: count_family_outcomes
-- Of an execution and of those inside it.
with recursive family (id, n) as (
    select id, n from executions where id = :id
    union all
    select executions.id, executions.n from executions join family on executions.parent = family.id
)
select count(*) from unit_outcomes where execution in (select n from family);

-- name: leave_inner_executions!
-- Whoever had the execution had those inside it, too, and can write to none of them any more.
with recursive inside (id) as (
    select id from executions where parent = :id
    union all
    select executions.id from executions join inside on executions.parent = inside.id
)
update executions set state = 'interrupted', owner = null, epoch = epoch + 1, ended = :now
where id in (select id from inside) and owner is not null;

-- name: leave_execution!
update executions set state = :state, owner = null, ended = :ended, note = :note
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: end_execution!
update executions
set state = 'ended', outcome = :outcome, owner = null, ended = :ended, note = '', cost_usd = max(cost_usd, :cost_usd),
    tokens = max(tokens, :tokens)
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: change_execution!
update executions set digest = :digest, title = :title
where n = :execution and state = 'running' and owner = :owner and epoch = :epoch;

-- name: executions_of_owner
select id, owner from executions where owner = :owner;

-- name: executions_without_owner
select id, owner from executions where owner is not null and owner not in (select id from owners);

-- name: execution_recover
select n, state, recover, parent is null from executions where id = :id and owner = :owner;

-- name: abandon_execution!
-- The owner is named: whoever has claimed it since keeps it.
update executions
set state = :state, owner = null, note = :note, ended = case :state when 'interrupted' then :now else ended end
where id = :id and owner = :owner;

-- name: last_resumed
select body from execution_events where execution = :execution and type = 'execution.resumed' order by seq desc limit :limit;

-- name: stale_executions
-- What belongs to another execution goes with that one.
select n, id, state, coalesce(ended, created) from executions
where n < :before and parent is null and state in ('ended', 'interrupted')
order by n desc
limit :limit;

-- name: delete_execution!
delete from executions where id = :id and state in ('ended', 'interrupted');

-- name: extend_execution_log<!
-- The numbers of events are given here, in the transaction that writes them: there is no gap, whoever dies.
update executions set last_seq = last_seq + :count
where n = :execution and owner = :owner and epoch = :epoch
returning last_seq;

-- name: extend_unowned_execution_log<!
update executions set last_seq = last_seq + :count
where n = :execution and owner is null
returning last_seq, epoch;

-- name: extend_new_execution_log<!
update executions set last_seq = :count where n = :execution and last_seq = 0
returning last_seq;

-- name: add_execution_event*!
insert into execution_events (execution, seq, epoch, time, type, packed, body) values (?, ?, ?, ?, ?, ?, ?);

-- name: read_execution_events
select seq, epoch, time, packed, body from execution_events
where execution = :execution and seq >= :seq
order by seq
limit :limit;

-- name: read_execution_events_of_type
select seq, epoch, time, packed, body from execution_events
where execution = :execution and seq >= :seq and type = :type
order by seq
limit :limit;

-- name: end_unowned_execution!
-- Also one that waits in the queue for a particular owner, which has not begun with it.
update executions set state = 'ended', outcome = 'stopped', owner = null, ended = :now, note = ''
where n = :execution and (state = 'queued' or (owner is null and state <> 'ended'));

-- name: pause_unowned_execution!
update executions set state = 'paused', owner = null, note = 'paused by a person'
where n = :execution and (state = 'queued' or (owner is null and state = 'waiting'));

-- name: queue_paused_execution!
update executions set state = 'queued', note = '', not_before = 0
where n = :execution and state = 'paused' and owner is null;

-- name: set_execution_paused!
update executions set state = :state, note = :note
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: add_execution_control!
insert into execution_controls (execution, kind, body, created) values (:execution, :kind, :body, :created);

-- name: open_execution_controls
select c.n, f.id, c.kind, c.body from executions f join execution_controls c on c.execution = f.n
where f.owner = :owner and c.taken = 0
order by c.n;

-- name: take_execution_control!
update execution_controls set taken = 1 where n = :n and taken = 0;

-- name: drop_execution_controls!
delete from execution_controls where execution = :execution;

-- name: begin_unit!
insert into unit_begins (execution, step, iteration, item, times, first, last, inputs, inputs_bytes)
select n, :step, :iteration, :item, 1, :now, :now, :inputs, :inputs_bytes from executions
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch
  and not exists (select 1 from unit_outcomes
                  where execution = :execution and step = :step and iteration = :iteration and item = :item)
on conflict (execution, step, iteration, item) do update set times = times + 1, last = excluded.last,
    inputs = excluded.inputs, inputs_bytes = excluded.inputs_bytes;

-- name: settle_unit!
insert into unit_outcomes (execution, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended,
                           sum, redacted, packed, body)
select n, :step, :iteration, :item, :status, :branch, :cost_usd, :tokens, :run, :attempts, :started, :ended, :sum,
       :redacted, :packed, :body
from executions
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch
on conflict (execution, step, iteration, item) do nothing;

-- name: add_execution_cost!
update executions set cost_usd = cost_usd + :cost_usd, tokens = tokens + :tokens where n = :execution;

-- name: carry_outcomes!
-- What another execution has done already is told again; it is not paid for again.
insert into unit_outcomes (execution, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended,
                           sum, redacted, packed, body)
select f.n, o.step, o.iteration, o.item, o.status, o.branch, o.cost_usd, o.tokens, o.run, o.attempts, o.started,
       o.ended, 1, o.redacted, o.packed, o.body
from unit_outcomes o join executions f on f.n = :execution
where o.execution = :source and o.step = :step and f.state = 'running' and f.owner = :owner and f.epoch = :epoch
order by o.n
on conflict (execution, step, iteration, item) do nothing;

-- name: outcome_status
select status from unit_outcomes where execution = :execution and step = :step and iteration = :iteration and item = :item;

-- name: read_outcomes
select n, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended, sum, redacted, packed,
       body
from unit_outcomes
where execution = :execution and n > :after
order by n;

-- name: read_outcomes_of_step
select n, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended, sum, redacted, packed,
       body
from unit_outcomes
where execution = :execution and step = :step and n > :after
order by n;

-- name: unit_inputs
select inputs, inputs_bytes, times, first, last from unit_begins
where execution = :execution and step = :step and iteration = :iteration and item = :item;

-- name: unit_outcome
select n, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended, sum, redacted, packed,
       body
from unit_outcomes
where execution = :execution and step = :step and iteration = :iteration and item = :item;

-- name: open_begins
select b.step, b.iteration, b.item, b.times, b.first, b.last from unit_begins b
where b.execution = :execution
  and (:is_all = 1
       or not exists (select 1 from unit_outcomes o where o.execution = b.execution and o.step = b.step
                      and o.iteration = b.iteration and o.item = b.item))
order by b.first, b.step, b.iteration, b.item;

-- name: get_cached
select key, type, created, packed, body from step_cache where key = :key and created >= :since;

-- name: put_cached!
insert into step_cache (key, type, created, bytes, packed, body) values (:key, :type, :now, :bytes, :packed, :body)
on conflict (key) do update set type = excluded.type, created = excluded.created, bytes = excluded.bytes,
    packed = excluded.packed, body = excluded.body;

-- name: drop_old_cached!
delete from step_cache where created < :since;

-- name: drop_most_cached!
-- The newest stay, as far as both numbers reach.
delete from step_cache where key in (
    select key from (
        select key, row_number() over newest as place, sum(bytes) over newest as total from step_cache
        window newest as (order by created desc, key rows unbounded preceding)
    )
    where place > :most or total > :most_bytes
);

-- name: count_cached
select count(*) from step_cache where :type = '' or type = :type;

-- name: clear_cached!
delete from step_cache where :type = '' or type = :type;

-- name: put_dataset!
insert into datasets (name, columns, count, bytes, execution, updated, redacted, packed, body)
values (:name, :columns, :count, :bytes, :execution, :now, :redacted, :packed, :body)
on conflict (name) do update set columns = excluded.columns, count = excluded.count, bytes = excluded.bytes,
    execution = excluded.execution, updated = excluded.updated, redacted = excluded.redacted, packed = excluded.packed,
    body = excluded.body;

-- name: get_dataset
select name, columns, count, bytes, execution, updated, redacted, packed, body from datasets where name = :name;

-- name: list_datasets
select name, columns, count, bytes, execution, updated, redacted from datasets order by name;

-- name: delete_dataset!
delete from datasets where name = :name;
