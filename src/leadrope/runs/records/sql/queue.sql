-- `state <> 'ended'` stands in each of these for the index, which holds those runs only: SQLite does not see that
-- `state = 'queued'` says the same, and would read every run there ever was.

-- name: queued
select n, id, lane, priority, owner from runs
where state = 'queued' and state <> 'ended' and not_before <= :now
  and account not in (select account from holds where until > :now)
order by n;

-- name: waiting_now
select 1 from runs
where state in ('queued', 'parked') and state <> 'ended' and not_before <= :now
limit 1;

-- name: left_over
-- Runs that may start and wait for nobody in particular: the process that had them is gone, or there was none yet.
select id from runs
where state in ('queued', 'parked') and state <> 'ended' and owner is null and not_before <= :now
  and account not in (select account from holds where until > :now)
order by n;

-- name: waiting_for
select id from runs where state in ('queued', 'parked') and state <> 'ended' and (owner is null or owner = :owner);

-- name: wake!
update runs set not_before = 0, note = '' where n = :n and state = 'queued' and owner is null;

-- name: next_due
select min(not_before) from runs where state in ('queued', 'parked') and state <> 'ended' and not_before > :now;

-- name: next_hold
select min(until) from holds where until > :now;

-- name: running_by_lane
select lane, count(*), sum(state = 'starting') from runs
where state in ('starting', 'running', 'waiting', 'paused') and state <> 'ended' and owner is not null
group by lane;

-- name: queue_length
select count(*) from runs where state = 'queued' and state <> 'ended';

-- name: ahead_of
select count(*) from runs r, (select n, priority from runs where id = :id) me
where r.state = 'queued' and r.state <> 'ended'
  and (r.priority > me.priority or (r.priority = me.priority and r.n < me.n));

-- name: claim!
-- The time that it waited for is over: left there, it would be taken for the time of a later wait.
update runs
set state = 'starting', owner = :owner, epoch = epoch + 1, note = '', not_before = 0, started = coalesce(started, :now)
where n = :n and state = 'queued';

-- name: due_parked!
-- A run that is parked by a living owner is that owner's to go on with.
update runs set state = 'queued', note = 'the limit has been reset'
where state = 'parked' and state <> 'ended' and owner is null and not_before > 0 and not_before <= :now;

-- name: suspend!
-- Only while something is still open: an answer that came meanwhile would find nobody who waits for it.
update runs set state = 'waiting', owner = null, note = ''
where n = :n and state <> 'ended' and owner is :owner and epoch = :epoch
  and exists (select 1 from approvals where run = :n and state = 'pending');

-- name: hold_account!
insert into holds (account, until, note) values (:account, :until, :note)
on conflict (account) do update set until = max(until, excluded.until), note = excluded.note;

-- name: list_holds
select account, until, note from holds where until > :now;

-- name: add_owner!
insert into owners (id, pid, boot, kind, started) values (:id, :pid, :boot, :kind, :started);

-- name: drop_owner!
delete from owners where id = :id;

-- name: list_owners
select id, pid, boot, kind, started from owners;

-- name: runs_of_owner
select id from runs where owner = :owner and state <> 'ended';

-- name: owners_missing
-- A run that is reserved for an execution has no process, and misses none.
select id, owner from runs where owner is not null and state <> 'ended'
  and owner not in (select id from owners) and owner not like 'execution:%';

-- name: reserved_in_vain
-- Runs of steps whose execution has ended, or is gone.
select r.id from runs r
where r.state = 'queued' and r.state <> 'ended' and r.owner like 'execution:%'
  and not exists (select 1 from executions f where f.id = substr(r.owner, 11) and f.state <> 'ended');

-- name: adopt_run!
update runs set owner = :next, note = '' where n = :n and state = 'queued' and owner = :reserved;

-- name: add_run_control!
insert into run_controls (run, kind, body, created) values (:run, :kind, :body, :created);

-- name: open_run_controls
select o.n, r.id, o.kind, o.body from run_controls o join runs r on r.n = o.run
where o.taken = 0 and r.owner = :owner
order by o.n;

-- name: take_run_control!
update run_controls set taken = 1 where n = :n and taken = 0;

-- name: drop_run_controls!
delete from run_controls where run = :run;

-- name: add_artifact!
insert into artifacts (run, name, kind, created, body)
select n, :name, :kind, :created, :body from runs where n = :n and owner is :owner and epoch = :epoch
on conflict (run, name) do update set kind = excluded.kind, created = excluded.created, body = excluded.body;

-- name: get_artifact
select kind, body from artifacts where run = :run and name = :name;

-- name: list_artifacts
select name, kind, created, length(body) from artifacts where run = :run order by created;
