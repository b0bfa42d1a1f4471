-- name: add_run<!
insert into runs (id, created, state, owner, epoch, attempt, priority, lane, account, not_before, note, title, cwd,
                  provider, agent, model, session_id, parent, labels)
values (:id, :created, :state, :owner, :epoch, :attempt, :priority, :lane, :account, :not_before, :note, :title, :cwd,
        :provider, :agent, :model, :session_id, :parent, :labels)
returning n;

-- name: add_texts!
insert into run_documents (run, request, policy, place) values (:run, :request, :policy, :place);

-- name: get_run
select n, id, created, started, ended, state, outcome, owner, epoch, attempt, last_seq, first_seq, priority, lane,
       account, not_before, note, title, cwd, provider, agent, model, session_id, parent, cost_usd, cost_label, tokens,
       last_action, error_kind, labels
from runs
where id = :id;

-- name: runs_with_prefix
select id from runs where id >= :low and id < :high order by id limit 3;

-- name: run_texts
select t.request, t.policy, t.place, t.result from run_documents t join runs r on r.n = t.run where r.id = :id;

-- name: list_runs
select n, id, created, started, ended, state, outcome, owner, epoch, attempt, last_seq, first_seq, priority, lane,
       account, not_before, note, title, cwd, provider, agent, model, session_id, parent, cost_usd, cost_label, tokens,
       last_action, error_kind, labels
from runs
where n < :before
  and (:state = '' or state = :state)
  and (:outcome = '' or outcome = :outcome)
  and (:is_open = 0 or state <> 'ended')
  and (:cwd = '' or cwd = :cwd)
  and (:agent = '' or agent = :agent)
  and (:label = '' or exists (select 1 from json_each(labels) where key = :label and value = :value))
  and created >= :since
order by n desc
limit :limit;

-- name: count_by_state
select state, count(*) from runs where state <> 'ended' group by state;

-- name: set_progress!
update runs
set state = :state, last_seq = :last_seq, attempt = :attempt, cost_usd = max(cost_usd, :cost_usd),
    tokens = max(tokens, :tokens), model = :model, session_id = coalesce(:session_id, session_id),
    last_action = :last_action, cost_label = :cost_label, cwd = case cwd when '' then :cwd else cwd end,
    started = coalesce(started, :started)
where n = :n and state <> 'ended' and owner is :owner and epoch = :epoch;

-- name: extend_unowned!
update runs set last_seq = :last_seq where n = :n and owner is null;

-- name: set_state!
update runs set state = :state, note = :note
where n = :n and state <> 'ended' and state <> :state and owner is :owner and epoch = :epoch;

-- name: end_run!
update runs
set state = 'ended', outcome = :outcome, ended = :ended, owner = null, note = :note, error_kind = :error_kind,
    cost_usd = max(cost_usd, :cost_usd), tokens = max(tokens, :tokens),
    session_id = coalesce(:session_id, session_id), last_seq = max(last_seq, :last_seq),
    cost_label = coalesce(:cost_label, cost_label)
where n = :n and state <> 'ended' and owner is :owner and epoch = :epoch;

-- name: set_result!
update run_documents set result = :result where run = :n;

-- name: set_policy!
update run_documents set policy = :policy
where run = (select n from runs where n = :n and owner is :owner and epoch = :epoch);

-- name: set_place!
update run_documents set place = :place
where run = (select n from runs where n = :n and owner is :owner and epoch = :epoch);

-- name: requeue!
-- What has said nothing yet has not begun: its day is the one on which it does.
update runs
set state = 'queued', owner = :next, attempt = :attempt, note = :note, not_before = :not_before,
    started = case when last_seq > 0 then started end
where n = :n and state <> 'ended' and owner is :owner and epoch = :epoch;

-- name: park!
update runs set state = 'parked', owner = null, note = :note, not_before = :not_before
where n = :n and state <> 'ended' and owner is :owner and epoch = :epoch;

-- name: delete_run!
delete from runs where id = :id and state = 'ended';

-- name: forget_unstarted!
delete from runs where id = :id and last_seq = 0;

-- name: cost_since
-- By the day on which a run began: one that a budget has held overnight spends the next day's.
select coalesce(sum(cost_usd), 0) from runs
where started >= :since and not exists (select 1 from json_each(labels) where key = 'leadrope' and value in ('demo', 'rehearsal'))
  and (:agent = '' or agent = :agent)
  and (:label = '' or exists (select 1 from json_each(labels) where key = :label and value = :value));

-- name: spending
-- Without demos and rehearsals: their model is a script, and nobody pays for it.
select date(created, 'unixepoch', 'localtime') as day, model, labels, cost_usd, cost_label, tokens, outcome from runs
where created >= :since
  and not exists (select 1 from json_each(labels) where key = 'leadrope' and value in ('demo', 'rehearsal'))
order by created;

-- name: remember_session!
insert into sessions (id, run, cwd, used) values (:id, :run, :cwd, :used)
on conflict (id) do update set run = excluded.run, used = excluded.used;
