-- Version 4: what a cost is called depends on who pays, and a list of runs must not read their results to know it.

alter table runs add column cost_label text not null default 'estimate';

update runs set cost_label = 'API-equivalent estimate'
where n in (
    select run from texts
    where json_valid(result) and json_extract(result, '$.totals.cost_label') = 'API-equivalent estimate'
);
