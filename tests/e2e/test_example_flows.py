"""The larger examples, as a user runs them: the real CLI against the rehearsal model, and http on loopback."""

from __future__ import annotations

import asyncio
import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN = "sk-ant-oat01-rehearsal-0000000000"


def hand(value: Any) -> dict[str, Any]:
    """The model gives an answer that fits a schema."""
    return {"tool": {"name": "StructuredOutput", "input": value}}


class Floor:
    """The program `leadrope` in a project that has the examples."""

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self.ws: Path = stage.ws
        shutil.copytree(EXAMPLES, self.ws / "examples")

    @asynccontextmanager
    async def model(self, *turns: Any) -> AsyncIterator[ModelServer]:
        async with ModelServer([*turns]) as server:
            folder = self._stage.home / ".config/leadrope"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.toml").write_text(f'[run]\nbase_url = "{server.url}"\napi_retries = 0\nattempts = 1\n')
            yield server

    async def flow(self, *words: str) -> tuple[int | None, dict[str, Any]]:
        """The exit code and the result."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", "flow", *words, "-o", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._stage.environ, "CLAUDE_CODE_OAUTH_TOKEN": TOKEN},
            cwd=self.ws,
            start_new_session=True,
        )
        async with asyncio.timeout(240):
            out, err = await process.communicate()
        assert out.strip(), err.decode()
        return process.returncode, json.loads(out)

    def git(self, *words: str) -> str:
        own = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "safe.directory=*")
        done = subprocess.run(
            ["git", *own, *words], cwd=self.ws, env=self._stage.environ, check=True, capture_output=True, text=True
        )
        return done.stdout


@pytest.fixture
def floor(stage: Any) -> Floor:
    return Floor(stage)


def states(result: dict[str, Any]) -> dict[str, str]:
    return {step["id"]: step["state"] for step in result["steps"]}


def write(path: Path, text: str) -> dict[str, Any]:
    """The model writes a file."""
    return {"tool": {"name": "Write", "input": {"file_path": str(path), "content": text}}}


async def test_a_plan_is_implemented_package_by_package(floor: Floor) -> None:
    """Three loops: the rounds of a package, the packages, and the review of the whole change."""
    (floor.ws / "PLAN.md").write_text("One thing, and another.\n")
    (floor.ws / "Makefile").write_text("test:\n\t@test -e one.txt && echo fine\n")
    floor.git("init", "--quiet")
    floor.git("config", "user.name", "A")
    floor.git("config", "user.email", "a@example.com")
    floor.git("add", "--all")
    floor.git("commit", "--quiet", "--message", "start")
    packages = [{"name": "one", "goal": "make one.txt"}, {"name": "two", "goal": "make two.txt"}]
    turns = (
        hand({"packages": packages}),
        {"text": "I forgot it.", "expect": {"contains": "nothing yet"}},
        hand(
            {"approved": True, "advice": "the file is missing"}
        ),  # the tests fail, so the reviewer alone is not enough
        {**write(floor.ws / "one.txt", "1"), "expect": {"contains": "the file is missing"}},
        {"text": "Written."},
        hand({"approved": True, "advice": ""}),
        {**write(floor.ws / "two.txt", "2"), "expect": {"contains": "make two.txt"}},
        {"text": "Written."},
        hand({"approved": True, "advice": ""}),
        hand({"approved": False, "findings": ["a typo"]}),
        {**write(floor.ws / "three.txt", "3"), "expect": {"contains": "a typo"}},
        {"text": "Fixed."},
        hand({"approved": True, "findings": []}),
    )
    async with floor.model(*turns):
        code, result = await floor.flow("run", "examples/implement.flow.md")
    assert (code, result["outcome"], result["outputs"]) == (0, "succeeded", {"packages": 2, "rounds": 2})
    assert floor.git("log", "--format=%s").splitlines() == ["Address the final review", "two", "one", "start"]


async def test_a_package_that_is_never_approved_ends_the_work(floor: Floor) -> None:
    (floor.ws / "PLAN.md").write_text("One thing.\n")
    (floor.ws / "Makefile").write_text("test:\n\t@echo fine\n")
    turns = (
        {**hand({"packages": [{"name": "one", "goal": "it"}]}), "expect": {"contains": 'list only that one: "one"'}},
        *[{"text": "Written."}, hand({"approved": False, "advice": "too slow"})] * 4,
    )
    async with floor.model(*turns):
        code, result = await floor.flow("run", "examples/implement.flow.md", "only=one")
    assert code == 20
    assert "one was not approved after 4 rounds: too slow" in json.dumps(result)
    assert states(result)["whole"] != "succeeded"


async def test_a_design_goes_back_until_both_reviewers_approve(floor: Floor) -> None:
    """The second reviewer is not asked before the first one approves."""
    good, bad = {"score": 95, "feedback": ""}, {"score": 60, "feedback": "wrong port"}
    turns = (
        {**write(floor.ws / "design.md", "First draft"), "expect": {"contains": "none yet"}},
        {"text": "First version."},
        {**hand(bad), "expect": {"contains": "First version."}},
        {"text": "Second version.", "expect": {"contains": ["wrong port", "not reviewed yet"]}},
        hand(good),
        hand({"score": 80, "feedback": "too long"}),
        {"text": "Third version.", "expect": {"contains": "too long"}},
        hand(good),
        hand({"score": 90, "feedback": ""}),
    )
    async with floor.model(*turns) as model:
        code, result = await floor.flow("run", "examples/design.flow.md", "purpose=login")
    assert len(model.requests) >= len(turns)
    wanted = {"file": "design.md", "technical_score": 95, "readability_score": 90, "versions": 3}
    assert (code, result["outcome"], result["outputs"]) == (0, "succeeded", wanted)
    assert (floor.ws / "design.md").read_text() == "First draft"


@pytest.mark.parametrize(
    ("severity", "code", "decision"),
    [("none", 0, "approved"), ("minor", 0, "conditional"), ("major", 40, "rejected")],
)
async def test_four_reviewers_decide_about_a_file(floor: Floor, severity: str, code: int, decision: str) -> None:
    (floor.ws / "a.py").write_text("print(1)\n")
    async with floor.model({"text": "It prints."}, *[hand({"issues": ["x"], "severity": severity})] * 4):
        ended, result = await floor.flow("run", "examples/validate.flow.md", "file=a.py")
    assert (ended, states(result)["checks"]) == (code, "succeeded")
    assert result["outputs"]["decision"] == decision
    assert len(result["outputs"]["issues"]) == 4
    assert (floor.ws / "validation.md").exists() == (code == 0)


async def test_research_starts_again_from_its_gaps(floor: Floor) -> None:
    """A researcher that fails is left out, and the text is told of it."""
    plan = hand({"questions": ["Why?"], "areas": ["physics"]})
    error = {"error": {"status": 400, "message": "not today"}, "optional": True}
    refused = [{**error, "expect": {"contains": "from academic publications"}}] * 3
    turns = (
        {**plan, "expect": {"contains": "the first round"}},
        # The three are asked at the same time, in any order, and the agent program may ask again.
        *[*refused, {"text": "found something"}] * 2,
        *refused,
        {"text": "Half an answer.", "expect": {"contains": ["found something", "failed: 1 of 3"]}},
        hand({"score": 4, "gaps": ["the costs"]}),
        {**plan, "expect": {"contains": "the costs"}},
        *[{"text": "found more"}] * 3,
        {"text": "The answer.", "expect": {"contains": ["found more", "failed: 0 of 3"]}},
        hand({"score": 8, "gaps": []}),
    )
    async with floor.model(*turns):
        code, result = await floor.flow("run", "examples/research.flow.md", "topic=tea")
    assert (code, result["outputs"]) == (0, {"text": "The answer.", "score": 8, "rounds": 2})
    assert (floor.ws / "research.md").read_text().strip() == "The answer."


async def test_a_person_revises_a_briefing_and_sends_it_deeper(floor: Floor) -> None:
    """Two loops: the checker sends the text back, and so does the person."""
    text = hand({"text": "The briefing.", "parts": ["leaves"]})
    turns = (
        {"text": "plan"},
        *[{"text": "points"}] * 3,
        text,
        hand({"score": 4, "advice": "name the price"}),
        {**text, "expect": {"contains": "name the price"}},
        hand({"score": 9, "advice": ""}),
        {**text, "expect": {"contains": "shorter, please"}},
        hand({"score": 8, "advice": ""}),
        {"text": "On leaves.", "expect": {"contains": "leaves"}},
    )
    async with floor.model(*turns):
        code, waiting = await floor.flow("run", "examples/briefing.flow.md", "topic=tea")
        assert code == 4
        answer = ("--choose", "revise", "--reason", "shorter, please")
        code, waiting = await floor.flow("resume", waiting["approvals"][0]["id"], *answer)
        assert code == 4
        code, result = await floor.flow("resume", waiting["approvals"][0]["id"], "--choose", "deeper")
    assert (code, result["outputs"]["score"]) == (0, 8)
    page = (floor.ws / result["outputs"]["page"]).read_text()
    assert "The briefing." in page
    assert "On leaves." in page


async def test_a_person_who_wants_no_more_gets_the_report(floor: Floor) -> None:
    turns = (
        *[{"text": "plan"}, *[{"text": "points"}] * 3],
        hand({"text": "The briefing.", "parts": ["leaves"]}),
        hand({"score": 9, "advice": ""}),
    )
    async with floor.model(*turns):
        _, waiting = await floor.flow("run", "examples/briefing.flow.md", "topic=tea")
        code, result = await floor.flow("resume", waiting["approvals"][0]["id"], "--choose", "report")
    assert (code, result["outcome"], states(result)["dives"]) == (0, "succeeded", "left_out")
    assert "The briefing." in (floor.ws / result["outputs"]["page"]).read_text()


async def test_notes_and_cards_out_of_a_text(floor: Floor) -> None:
    (floor.ws / "lecture.md").write_text("Cells.\n\nMore.\n")
    asked = hand({"questions": [{"difficulty": "easy", "question": "What?", "answer": "That."}]})
    # The overview and the questions are asked for at the same time.
    overview = {"text": "It hangs together.", "expect": {"contains": "one-page overview"}, "optional": True}
    async with floor.model({"text": "notes"}, overview, asked, overview):
        code, result = await floor.flow("run", "examples/study-notes.flow.md", "file=lecture.md", "subject=bio")
    assert (code, result["outputs"]) == (0, {"page": "bio-notes.md", "cards": 1})
    page = (floor.ws / "bio-notes.md").read_text()
    assert "It hangs together." in page
    assert "| What? | That. | easy |" in page


class Services(http.server.BaseHTTPRequestHandler):
    """A news site, a studio, a calendar and a list of people."""

    looks = 0

    def log_message(self, *_: object) -> None:
        pass

    def _send(self, value: Any, status: int = 200, kind: str = "application/json") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:  # the name that http.server calls
        if self.path == "/newest.json":
            self._send([{"id": 1, "title": "A story"}])
        elif self.path == "/clips/5/file":
            self._send(b"\x00\xff\x01", kind="video/mp2t")
        elif self.path == "/clips/5":
            type(self).looks += 1
            self._send({"state": "rendering" if self.looks < 3 else "done", "wait_s": 0.05})
        elif self.path == "/today":
            outer = {"id": 7, "title": "Planning", "guests": ["ann@example.com", "bob@example.com"]}
            inner = {"id": 8, "title": "Stand-up", "guests": ["cid@example.com"], "is_internal": True}
            self._send({"meetings": [outer, inner]})
        elif self.path.startswith("/find?email=ann"):
            self._send({"name": "Ann"})
        elif self.path == "/meetings/7/minutes":
            self._send(b"We agreed.", kind="text/plain")
        else:
            self._send({}, 404)

    def do_POST(self) -> None:  # the name that http.server calls
        self.rfile.read(int(self.headers["content-length"]))
        self._send({"id": 5} if self.path == "/clips" else {"url": "https://videos.example.com/1"})


@pytest.fixture
def services() -> Iterator[str]:
    Services.looks = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


OWN = 'own_hosts=["127.0.0.1"]'


async def test_clips_are_ordered_polled_fetched_and_uploaded(floor: Floor, services: str) -> None:
    story = {"id": 1, "title": "A story", "text": "Two sentences."}
    (floor.ws / "clips").mkdir()
    (floor.ws / "clips/4.ts").write_bytes(b"of yesterday")
    async with floor.model({**hand({"stories": [story]}), "expect": {"contains": "A story"}}):
        where = (f"news={services}", f"studio={services}", OWN)
        code, result = await floor.flow("run", "examples/news-video.flow.md", *where)
    assert (code, result["outcome"]) == (0, "succeeded")
    assert result["outputs"] == {"address": "https://videos.example.com/1", "clips": ["clips/5.ts"]}
    assert (floor.ws / "video.ts").read_bytes() == b"\x00\xff\x01"
    assert Services.looks == 3


async def test_meetings_are_prepared_by_their_kind(floor: Floor, services: str) -> None:
    """Somebody who cannot be found is told, and stops nothing."""
    async with floor.model(*[{"text": "What to know."}] * 2) as model:
        where = (f"calendar={services}", f"people={services}", OWN)
        code, result = await floor.flow("run", "examples/meeting-prep.flow.md", *where)
    assert (code, result["outcome"], result["outputs"]) == (0, "degraded", {"page": "today.md", "meetings": 2})
    asked = [request.text for request in model.requests]
    assert sum("Ann" in text and "We agreed." in text for text in asked) == 1
    assert sum("not looked up" in text for text in asked) == 1
    page = (floor.ws / "today.md").read_text()
    assert page.index("## Planning") < page.index("## Stand-up")
    assert page.count("What to know.") == 2
