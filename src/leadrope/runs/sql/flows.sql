-- name: add_flow<!
insert into flows (id, name, file, title, digest, cwd, state, owner, created, parent, parent_key, labels)
values (:id, :name, :file, :title, :digest, :cwd, 'running', :owner, :created, :parent, :parent_key, :labels)
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
select n, id, name, file, title, digest, cwd, state, outcome, owner, created, ended, cost_usd, tokens, parent,
       parent_key, labels
from flows
where id = :id;

-- name: flows_with_prefix
select id from flows where id >= :low and id < :high order by id limit 6;

-- name: list_flows
select n, id, name, file, title, digest, cwd, state, outcome, owner, created, ended, cost_usd, tokens, parent,
       parent_key, labels
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
select id from flows where name = :name and parent is null order by n desc limit 1;

-- name: last_flow_of_file
select id from flows where file = :file and parent is null order by n desc limit 1;

-- name: child_flows
select id from flows where parent = :parent and (:parent_key = '' or parent_key = :parent_key) order by n;

-- name: flow_place
select state, owner from flows where n = :flow;

-- name: claim_flow!
-- One that was stopped goes on as one that was cut off does.
update flows set state = 'running', owner = :owner, outcome = null, ended = null
where id = :id and (state in ('interrupted', 'waiting') or (state = 'ended' and outcome = 'stopped'));

-- name: leave_flow!
update flows set state = :state, owner = null, ended = :ended
where n = :flow and state = 'running' and owner = :owner;

-- name: end_flow!
update flows
set state = 'ended', outcome = :outcome, owner = null, ended = :ended, cost_usd = max(cost_usd, :cost_usd),
    tokens = max(tokens, :tokens)
where n = :flow and state = 'running' and owner = :owner;

-- name: change_flow!
update flows set digest = :digest, title = :title where n = :flow and state = 'running' and owner = :owner;

-- name: flows_of_owner
select id, owner from flows where state = 'running' and owner = :owner;

-- name: flows_without_owner
select id, owner from flows where state = 'running' and owner not in (select id from owners);

-- name: interrupt_flow!
-- The owner is named: whoever has claimed it since keeps it.
update flows set state = 'interrupted', owner = null, ended = :ended
where id = :id and state = 'running' and owner = :owner;

-- name: stale_flows
-- What belongs to another flow goes with that one.
select n, id, state, coalesce(ended, created) from flows
where n < :before and parent is null and state in ('ended', 'interrupted')
order by n desc
limit :limit;

-- name: delete_flow!
delete from flows where id = :id and state in ('ended', 'interrupted');

-- name: begin_unit!
insert into flow_begins (flow, step, iteration, item, times, first, last)
select n, :step, :iteration, :item, 1, :now, :now from flows
where n = :flow and state = 'running' and owner = :owner
  and not exists (select 1 from flow_outcomes
                  where flow = :flow and step = :step and iteration = :iteration and item = :item)
on conflict (flow, step, iteration, item) do update set times = times + 1, last = excluded.last;

-- name: settle_unit!
insert into flow_outcomes (flow, step, iteration, item, status, branch, cost_usd, tokens, run, attempts, started, ended,
                           sum, redacted, packed, body)
select n, :step, :iteration, :item, :status, :branch, :cost_usd, :tokens, :run, :attempts, :started, :ended, :sum,
       :redacted, :packed, :body
from flows
where n = :flow and state = 'running' and owner = :owner
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
where o.flow = :source and o.step = :step and f.state = 'running' and f.owner = :owner
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

-- name: open_begins
select b.step, b.iteration, b.item, b.times, b.first, b.last from flow_begins b
where b.flow = :flow
  and (:is_all = 1
       or not exists (select 1 from flow_outcomes o where o.flow = b.flow and o.step = b.step
                      and o.iteration = b.iteration and o.item = b.item))
order by b.first, b.step, b.iteration, b.item;

-- name: add_wait!
insert into flow_waits (token, flow, step, iteration, item, asked, fingerprint, state, requested)
select :token, n, :step, :iteration, :item, :asked, :fingerprint, 'pending', :requested from flows
where n = :flow and state = 'running' and owner = :owner;

-- name: same_wait
-- The same question of the same unit, unless its answer was used up.
select token from flow_waits
where flow = :flow and step = :step and iteration = :iteration and item = :item and fingerprint = :fingerprint
  and used = 0 and state <> 'withdrawn'
order by requested desc
limit 1;

-- name: withdraw_other_waits!
-- A unit asks one thing at a time: what it asked before, it no longer wants to know.
update flow_waits set state = 'withdrawn', decided = :now, by = 'workflow', reason = 'it asks something else now'
where flow = :flow and step = :step and iteration = :iteration and item = :item and fingerprint <> :fingerprint
  and state = 'pending';

-- name: withdraw_waits!
update flow_waits set state = 'withdrawn', decided = :now, by = 'workflow', reason = :reason
where flow = :flow and state = 'pending';

-- name: get_wait
select w.token, f.id, w.step, w.iteration, w.item, w.asked, w.fingerprint, w.state, w.choice, w.reason, w.by,
       w.requested, w.decided, w.used, f.title, f.cwd
from flow_waits w join flows f on f.n = w.flow
where w.token = :token;

-- name: waits_with_prefix
select w.token, f.id, w.step, w.iteration, w.item, w.asked, w.fingerprint, w.state, w.choice, w.reason, w.by,
       w.requested, w.decided, w.used, f.title, f.cwd
from flow_waits w join flows f on f.n = w.flow
where w.token >= :low and w.token < :high
order by w.token
limit 6;

-- name: pending_waits
select w.token, f.id, w.step, w.iteration, w.item, w.asked, w.fingerprint, w.state, w.choice, w.reason, w.by,
       w.requested, w.decided, w.used, f.title, f.cwd
from flow_waits w join flows f on f.n = w.flow
where w.state = 'pending'
order by w.requested, w.token
limit :limit;

-- name: waits_of_flow
select w.token, f.id, w.step, w.iteration, w.item, w.asked, w.fingerprint, w.state, w.choice, w.reason, w.by,
       w.requested, w.decided, w.used, f.title, f.cwd
from flow_waits w join flows f on f.n = w.flow
where w.flow = (select n from flows where id = :flow) and (:state = '' or w.state = :state)
order by w.requested, w.token
limit :limit;

-- name: list_waits
select w.token, f.id, w.step, w.iteration, w.item, w.asked, w.fingerprint, w.state, w.choice, w.reason, w.by,
       w.requested, w.decided, w.used, f.title, f.cwd
from flow_waits w join flows f on f.n = w.flow
where :state = '' or w.state = :state
order by w.requested, w.token
limit :limit;

-- name: decide_wait!
update flow_waits set state = :state, choice = :choice, reason = :reason, by = :by, decided = :now
where token = :token and state = 'pending';

-- name: use_wait!
update flow_waits set used = 1 where token = :token and used = 0 and state in ('approved', 'denied');

-- name: give_back_wait!
update flow_waits set used = 0 where token = :token and used = 1;

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
