-- Version 7: the sandbox is called so in requests and events as well. What was `sandbox` in a request, the settings of the
-- agent program's own, is `agent_sandbox`; what was `walls` is `sandbox`. `inflate` is ours.

update texts
set request = json_set(json_remove(request, '$.walls', '$.sandbox'),
                       '$.agent_sandbox', json(coalesce(json_extract(request, '$.sandbox'), 'null')),
                       '$.sandbox', json_extract(request, '$.walls'))
where json_valid(request)
  and (json_type(request, '$.walls') is not null or json_type(request, '$.sandbox') is not null);

update events
set packed = 0,
    body = cast(json_set(json_remove(old.text, '$.walls'), '$.sandbox', json_extract(old.text, '$.walls')) as blob)
from (select run, seq, cast(iif(packed, inflate(body), body) as text) as text
      from events
      where type = 'session.started') as old
where old.run = events.run and old.seq = events.seq
  and json_valid(old.text) and json_type(old.text, '$.walls') is not null;

update events
set type = 'sandbox.violation', packed = 0, body = cast(json_set(old.text, '$.type', 'sandbox.violation') as blob)
from (select run, seq, cast(iif(packed, inflate(body), body) as text) as text
      from events
      where type = 'walls.held') as old
where old.run = events.run and old.seq = events.seq and json_valid(old.text);
