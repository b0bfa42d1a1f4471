"""`--rehearse`: runs and workflows with scripted answers from the terminal, and what is kept of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector import listening

EXECUTION = """# Review

## Steps

### list

- type: shell

```shell command
echo one.py
```

### review

- type: agent
- mode: edit

```markdown prompt
Review ${list.stdout} and write a note.
```

### sum

- type: llm

```markdown prompt
Sum up: ${review.result}
```
"""
SCRIPT = """steps:
  review:
    - tool: {name: Write, input: {file_path: "{{cwd}}/note.txt", content: "looks fine"}}
      expect: {contains: "Review one.py"}
    - text: "It is fine."
  sum:
    - text: "All fine."
      expect: {contains: "Sum up: It is fine."}
"""
FETCH = "# Net\n\n## Steps\n\n### fetch\n\n- type: http\n- url: https://example.com/x\n"
BATCH = """# Batch

## Steps

### each

- type: llm
- prompt: Look at ${item}

```yaml batch
items: [a, b, c]
parallel: true
```
"""


def write(desk: Any, name: str, text: str) -> str:
    (desk.project / name).write_text(text)
    return name


async def rehearse(desk: Any, execution: str, script: str, *more: str) -> Any:
    return await desk.leadrope(
        "flow", "run", write(desk, "test.flow.md", execution), "--rehearse", write(desk, "script.yaml", script), *more
    )


async def test_a_workflow_is_rehearsed_without_account_and_configuration(desk: Any) -> None:
    broken = desk.home / ".config/leadrope/config.toml"
    broken.parent.mkdir(parents=True)
    broken.write_text("this is not TOML")
    done = await rehearse(desk, EXECUTION, SCRIPT)
    assert (done.code, done.out) == (0, "All fine.\n"), done.err
    assert (desk.project / "note.txt").read_text() == "looks fine"
    assert "nobody was charged" in done.err
    assert "$" not in done.err
    broken.unlink()
    history = await desk.leadrope("flow", "history")
    assert "(rehearsal)" in history.out
    assert "$" not in history.out
    for command in ("logs", "report"):
        shown = await desk.leadrope("flow", command, history.out.splitlines()[1].split()[0])
        assert (shown.code, "$" in shown.out + shown.err) == (0, False), shown.out + shown.err
    runs = (await desk.leadrope("runs", "list", "-o", "json")).out.splitlines()
    assert [json.loads(run)["labels"]["leadrope"] for run in runs] == ["rehearsal"] * 2
    assert "No runs" in (await desk.leadrope("stats")).err


async def test_a_script_that_does_not_fit_is_told_with_step_and_request(desk: Any) -> None:
    done = await rehearse(desk, EXECUTION, SCRIPT.replace("Review one.py", "Review two.py"))
    assert done.code == 1
    told = done.err[done.err.index("did not follow script.yaml") :]
    assert "request 1 of step review does not fit steps.review.turns[0]" in told
    assert "'Review two.py' is nowhere" in told
    assert "flow resume" not in done.err


async def test_answers_that_nobody_asked_for_fail_the_rehearsal(desk: Any) -> None:
    done = await rehearse(desk, EXECUTION, SCRIPT + "    - text: More.\n")
    assert done.code == 1
    assert "steps.sum.turns[1] was not used: text 'More.'" in done.err


async def test_a_rehearsal_is_not_continued_nor_taken_over(desk: Any) -> None:
    await rehearse(desk, EXECUTION, SCRIPT.replace("Review one.py", "Review two.py"), "-q")
    execution = json.loads((await desk.leadrope("flow", "history", "-o", "json")).out)["execution"]
    resumed = await desk.leadrope("flow", "resume", execution["id"])
    assert (resumed.code, "is a rehearsal" in resumed.err) == (2, True), resumed.err
    taken = await desk.leadrope("flow", "run", "test.flow.md", "--from", "review")
    assert "has not run yet" in taken.err


async def test_the_network_is_left_alone_and_outputs_stand_in(desk: Any) -> None:
    refused = await rehearse(desk, FETCH, "turns: []")
    assert (refused.code, "sends nothing to other machines" in refused.err) == (1, True), refused.err
    given = await rehearse(desk, FETCH, "steps: {fetch: {outputs: {status: 200, response: hello}}}")
    assert (given.code, given.out) == (0, "hello\n"), given.err


async def test_what_is_denied_at_once_is_not_told_to_wait(desk: Any) -> None:
    script = """steps:
  fix:
    - tool: {name: Bash, input: {command: touch marker, description: x}}
    - text: "It was denied."
"""
    done = await rehearse(desk, "### fix\n\n- type: agent\n- mode: edit\n- prompt: fix it\n", script)
    assert (done.code, done.out) == (0, "It was denied.\n"), done.err
    assert "agent.call_denied: Bash `touch marker` was denied: no one can answer" in done.err
    assert "waits for a person" not in done.err
    assert not (desk.project / "marker").exists()
    execution = (await desk.leadrope("flow", "history", "-o", "json")).out
    logs = await desk.leadrope("flow", "logs", json.loads(execution)["execution"]["id"], "-o", "stream-json")
    assert "step.asked" not in logs.out


async def test_items_of_a_batch_have_answers_of_their_own(desk: Any) -> None:
    script = "".join(f"      - [{{text: {word}, expect: {{contains: Look at {word}}}}}]\n" for word in "abc")
    done = await rehearse(desk, BATCH, f"steps:\n  each:\n    items:\n{script}")
    assert done.code == 0, done.err


async def test_a_run_is_rehearsed(desk: Any) -> None:
    name = write(desk, "script.yaml", "- text: Hello.\n  expect: {contains: say hello}\n")
    done = await desk.leadrope("run", "say hello", "--rehearse", name)
    assert (done.code, done.out) == (0, "Hello.\n"), done.err
    other = await desk.leadrope("run", "say goodbye", "--rehearse", name)
    assert (other.code, "request 1 does not fit turns[0]" in other.err) == (1, True)
    sessions = await desk.leadrope("sessions", "list")
    assert "say hello" not in sessions.out


async def test_flags_that_mean_nothing_are_refused(desk: Any) -> None:
    for flags in (("--detach",), ("--base-url", "http://127.0.0.1:1"), ("--billing", "api_key")):
        for command in (("run", "hello"), ("flow", "run", write(desk, "test.flow.md", EXECUTION))):
            done = await desk.leadrope(*command, "--rehearse", write(desk, "script.yaml", SCRIPT), *flags)
            assert done.code == 2
            assert f"{flags[0]} was given with --rehearse" in done.err
    typo = await rehearse(desk, EXECUTION, "steps: {revie: [{text: a}]}")
    assert (typo.code, "Did you mean review?" in typo.err) == (2, True)
    missing = await desk.leadrope("run", "hello", "--rehearse", "none.yaml")
    assert (missing.code, "docs/rehearsal.md" in missing.err) == (2, True)


async def test_a_rehearsal_is_not_reported_to_a_collector(desk: Any) -> None:
    own = Path(desk.environ["LEADROPE_HOME"])
    own.mkdir(parents=True, exist_ok=True)
    with listening() as collector:
        (own / ".env").write_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}\n")
        done = await rehearse(desk, EXECUTION, SCRIPT)
        assert done.code == 0, done.err
        script = write(desk, "one.yaml", '- text: "Done."\n')
        done = await desk.leadrope("run", "go", "--rehearse", script)
        assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert collector.got == []


async def test_a_question_that_is_denied_at_once_names_no_command_that_answers_it(desk: Any) -> None:
    done = await rehearse(desk, EXECUTION.replace("- mode: edit\n", ""), SCRIPT)
    assert (done.code, (desk.project / "note.txt").exists()) == (0, False), done.err
    assert "no one can answer" in done.err
    assert "approvals approve" not in done.err
