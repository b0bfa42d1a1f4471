-- Version 8: tables and columns have the words of the rest: an execution is one running of a workflow, `outermost` the id of the
-- one that nobody has called. `inflate` is ours.

alter table flows rename to executions;
alter table flow_texts rename to execution_documents;
alter table flow_begins rename to unit_begins;
alter table flow_outcomes rename to unit_outcomes;
alter table flow_events rename to execution_events;
alter table flow_controls rename to execution_controls;
alter table flow_cache rename to step_cache;
alter table orders rename to run_controls;
alter table texts rename to run_documents;

alter table execution_documents rename column flow to execution;
alter table unit_begins rename column flow to execution;
alter table unit_outcomes rename column flow to execution;
alter table execution_events rename column flow to execution;
alter table execution_controls rename column flow to execution;
alter table datasets rename column flow to execution;
alter table approvals rename column execution to outermost;
alter table approvals rename column flow to execution;

-- SQLite cannot rename an index.
drop index flows_of_owners;
drop index flows_queued;
drop index flows_by_name;
drop index flows_by_file;
drop index flows_by_parent;
drop index flow_controls_by_flow;
drop index flow_cache_by_age;
drop index orders_open;
drop index approvals_by_flow;
drop index approvals_by_execution;
create index executions_of_owners on executions (owner) where owner is not null;
create index executions_queued on executions (priority desc, n) where state = 'queued';
create index executions_by_name on executions (name, n);
create index executions_by_file on executions (file, n);
create index executions_by_parent on executions (parent, parent_key) where parent is not null;
create index execution_controls_of_executions on execution_controls (execution);
create index step_cache_by_age on step_cache (created, key, bytes);
create index approvals_by_execution on approvals (execution) where execution is not null;
create index approvals_by_outermost on approvals (outermost) where outermost <> '';
create index run_controls_open on run_controls (run) where taken = 0;

update execution_documents
set packed = 0,
    body = cast(json_set(json_remove(old.text, '$.flow_id'), '$.execution_id', json_extract(old.text, '$.flow_id')) as blob)
from (select execution, name, cast(iif(packed, inflate(body), body) as text) as text
      from execution_documents
      where name = 'result') as old
where old.execution = execution_documents.execution and old.name = execution_documents.name
  and json_valid(old.text) and json_type(old.text, '$.flow_id') is not null;
