-- Version 2: what a day has cost is asked by when runs began, not by when they were queued.

create index runs_by_started on runs (started) where started is not null;
