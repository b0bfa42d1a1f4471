"""What small workflows come to, one by one: each file of tests/data/semantics, as a `.flow.md` and as a `.pflow.md`."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from leadrope.workflows.problems import BadWorkflow

DATA = Path(__file__).parents[2] / "data/semantics"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((DATA / "expected.toml").read_text())
CASES = [(name, dialect) for name, case in EXPECTED.items() for dialect in ("flow", "pflow") if dialect in case]


def test_every_file_has_its_row() -> None:
    assert {path.name.partition(".")[0] for path in DATA.glob("*.md") if not path.name.startswith("_")} == set(EXPECTED)


class _Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"body": json.loads(body), "header": self.headers["x-data"]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that the base class has
        """Nothing is to be said about requests."""


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """Where a server answers with what it was sent."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("name", "dialect"), CASES)
async def test_a_workflow_comes_to_what_the_table_says(shop: Any, name: str, dialect: str, echo: str) -> None:
    expected = {"outcome": "succeeded", **EXPECTED[name][dialect]}
    own = DATA / f"{name}.{dialect}.md"
    text = (own if own.exists() else DATA / f"{name}.md").read_text()
    for part in DATA.glob(f"_{name}-*.md"):
        (shop.ws / f"{part.stem}.{dialect}.md").write_text(part.read_text().replace("{dialect}", dialect))
    text, file = text.replace("{dialect}", dialect).replace("{echo}", echo), f"{name}.{dialect}.md"
    if "refused" in expected:
        with pytest.raises(BadWorkflow) as caught:
            await shop.run(text, name=file)
        assert [one.kind for one in caught.value.problems if one.severity == "error"] == expected["refused"]
        return
    result = await shop.run(text, name=file)
    log = shop.ws / "log.txt"
    steps = {step.id: step for step in result.steps}
    came_to = {
        "outcome": result.outcome,
        "outputs": result.outputs,
        "missing": result.missing_outputs,
        "last": result.last.result if result.last is not None and "last" in expected else None,
        "states": {step: steps[step].state for step in expected.get("states", ())},
        "attempts": {step: steps[step].attempts for step in expected.get("attempts", ())},
        "warnings": {step: [one.kind for one in steps[step].warnings] for step in expected.get("warnings", ())},
        "log": log.read_text().split() if log.exists() else [],
    }
    wanted = {
        "outcome": expected["outcome"],
        "outputs": expected.get("outputs", {}),
        "missing": tuple(expected.get("missing", ())),
        "last": expected.get("last"),
        "states": expected.get("states", {}),
        "attempts": expected.get("attempts", {}),
        "warnings": expected.get("warnings", {}),
        "log": expected.get("log", []),
    }
    assert came_to == wanted, [(step.id, step.error) for step in result.steps if step.error is not None]
    for step, part in expected.get("errors", {}).items():
        assert part in str(steps[step].error)
