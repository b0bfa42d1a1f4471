"""The folder of a stored run is a whole name, whoever says it how: lists find it, and a retry works there again."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.runs.records.values import Filter

END: list[dict[str, Any]] = [{"text": "x"}, {"result": True}, {"await_eof": True}]


@pytest.mark.parametrize("said", [None, ".", "../ws"])
async def test_a_run_of_this_folder_is_found_here_and_tried_again_here(
    yard: Any, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    monkeypatch.chdir(yard.ws)
    async with yard.service() as service:
        job = await service.start(yard.request(yard.agent("a", END), cwd=said))
        assert (await job.result()).outcome == "succeeded"
        here = str(yard.ws.resolve())
        assert [row.id for row in await service.listing(Filter(cwd=here))] == [job.id]
        # A background owner works in no folder of anybody's.
        monkeypatch.chdir("/")
        for prompt in (None, "go on"):
            _, request = await service.again(job.id, prompt=prompt)
            assert request.cwd == here


async def test_a_session_that_goes_on_is_listed_where_it_works(yard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(yard.ws)
    agent = yard.agent("a", END)
    async with yard.service() as service:
        first = await (await service.start(yard.request(agent, cwd=None))).result()
        monkeypatch.chdir("/")
        job = await service.start(yard.request(agent, cwd=None, resume=first.session_id))
        assert (await job.result()).outcome == "succeeded"
        assert (await service.get(job.id)).cwd == str(yard.ws.resolve())
        assert (await service.again(job.id))[1].cwd == str(yard.ws.resolve())
