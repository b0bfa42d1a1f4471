-- name: get_approval
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.id = :id;

-- name: approvals_with_prefix
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.id >= :low and a.id < :high
order by a.state <> 'pending', a.requested desc
limit :limit;

-- name: pending_approvals
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.state = 'pending'
order by a.requested, a.id
limit :limit;

-- name: approvals_of_run
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.run = (select n from runs where id = :id) and (:state = '' or a.state = :state)
order by a.requested, a.id
limit :limit;

-- name: approvals_of_outermost
-- Those of called workflows, too.
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.outermost = :id and a.outermost <> '' and (:state = '' or a.state = :state)
order by a.requested, a.id
limit :limit;

-- name: pending_ids
select id from approvals where outermost = :id and outermost <> '' and state = 'pending';

-- name: approvals_of_execution
-- Of this execution alone.
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.execution = (select n from executions where id = :id) and (:state = '' or a.state = :state)
order by a.requested, a.id
limit :limit;

-- name: list_approvals
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where :state = '' or a.state = :state
order by a.requested, a.id
limit :limit;

-- name: decide_approval!
update approvals set state = :state, decided = :decided, by = :by, reason = :reason, answer = :answer
where id = :id and state = 'pending' and (:fingerprint is null or fingerprint = :fingerprint);

-- name: resume_answered!
-- The last answer puts the run back into the queue. An agent needs all of them to finish its turn.
update runs set state = 'queued', attempt = attempt + 1, note = '', not_before = 0
where n = (select run from approvals where id = :id) and state = 'waiting' and owner is null
  and not exists (select 1 from approvals where run = runs.n and state = 'pending');

-- name: resume_answered_execution<!
-- Each answer puts the execution back into the queue: the steps after it need no other one.
update executions set state = 'queued', note = '', not_before = 0
where id = (select outermost from approvals where id = :id and outermost <> '') and state = 'waiting' and owner is null
returning n;

-- name: use_approval!
update approvals set used = 1 where id = :id and used = 0 and state in ('approved', 'denied');

-- name: close_approvals!
update approvals set state = :state, decided = :decided, by = :by, reason = :reason
where run = :run and state = 'pending' and attempt <= :attempt;

-- name: add_run_approval!
insert into approvals (id, kind, state, run, attempt, asked_id, fingerprint, requested, asked)
values (:id, :kind, 'pending', :run, :attempt, :asked_id, :fingerprint, :requested, :asked)
on conflict (id) do nothing;

-- name: earlier_answer
select id, answer from approvals
where run = :run and attempt < :attempt and kind = :kind and fingerprint = :fingerprint and used = 0
  and answer is not null and state in ('approved', 'denied') and by not in ('timeout', 'leadrope')
order by requested
limit 1;

-- name: unused_answers
select a.id, a.kind, a.state, r.id, a.attempt, a.asked_id, f.id, a.outermost, a.step, a.iteration, a.item,
       a.fingerprint, a.requested, a.decided, a.by, a.reason, a.used, a.asked, a.answer, coalesce(r.cwd, f.cwd),
       coalesce(r.title, f.title), f.name, f.file
from approvals a left join runs r on r.n = a.run left join executions f on f.n = a.execution
where a.run = :run and a.attempt < :attempt and a.used = 0 and a.answer is not null
  and a.state in ('approved', 'denied') and a.by not in ('timeout', 'leadrope')
order by a.requested, a.id;

-- name: open_earlier
select id from approvals
where run = :run and attempt < :attempt and kind = :kind and fingerprint = :fingerprint and state = 'pending'
order by requested
limit 1;

-- name: ask_again!
update approvals set attempt = :attempt, asked_id = :asked_id, asked = :asked,
    requested = case when :has_clock then :requested else requested end
where id = :id and state = 'pending';

-- name: count_step_approvals
select count(*) from approvals where id >= :low and id < :high;

-- name: add_step_approval!
insert into approvals (id, kind, state, execution, outermost, step, iteration, item, fingerprint, requested, asked)
select :id, :kind, 'pending', n, :outermost, :step, :iteration, :item, :fingerprint, :requested, :asked from executions
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch;

-- name: same_approval
-- The same question of the same unit, unless its answer was used up. The oldest first: a unit that is tried again after
-- its process died asks in the order in which it asked before.
select id from approvals
where execution = :execution and step = :step and iteration = :iteration and item = :item and fingerprint = :fingerprint
  and used = 0 and state <> 'withdrawn'
order by requested, id
limit 1;

-- name: withdraw_other_approvals!
-- A unit asks one thing at a time: what it asked before, it no longer wants to know.
update approvals set state = 'withdrawn', decided = :now, by = 'leadrope', reason = 'it asks something else now'
where execution = :execution and step = :step and iteration = :iteration and item = :item and fingerprint <> :fingerprint
  and state = 'pending';

-- name: withdraw_approvals!
update approvals set state = 'withdrawn', decided = :now, by = 'leadrope', reason = :reason
where execution = :execution and state = 'pending';

-- name: withdraw_execution_approvals!
-- Those of called workflows, too.
update approvals set state = 'withdrawn', decided = :now, by = 'leadrope', reason = :reason
where outermost = :id and outermost <> '' and state = 'pending';

-- name: give_back_approval!
update approvals set used = 0 where id = :id and used = 1;

-- name: give_back_unfinished!
-- Answers that a process had taken when it died, and that led to no outcome: the same question finds them again.
update approvals set used = 0
where execution = (select n from executions where id = :id) and used = 1
  and not exists (select 1 from unit_outcomes o
                  where o.execution = approvals.execution and o.step = approvals.step and o.iteration = approvals.iteration
                    and o.item = approvals.item);

-- name: leave_waiting<!
-- Until one of what was asked is answered; that may have happened already. A called workflow waits for its caller.
update executions
set owner = null, ended = null, note = '',
    state = case when parent is null
                      and exists (select 1 from json_each(:asked) one join approvals a on a.id = one.value
                                  where a.state <> 'pending')
                 then 'queued' else 'waiting' end
where n = :execution and state in ('running', 'paused') and owner = :owner and epoch = :epoch
returning state;
