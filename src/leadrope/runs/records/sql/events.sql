-- name: add_event*!
insert into events (run, seq, attempt, time, source, type, packed, body)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: place_of
-- The row's number too: the last events themselves may have been pruned.
select max(last_seq, coalesce((select max(seq) from events where run = :run), 0)), state, attempt, owner, epoch
from runs where n = :run;

-- name: last_type
select type from events where run = :run order by seq desc limit 1;

-- name: read_events
select seq, attempt, time, source, packed, body from events where run = :run and seq >= :seq order by seq limit :limit;

-- name: read_type
select seq, attempt, time, source, packed, body from events
where run = :run and type = :type and seq >= :seq
order by seq
limit :limit;
