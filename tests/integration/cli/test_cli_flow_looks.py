"""`leadrope flow check|show|graph|list|save|steps|history|report`, as somebody types them in a folder of their own."""

from __future__ import annotations

import json
import re
import signal
import xml.etree.ElementTree as ET
from typing import Any

import pytest

GOOD = """# Greetings

Says hello, and asks.

## Inputs

### who

Whom.

- type: string
- default: you

## Steps

### hello

Says it.

- type: note
- text: hello ${who}

### ask

A person.

- type: approval
- message: Go on with ${hello.text}?
- choices: [now, later]
- next: {now: many, later: tail, denied: tail}

### many

Each.

- type: note
- text: item ${item}
- batch: {items: [1, 2, 3], max_concurrent: 2}
- retry: {max: 2}
- on-error: tail

### tail

The end of it.

- type: note
- text: done

## Outputs

### said

- source: ${hello.text}
"""
PLAIN = "# Plain\n\n### one\n\nOne.\n\n- type: note\n- text: fine\n"
FAILS = "# Fails\n\n### bad\n\nNot there.\n\n- type: read-file\n- file_path: missing.txt\n"
BROKEN = "### a\n- type: shel\n- command: x\n### b\n- type: note\n- txt: ${a.nothing}\n"


@pytest.fixture
def files(desk: Any) -> Any:
    for name, text in (("good", GOOD), ("plain", PLAIN), ("fails", FAILS)):
        (desk.project / f"{name}.flow.md").write_text(text)
    return desk


def rows(out: str) -> dict[str, list[str]]:
    return {line.split()[0]: re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[1:] if line.strip()}


async def test_an_empty_folder_says_what_to_do(desk: Any) -> None:
    for args, words in (
        (("list",), "### hello"),
        (("check",), "### hello"),
        (("history",), "leadrope flow run FILE"),
    ):
        said = await desk.leadrope("flow", *args)
        assert (said.code, said.out) == (0, ""), args
        assert words in said.err
    said = await desk.leadrope("flow", "report", "3fa9")
    assert said.code != 0
    assert "there is no execution '3fa9'" in said.err
    assert not (desk.home / "leadrope").exists(), "a look makes nothing"


async def test_all_mistakes_of_all_files_are_told_with_their_places(files: Any) -> None:
    (files.project / "broken.flow.md").write_text(BROKEN)
    said = await files.leadrope("flow", "check", "broken.flow.md", "gone.flow.md", "plain")
    assert said.code == 2
    lines = said.out.splitlines()
    assert lines[1].startswith("broken.flow.md:2:9: error: there is no step type 'shel'; did you mean shell?")
    assert any(
        re.match(r"broken\.flow\.md:6:\d+: error: the type 'note' has no parameter 'txt'", line) for line in lines
    )
    assert any(line.startswith("gone.flow.md: error: ") for line in lines)
    assert lines[-1] == "plain.flow.md: ok: 1 step"
    said = await files.leadrope("flow", "check", "-o", "json", "broken.flow.md", "plain")
    broken, plain = (json.loads(line) for line in said.out.splitlines())
    assert (broken["ok"], plain) == (
        False,
        {"file": "plain.flow.md", "ok": True, "steps": 1, "problems": [], "asks": []},
    )
    assert {"unknown_type", "unknown_parameter"} <= {problem["kind"] for problem in broken["problems"]}


async def test_a_warning_is_a_failure_only_when_strict(files: Any) -> None:
    (files.project / "plain.flow.md").write_text(PLAIN.replace("One.\n", ""))
    said = await files.leadrope("flow", "check", "plain.flow.md")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "plain.flow.md: ok: 1 step, 1 warning"
    assert (await files.leadrope("flow", "check", "--strict", "plain.flow.md")).code == 1
    assert (await files.leadrope("flow", "check", "--strict", "good.flow.md")).code == 0


async def test_the_tree_nests_what_is_chosen_and_goes_on_where_ways_meet(files: Any) -> None:
    said = await files.leadrope("flow", "show", "good")
    assert said.code == 0
    assert said.out == (
        "Greetings\n"
        "Says hello, and asks.\n"
        "\n"
        "inputs\n"
        "  who  string = you  Whom.\n"
        "\n"
        "steps\n"
        "  ├─ hello       note        Says it.\n"
        "  ├─ ask         approval    A person.\n"
        "  │  │ later → tail\n"
        "  │  │ denied → tail\n"
        "  │  └─ now\n"
        "  │     └─ many  note        Each.\n"
        "  │          for each item of [1,2,3], 2 at once\n"
        "  │          up to 2 attempts, 1 s apart\n"
        "  │          on error → tail\n"
        "  └─ tail        note        The end of it.\n"
        "\n"
        "outputs\n"
        "  said  ${hello.text}\n"
    )
    graph = json.loads((await files.leadrope("flow", "show", "good", "-o", "json")).out)
    assert [node["id"] for node in graph["nodes"]] == ["hello", "ask", "many", "tail"]


async def test_steps_on_the_same_way_stand_below_its_name_together(desk: Any) -> None:
    text = "### way\n- type: condition\n- value: x\n- contains: x\n- next: {yes: [one, two], no: three}\n"
    text += "".join(f"### {name}\n- type: note\n- text: x\n- next: []\n" for name in ("one", "two", "three"))
    (desk.project / "ways.flow.md").write_text(text)
    said = (await desk.leadrope("flow", "show", "ways")).out
    assert [" ".join(line.split()[:-1]) for line in said.splitlines() if "─" in line] == [
        "└─ way",
        "├─",
        "│ ├─ one",
        "│ └─ two",
        "└─",
        "└─ three",
    ]


async def test_a_broken_file_is_shown_and_drawn_and_told_to_be_broken(files: Any) -> None:
    (files.project / "broken.flow.md").write_text(BROKEN)
    for look in ("show", "graph"):
        said = await files.leadrope("flow", look, "broken")
        assert said.code == 2
        assert "shel" in said.out
        assert "`leadrope flow check broken` shows them" in said.err


async def test_a_picture_goes_to_a_file_or_to_stdout(files: Any) -> None:
    said = await files.leadrope("flow", "graph", "good")
    assert said.out.startswith('---\ntitle: "Greetings"\n---\nflowchart TD\n')
    said = await files.leadrope("flow", "graph", "good", "-O", "good.svg")
    assert (said.code, said.out) == (0, "")
    picture = files.project / "good.svg"
    assert ET.fromstring(picture.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.stat().st_mode & 0o777 == 0o600
    said = await files.leadrope("flow", "graph", "good", "-o", "svg", "-O", "nowhere/x.svg")
    assert said.code == 2
    assert "cannot be written" in said.err


async def test_the_ending_of_a_picture_says_what_is_drawn(files: Any) -> None:
    for name, begins in (("a.SVG", "<svg"), ("a.mmd", "---\n"), ("a.mermaid", "---\n"), ("a.md", "```mermaid\n---\n")):
        said = await files.leadrope("flow", "graph", "good", "-O", name)
        assert said.code == 0, said.err
        assert (files.project / name).read_text().startswith(begins), name
    said = await files.leadrope("flow", "graph", "good", "-O", "a.png")
    assert said.code == 2
    assert "svg (.svg), mermaid (.mmd .mermaid .md)" in said.err
    assert "-o" in said.err
    assert not (files.project / "a.png").exists()
    assert (await files.leadrope("flow", "graph", "good", "-O", "a.txt", "-o", "mermaid")).code == 0
    said = await files.leadrope("flow", "graph", "good", "-O", "good.flow.md")
    assert said.code == 2
    assert (files.project / "good.flow.md").read_text() == GOOD, "a picture in place of a workflow"


async def test_looks_have_examples(desk: Any) -> None:
    for look in ("show", "steps", "list", "data", "graph", "history", "report", "check", "save"):
        said = await desk.leadrope("flow", look, "--help")
        assert "Examples:" in said.out, look


async def test_a_name_that_is_nearly_right_is_offered_also_as_a_file(files: Any) -> None:
    for typed, meant in (("plan", "plain"), ("plan.flow.md", "plain.flow.md"), ("./plan.flow.md", "plain.flow.md")):
        said = await files.leadrope("flow", "run", typed)
        assert said.code == 2
        assert f"Did you mean {meant}?" in said.err
    said = await files.leadrope("flow", "run", "zzzzz.flow.md")
    assert "Did you mean" not in said.err, "the ending alone makes no name alike"


async def test_a_saved_workflow_runs_anywhere_and_is_not_replaced_by_accident(files: Any) -> None:
    said = await files.leadrope("flow", "save", "plain.flow.md", "--name", "fine")
    assert "leadrope flow run fine" in said.out
    (files.project / "plain.flow.md").write_text(PLAIN.replace("fine", "other"))
    said = await files.leadrope("flow", "save", "plain.flow.md", "--name", "fine")
    assert said.code == 2
    assert "--replace" in said.err
    assert (await files.leadrope("flow", "save", "plain", "--name", "fine", "--replace")).code == 0
    (files.project / "workflows").mkdir()
    (files.project / "workflows" / "inner.flow.md").write_text(BROKEN)
    assert (await files.leadrope("flow", "run", "fine")).code == 0
    listed = rows((await files.leadrope("flow", "list")).out)
    assert listed["fine"][1:4] == ["saved", "1", "succeeded"]
    assert listed["good"][1:] == ["here", "4", "never run", "-", "Greetings"]
    assert listed["workflows/inner.flow.md"][-1].startswith("2 errors!")
    every = [json.loads(line) for line in (await files.leadrope("flow", "list", "-o", "json")).out.splitlines()]
    assert {row["name"]: row.get("last", {}).get("outcome") for row in every if row["is_saved"]} == {
        "fine": "succeeded"
    }


async def test_a_saved_copy_keeps_the_ending_that_says_its_dialect(files: Any) -> None:
    saved = files.home / "leadrope" / "workflows"
    (files.project / "other.pflow.md").write_text(PLAIN)
    assert (await files.leadrope("flow", "save", "other.pflow.md", "--name", "one")).code == 0
    assert [path.name for path in saved.iterdir()] == ["one.pflow.md"]
    said = await files.leadrope("flow", "save", "plain.flow.md", "--name", "one")
    assert said.code == 2, "one name, one workflow"
    assert "--replace" in said.err
    assert (await files.leadrope("flow", "save", "plain.flow.md", "--name", "one", "--replace")).code == 0
    assert [path.name for path in saved.iterdir()] == ["one.flow.md"]


async def test_a_saved_copy_finds_what_it_calls_or_is_not_saved(files: Any) -> None:
    call = "## Steps\n\n### call\n\n- type: workflow\n- workflow: {0}\n"
    (files.project / "outer.flow.md").write_text(call.format("inner.flow.md"))
    (files.project / "inner.flow.md").write_text("## Steps\n\n### say\n\n- type: note\n- text: hi\n")
    said = await files.leadrope("flow", "save", "outer.flow.md")
    assert said.code == 2
    assert "the step 'call' calls inner.flow.md, which a saved copy would not find" in said.err
    assert "`leadrope flow save inner.flow.md`" in said.err
    assert (await files.leadrope("flow", "save", "inner.flow.md")).code == 0
    assert (await files.leadrope("flow", "save", "outer.flow.md")).code == 0
    (files.project / "outer.flow.md").unlink()
    (files.project / "inner.flow.md").unlink()
    assert (await files.leadrope("flow", "run", "outer")).code == 0


async def test_kinds_of_steps_are_listed_and_explained(desk: Any) -> None:
    said = await desk.leadrope("flow", "steps")
    assert {"agent", "shell", "approval", "workflow"} <= set(rows(said.out))
    said = await desk.leadrope("flow", "steps", "wait")
    assert re.search(r"^  seconds +number", said.out, re.MULTILINE)
    assert re.search(r"^  waited_s +number", said.out, re.MULTILINE)
    said = await desk.leadrope("flow", "steps", "approval", "-o", "json")
    told = json.loads(said.out)
    assert told["parameters"]["required"] == ["message"]
    assert told["outputs"]["approved"] == {"type": "boolean"}
    said = await desk.leadrope("flow", "steps", "shel")
    assert said.code == 2
    assert "Did you mean shell?" in said.err


async def test_history_and_report_tell_what_waits_and_what_failed(files: Any) -> None:
    assert (await files.leadrope("flow", "run", "fails")).code == 1
    assert (await files.leadrope("flow", "run", "good", "who=me")).code == 4
    every = [json.loads(line) for line in (await files.leadrope("flow", "history", "-o", "json")).out.splitlines()]
    assert [row["execution"]["name"] for row in every] == ["good", "fails"], "the newest first"
    waiting, failed = every
    (token,) = waiting["approvals"]
    said = await files.leadrope("flow", "history")
    assert rows(said.out)[waiting["execution"]["id"][:8]][1] == "waiting"
    assert "ask waits: Go on with hello me?" in said.out
    assert "bad: missing.txt does not exist" in said.out
    assert f"leadrope approvals show {token}" in said.err
    said = await files.leadrope("flow", "history", "fails.flow.md")
    assert list(rows(said.out)) == [failed["execution"]["id"][:8]]
    said = await files.leadrope("flow", "history", "--open")
    assert list(rows(said.out)) == [waiting["execution"]["id"][:8]]
    said = await files.leadrope("flow", "history", "plain")
    assert (said.code, said.out) == (0, "")
    assert "plain was not run yet" in said.err
    for output in ("text", "json"):
        said = await files.leadrope("flow", "history", "fail", "-o", output)
        assert (said.code, said.out) == (2, "")
        assert "Did you mean fails?" in said.err
    (files.project / "fails.flow.md").unlink()
    said = await files.leadrope("flow", "history", "fails.flow.md")
    assert list(rows(said.out)) == [failed["execution"]["id"][:8]], "of a file that is gone"
    (files.project / "fails.flow.md").write_text(FAILS)

    for name in ("good", token, waiting["execution"]["id"][:6]):
        said = await files.leadrope("flow", "report", name)
        assert "- outcome: waiting" in said.out
        assert "| `ask` | approval | waiting |" in said.out
        assert f"leadrope approvals approve {token} --choose now" in said.out
    said = await files.leadrope("flow", "report", "fails", "--html", "-O", "report.html")
    page = (files.project / "report.html").read_text()
    assert said.out == ""
    assert "missing.txt does not exist" in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    told = json.loads((await files.leadrope("flow", "report", "good", "-o", "json")).out)
    assert [step["state"] for step in told["steps"]] == ["succeeded", "waiting", "not_run", "not_run"]


async def test_history_tells_folders_apart(files: Any) -> None:
    other = files.project / "other"
    other.mkdir()
    assert (await files.leadrope("flow", "run", "plain")).code == 0
    assert (await files.leadrope("flow", "run", "plain", "-C", str(other))).code == 0
    every = (await files.leadrope("flow", "history")).out.splitlines()[1:]
    assert [str(other) in line or "/other)" in line for line in every] == [True, False]
    here = (await files.leadrope("flow", "history", "--here")).out.splitlines()[1:]
    assert len(here) == 1
    assert "other" not in here[0]


async def test_an_execution_that_has_succeeded_names_what_starts_it_again(files: Any) -> None:
    assert (await files.leadrope("flow", "run", "plain")).code == 0
    (row,) = [json.loads(line) for line in (await files.leadrope("flow", "history", "-o", "json")).out.splitlines()]
    said = await files.leadrope("flow", "resume", row["execution"]["id"][:8])
    assert said.code != 0
    assert f"leadrope flow run {files.project / 'plain.flow.md'}`" in said.err


async def test_an_input_without_a_type_is_shown_as_it_is_written(files: Any) -> None:
    (files.project / "asks.flow.md").write_text(
        "## Inputs\n\n### topic\n\nWhat.\n\n### count\n\nHow many.\n\n- type: integer\n\n"
        "## Steps\n\n### say\n\nSays.\n\n- type: note\n- text: ${topic} ${count}\n"
    )
    said = await files.leadrope("flow", "run", "asks")
    assert "It takes: topic=… count=<integer>" in said.err


async def test_what_was_stopped_is_open_and_says_how_it_goes_on(files: Any) -> None:
    (files.project / "slow.flow.md").write_text(
        "### slow\n\nWaits.\n\n- type: shell\n- command: touch marker; sleep 60\n"
    )
    async with files.at_terminal("flow", "run", "slow") as terminal:
        await terminal.reads("slow (shell)")
        terminal.signal(signal.SIGINT)
        await terminal.reads("flow resume ")
        assert await terminal.ends() == 130
    for args in ((), ("--open",)):
        said = await files.leadrope("flow", "history", *args)
        ((name, row),) = rows(said.out).items()
        assert row[1] == "stopped"
        assert row[-1] == f"continue with: leadrope flow resume {name}"
    (files.project / "slow.flow.md").write_text("### slow\n\nDone.\n\n- type: note\n- text: x\n")
    assert (await files.leadrope("flow", "resume", name, "--changed")).code == 0
    said = await files.leadrope("flow", "history", "--open")
    assert (said.code, said.out) == (0, "")
    assert "Nothing runs or can be resumed" in said.err


async def test_what_a_workflow_waits_for_is_answered_beside_the_approvals_of_runs(files: Any, background: Any) -> None:
    assert (await files.leadrope("flow", "run", "good")).code == 4
    (row,) = (await files.leadrope("approvals", "list", "-o", "json")).out.splitlines()
    token = json.loads(row)["id"]
    assert "Greetings, ask: Go on with hello you?" in (await files.leadrope("approvals", "list")).out
    assert "choices: now, later" in (await files.leadrope("approvals", "show", token)).out
    said = await files.leadrope("approvals", "approve", token)
    assert said.code == 2
    assert "--choose" in said.err
    said = await files.leadrope("approvals", "approve", token[:8], "--choose", "now")
    assert said.out == f"{token} approved: now\n"
    assert "continues in the background" in said.err
    said = await files.leadrope("approvals", "deny", token)
    assert said.code == 2
    assert "The first answer counts." in said.err
    assert "Nothing waits" in (await files.leadrope("approvals", "list")).err
    assert (await files.leadrope("flow", "logs", "-f", token)).code == 0
    report = json.loads((await files.leadrope("flow", "report", token, "-o", "json")).out)
    assert list(report["outputs"].values()) == ["hello you"]


async def test_old_executions_are_pruned_with_old_runs_and_one_that_waits_is_kept(files: Any) -> None:
    for name in ("plain", "plain", "good"):
        await files.leadrope("flow", "run", name)
    said = await files.leadrope("runs", "prune", "--days", "0", "--keep", "1", "--dry-run")
    assert said.out == "0 runs and 1 execution of workflows would be deleted\n"
    said = await files.leadrope("runs", "prune", "--days", "0", "--keep", "0")
    assert said.out == "0 runs and 2 executions of workflows deleted\n"
    left = (await files.leadrope("flow", "history", "-o", "json")).out.splitlines()
    assert [json.loads(line)["execution"]["name"] for line in left] == ["good"]


async def test_a_terminal_of_eighty_columns_has_no_line_that_breaks(files: Any) -> None:
    """Measured on what is written: a line that is wider than the screen breaks at a place that nobody chose."""
    for args in (("show", "good"), ("list",), ("steps",), ("steps", "agent"), ("steps", "http")):
        async with files.at_terminal("flow", *args, COLUMNS="80") as terminal:
            assert await terminal.ends() == 0
        wide = [line for line in terminal.seen.replace("\r", "").split("\n") if len(line) > 80]
        assert wide == [], args


async def test_check_and_run_look_into_the_workflows_that_a_step_calls(desk: Any) -> None:
    inner = (
        "## Inputs\n\n### n\n\nN.\n\n- type: integer\n\n## Steps\n\n### say\n\nSays it.\n\n- type: note\n- text: ${n}\n"
    )
    (desk.project / "in.flow.md").write_text(inner + "\n## Outputs\n\n### said\n\n- source: ${say.text}\n")
    outer = """### mark

Leaves a mark.

- type: shell
- command: touch marker

### call

Calls.

- type: workflow
- workflow: in
- inputs: {n: many}

### lost

Calls.

- type: workflow
- workflow: inn.flow.md

### use

Uses it.

- type: note
- text: ${call.sad}
"""
    (desk.project / "outer.flow.md").write_text(outer)
    checked = await desk.leadrope("flow", "check", "outer.flow.md")
    assert checked.code == 2, checked.err
    lines = checked.out.splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"outer.flow.md:{at}:" for at in ("14:15", "21:13", "28:9")]
    for line, words in zip(
        lines, ("expected a whole number", "did you mean in.flow.md?", "did you mean ${call.said}?"), strict=True
    ):
        assert words in line
    ran = await desk.leadrope("flow", "run", "outer.flow.md")
    assert (ran.code, "has 3 errors" in ran.err) == (2, True), ran.err
    assert not desk.marker.exists(), "nothing has begun"


async def test_a_workflow_that_leads_out_of_the_folder_is_not_shown(desk: Any) -> None:
    """An agent may have put a link to a key in its place."""
    key = desk.project.parent / "key"
    key.write_text("# TOPSECRET\n")
    for name, target in (("linked.flow.md", key), ("flows", key.parent)):
        (desk.project / name).symlink_to(target)
    key.with_suffix(".flow.md").write_text("# TOPSECRET\n")
    for name in ("linked.flow.md", "flows/key.flow.md", str(desk.project / "linked.flow.md")):
        for verb in ("show", "check", "graph"):
            ended = await desk.leadrope("flow", verb, name)
            assert ended.code == 2, ended
            assert "TOPSECRET" not in ended.out + ended.err
            assert "through a link" in ended.out + ended.err
