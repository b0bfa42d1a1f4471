-- name: add_approval!
insert into approvals (id, run, attempt, asked_id, kind, state, fingerprint, requested, asked)
values (:id, :run, :attempt, :asked_id, :kind, 'pending', :fingerprint, :requested, :asked)
on conflict (id) do nothing;

-- name: get_approval
select a.id, r.id, a.attempt, a.asked_id, a.kind, a.state, a.fingerprint, a.requested, a.decided, a.by, a.reason,
       a.used, a.asked, a.answer, r.cwd, r.title
from approvals a join runs r on r.n = a.run
where a.id = :id;

-- name: list_approvals
select a.id, r.id, a.attempt, a.asked_id, a.kind, a.state, a.fingerprint, a.requested, a.decided, a.by, a.reason,
       a.used, a.asked, a.answer, r.cwd, r.title
from approvals a join runs r on r.n = a.run
where (:state = '' or a.state = :state) and (:run = '' or r.id = :run)
order by a.requested, a.id
limit :limit;

-- name: pending_approvals
select a.id, r.id, a.attempt, a.asked_id, a.kind, a.state, a.fingerprint, a.requested, a.decided, a.by, a.reason,
       a.used, a.asked, a.answer, r.cwd, r.title
from approvals a join runs r on r.n = a.run
where a.state = 'pending' and (:run = '' or r.id = :run)
order by a.requested, a.id
limit :limit;

-- name: decide_approval!
update approvals set state = :state, decided = :decided, by = :by, reason = :reason, answer = :answer
where id = :id and state = 'pending';

-- name: close_approvals!
update approvals set state = :state, decided = :decided, by = :by, reason = :reason
where run = :run and state = 'pending' and attempt <= :attempt;

-- name: use_approval!
update approvals set used = 1 where id = :id and used = 0;

-- name: earlier_answer
select id, answer from approvals
where run = :run and attempt < :attempt and kind = :kind and fingerprint = :fingerprint and used = 0
  and answer is not null and state in ('approved', 'denied') and by not in ('timeout', 'supervisor', 'recovery')
order by requested
limit 1;
