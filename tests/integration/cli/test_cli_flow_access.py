"""What a workflow may use besides its workspace: by an option, or because its file asks and the user has allowed it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from http_peer import echo, serving

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)

KEY = "key-of-the-service-4711"


def write(desk: Any, text: str, name: str = "test.flow.md") -> str:
    (desk.project / name).write_text(text)
    return name


def shell(command: str, *more: str, settings: str = "", inputs: str = "") -> str:
    lines = "\n".join(("### it", "", "- type: shell", *more, "", "```shell command", command, "```"))
    parts = [f"## Inputs\n\n{inputs}\n" if inputs else "", f"## Steps\n\n{lines}\n"]
    return "# T\n\n" + "\n".join(parts) + (f"\n## Settings\n\n{settings}\n" if settings else "")


def notes(desk: Any) -> Path:
    """A folder of the user's beside the project."""
    folder: Path = desk.home / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("from outside\n")
    return folder


# -- folders by an option ---------------------------------------------------------------------------------------------


async def test_a_folder_is_opened_to_write_or_to_read_only(desk: Any) -> None:
    folder = notes(desk)
    name = write(desk, shell("cat ~/notes/a.txt; echo new > ~/notes/b.txt"))
    without = await desk.leadrope("flow", "run", name)
    assert without.code == 1
    assert not (folder / "b.txt").exists()
    reading = await desk.leadrope("flow", "run", name, "--add-dir", f"{folder}:ro")
    assert (reading.code, "Read-only file system" in reading.err) == (1, True)
    assert not (folder / "b.txt").exists()
    writing = await desk.leadrope("flow", "run", name, "--add-dir", str(folder), "-q")
    assert (writing.code, writing.out) == (0, "from outside\n"), writing.err
    assert (folder / "b.txt").read_text() == "new\n"


async def test_what_is_blocked_stays_masked_in_an_added_folder(desk: Any) -> None:
    folder = notes(desk)
    (folder / ".env").write_text("SECRET=1\n")
    name = write(desk, shell("cat ~/notes/.env", settings='- policy: {blocked_paths: ["**/.env"]}'))
    for words in (f"{folder}:ro", str(folder)):
        ended = await desk.leadrope("flow", "run", name, "--add-dir", words)
        assert ended.code != 0
        assert "SECRET=1" not in ended.out + ended.err


async def test_an_execution_keeps_its_folders_when_another_process_resumes_it(desk: Any) -> None:
    folder = notes(desk)
    ask = "## Steps\n\n### may\n\n- type: approval\n- message: Go on?\n\n"
    name = write(desk, shell("cat ~/notes/a.txt; echo $LEVEL").replace("## Steps\n\n", ask))
    begun = await desk.leadrope("flow", "run", name, "--add-dir", f"{folder}:ro", "--var", "LEVEL=high", "-o", "json")
    assert begun.code == 4, begun.err
    resumed = await desk.leadrope("flow", "resume", json.loads(begun.out)["execution_id"], "--approve", "-q")
    assert (resumed.code, resumed.out) == (0, "from outside\nhigh\n"), resumed.err


async def test_a_detached_execution_has_what_it_was_given(desk: Any, background: Any) -> None:
    folder = notes(desk)
    name = write(desk, shell("cat ~/notes/a.txt > seen; echo $LEVEL $${#SERVICE_KEY} >> seen"))
    given = ("--add-dir", f"{folder}:ro", "--var", "LEVEL=high", "--secret", "SERVICE_KEY")
    begun = await desk.leadrope("flow", "run", name, "--detach", *given, SERVICE_KEY=KEY)
    assert begun.code == 0, begun.err
    followed = await desk.leadrope("flow", "logs", "-f", begun.out.strip())
    assert followed.code == 0, followed.err
    assert (desk.project / "seen").read_text() == f"from outside\nhigh {len(KEY)}\n"


async def test_the_sandbox_is_switched_off_or_made_stricter(desk: Any) -> None:
    notes(desk)
    name = write(desk, shell("cat ~/notes/a.txt; echo kept > ~/kept.txt"))
    for option in ("--sandbox", "--sandbox"):
        ended = await desk.leadrope("flow", "run", name, option, "off", "-q")
        assert (ended.code, ended.out) == (0, "from outside\n"), ended.err
        assert (desk.home / "kept.txt").read_text() == "kept\n"
        (desk.home / "kept.txt").unlink()
    strict = await desk.leadrope("flow", "run", write(desk, shell("touch x")), "--sandbox", "read-only")
    assert (strict.code, "Read-only file system" in strict.err) == (1, True)
    required = await desk.leadrope(
        "flow", "run", write(desk, shell("true", settings="- policy: {sandbox: required}")), "--sandbox", "off"
    )
    assert (required.code, "the policy requires" in required.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--add-dir", "nowhere"), "there is no folder"),
        (("--add-dir", "/tmp"), "the sandbox has a folder of its own there"),
        (("--add-dir", "/usr/share"), "belongs to the system"),
        (("--add-dir", ":ro"), "names no folder"),
        (("--add-dir", "~/leadrope"), "belongs to leadrope itself"),
        (("--var", "LD_PRELOAD=x"), "LD_PRELOAD"),
        (("--var", "DEPLOY_TOKEN=abcdefgh"), "--secret DEPLOY_TOKEN"),
        (("--var", "UNSET_HERE"), "'UNSET_HERE' is not set here"),
        (("--secret", "UNSET_HERE"), "UNSET_HERE is not set"),
        (("--secret", "SHORT_KEY"), "fewer than 6 characters"),
        (("--secret", "abc=def"), "not given the name of a variable"),
    ],
)
async def test_what_cannot_be_given_is_refused_and_nothing_starts(desk: Any, words: tuple[str, ...], told: str) -> None:
    (desk.home / "leadrope").mkdir()
    ended = await desk.leadrope("flow", "run", write(desk, shell("touch started")), *words, SHORT_KEY="abc")
    assert (ended.code, told in ended.err) == (2, True), ended.err
    assert "abc=def" not in ended.err
    assert not (desk.project / "started").exists()


# -- keys -------------------------------------------------------------------------------------------------------------

SSH = """#!/bin/sh
# Stands in for ssh: without its key there is no login; with it the command runs where the repository is.
cat "$HOME/.ssh/id_ed25519" > /dev/null || { echo 'git@host: Permission denied (publickey).' >&2; exit 255; }
for command; do :; done
exec sh -c "$command"
"""
GH = """#!/bin/sh
grep -q oauth_token "$HOME/.config/gh/hosts.yml" 2>/dev/null && echo "logged in" && exit 0
echo 'To get started with GitHub CLI, please run:  gh auth login' >&2; exit 4
"""


def program(desk: Any, name: str, text: str) -> None:
    folder = desk.home / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    desk.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def repository(desk: Any) -> Path:
    """The project as a repository with a commit, and a remote that is reached by ssh."""
    remote: Path = desk.home.parent / "remote.git"
    (desk.home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.com\n[safe]\ndirectory = *\n")
    (desk.project / "a.txt").write_text("a\n")
    for words in (
        ("init", "-q", "--bare", "-b", "main", str(remote)),
        ("init", "-q", "-b", "main"),
        ("add", "a.txt"),
        ("commit", "-q", "-m", "first"),
        ("remote", "add", "origin", f"ssh://git@host{remote}"),
    ):
        subprocess.run(["git", *words], cwd=desk.project, env=desk.environ, check=True)
    return remote


def head_of(remote: Path) -> str:
    command = ["git", "-C", str(remote), "log", "--format=%s", "main"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


async def test_git_pushes_over_ssh_where_the_key_folder_is_opened(desk: Any) -> None:
    program(desk, "ssh", SSH)
    (desk.home / ".ssh").mkdir(mode=0o700)
    (desk.home / ".ssh/id_ed25519").write_text("key\n")
    remote = repository(desk)
    name = write(desk, shell("git push -q origin main"))

    async def pushed(*words: str) -> Any:
        begun = await desk.leadrope("flow", "run", name, "--add-dir", str(remote), *words, "-o", "json")
        assert begun.code == 4, begun.err
        return await desk.leadrope("flow", "resume", json.loads(begun.out)["execution_id"], "--approve")

    hidden = await pushed()
    assert (hidden.code, head_of(remote)) == (1, ""), hidden.err
    assert "sandbox hides the login of ssh from commands; run it with --add-dir ~/.ssh:ro" in hidden.err
    ended = await pushed("--add-dir", "~/.ssh:ro".replace("~", str(desk.home)))
    assert (ended.code, head_of(remote)) == (0, "first\n"), ended.err


async def test_gh_works_where_its_folder_is_opened_and_an_agent_never_gets_it(desk: Any, playing: Any) -> None:
    program(desk, "gh", GH)
    folder = desk.home / ".config/gh"
    folder.mkdir(parents=True)
    (folder / "hosts.yml").write_text("oauth_token: x\n")
    name = write(desk, shell("gh auth status"))
    hidden = await desk.leadrope("flow", "run", name)
    assert hidden.code == 1
    assert "sandbox hides the login of gh from commands; run it with --add-dir ~/.config/gh:ro" in hidden.err
    opened = await desk.leadrope("flow", "run", name, "--add-dir", f"{folder}:ro", "-q")
    assert (opened.code, opened.out) == (0, "logged in\n"), opened.err
    agent = "### it\n\n- type: agent\n- prompt: go\n- mode: full\n- use_api_key: false\n"
    look = {"name": "Bash", "input": {"command": f"cat {folder}/hosts.yml; echo $? > seen", "description": "look"}}
    async with playing({"tool": look}, {"text": "done"}, strict=False) as model:
        name = write(desk, agent)
        ended = await desk.leadrope("flow", "run", name, "--add-dir", str(folder), "--base-url", model.url)
    assert ended.code == 0, ended.err
    assert (desk.project / "seen").read_text() == "1\n"


async def test_agents_work_in_folders_that_are_added(desk: Any, playing: Any) -> None:
    folder = notes(desk)
    agent = "### it\n\n- type: agent\n- prompt: go\n- mode: full\n- use_api_key: false\n"
    look = {"name": "Bash", "input": {"command": f"echo agent > {folder}/c.txt", "description": "write"}}
    async with playing({"tool": look}, {"text": "done"}, strict=False) as model:
        ended = await desk.leadrope(
            "flow", "run", write(desk, agent), "--add-dir", str(folder), "--base-url", model.url
        )
    assert ended.code == 0, ended.err
    assert (folder / "c.txt").read_text() == "agent\n"


# -- what a file asks for ---------------------------------------------------------------------------------------------

ASKS = shell(
    "cat ~/notes/a.txt; echo $REGION",
    settings="- folders: [~/notes:ro]\n- env: [REGION]",
)


async def test_a_file_that_asks_gets_nothing_until_the_user_has_allowed_it(desk: Any) -> None:
    folder = notes(desk)
    name = write(desk, ASKS)
    checked = await desk.leadrope("flow", "check", name)
    assert checked.code == 0
    assert f"note: asks for the folder {folder} (read-only), the variable REGION; give it with --add-dir" in checked.out
    assert f"`leadrope trust {name}`" in checked.out
    refused = await desk.leadrope("flow", "run", name, REGION="eu")
    assert refused.code == 2
    for told in (f"folder {folder} (read)", "variable REGION for its commands", f"leadrope trust {desk.project}"):
        assert told in refused.err
    by_hand = await desk.leadrope("flow", "run", name, "--add-dir", str(folder), "--var", "REGION", "-q", REGION="eu")
    assert (by_hand.code, by_hand.out) == (0, "from outside\neu\n"), by_hand.err
    assert (await desk.leadrope("flow", "run", name, REGION="eu")).code == 2, "options are for one execution"
    shown = await desk.leadrope("trust", name, "--show")
    assert (shown.code, f"folder {folder} (read)" in shown.out) == (1, True)
    assert (await desk.leadrope("trust", name, "--yes")).code == 0
    trusted = await desk.leadrope("flow", "run", name, "-q", REGION="eu")
    assert (trusted.code, trusted.out) == (0, "from outside\neu\n"), trusted.err
    write(desk, ASKS.replace("cat ", "ls ; cat "))
    assert (await desk.leadrope("flow", "run", name, REGION="eu")).code == 2, "another text is another file"
    write(desk, ASKS)
    assert (await desk.leadrope("trust", name, "--forget")).out == "forgotten\n"
    assert (await desk.leadrope("flow", "run", name, REGION="eu")).code == 2


async def test_at_a_terminal_the_user_is_asked_once(desk: Any) -> None:
    folder = notes(desk)
    name = write(desk, ASKS)
    async with desk.at_terminal("flow", "run", name, REGION="eu") as terminal:
        await terminal.reads(
            "asks for more than its workspace",
            f"folder {folder} (read)",
            "variable REGION for its commands",
            "Allow this, for the file as it is now?",
        )
        terminal.types("n\n")
        await terminal.reads("was not started")
        assert await terminal.ends() == 2
    async with desk.at_terminal("flow", "run", name, REGION="eu") as terminal:
        await terminal.reads("Allow this")
        terminal.types("y\n")
        await terminal.reads("succeeded")
        assert await terminal.ends() == 0
    again = await desk.leadrope("flow", "run", name, "-q", REGION="us")
    assert (again.code, again.out) == (0, "from outside\nus\n"), again.err


async def test_a_folder_that_leads_elsewhere_now_is_asked_for_again(desk: Any) -> None:
    """What was allowed is the folder that was shown, and not its name."""
    notes(desk)
    other = desk.home / "other"
    other.mkdir()
    (desk.project / "data").symlink_to(desk.home / "notes")
    name = write(desk, shell("ls data/", settings="- folders: [data]"))
    assert (await desk.leadrope("trust", name, "--yes")).code == 0
    assert (await desk.leadrope("flow", "run", name)).code == 0
    (desk.project / "data").unlink()
    (desk.project / "data").symlink_to(other)
    assert (await desk.leadrope("flow", "run", name)).code == 2


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("~/.ssh", "keys and logins are kept there"),
        ("~/.ssh/sub:ro", "keys and logins are kept there"),
        ("~/.config/gh", "keys and logins are kept there"),
        ("link", "keys and logins are kept there"),
        ("~", "whole home"),
        ("~/..", "whole home"),
        ("~/leadrope", "belongs to leadrope itself"),
        ("/run", "the sandbox has a folder of its own there"),
    ],
)
async def test_no_file_gets_a_place_with_keys(desk: Any, folder: str, told: str) -> None:
    for path in (".ssh/sub", ".config/gh", "leadrope"):
        (desk.home / path).mkdir(parents=True)
    (desk.project / "link").symlink_to(desk.home / ".ssh")
    name = write(desk, shell("touch started", settings=f"- folders: [{json.dumps(folder)}]"))
    for words in (("flow", "run", name), ("trust", name, "--yes")):
        ended = await desk.leadrope(*words)
        assert (ended.code, told in ended.err) == (2, True), ended.err
    assert not (desk.project / "started").exists()


@pytest.mark.parametrize("variable", ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "LD_PRELOAD", "PATH"])
async def test_no_file_gets_a_credential_by_a_variable(desk: Any, variable: str) -> None:
    for text in (
        shell("true", settings=f"- env: [{variable}]"),
        shell("echo ${x}", inputs=f"### x\n\n- type: string\n- env: {variable}\n"),
    ):
        ended = await desk.leadrope("flow", "run", write(desk, text), **{variable: "value-of-it"})
        assert ended.code == 2
        assert f"cannot ask for {variable}" in ended.err


async def test_a_workflow_inside_gets_no_more_than_the_one_that_calls_it(desk: Any) -> None:
    notes(desk)
    write(desk, ASKS, "in.flow.md")
    name = write(desk, "## Steps\n\n### call\n\n- type: workflow\n- workflow: in.flow.md\n")
    refused = await desk.leadrope("flow", "run", name, REGION="eu")
    assert refused.code == 1
    assert "in asks for the folder" in refused.err
    given = await desk.leadrope(
        "flow", "run", name, "--add-dir", f"{desk.home}/notes", "--var", "REGION", "-q", REGION="eu"
    )
    assert given.code == 0, given.err


# -- inputs -----------------------------------------------------------------------------------------------------------

COUNTS = shell(
    "echo ${count} ${place}",
    inputs="### count\n\n- type: integer\n- env: COUNT\n\n### place\n\n- type: string\n- env: PLACE\n- default: here\n",
)


async def test_an_input_is_filled_from_the_variable_that_it_names(desk: Any) -> None:
    name = write(desk, COUNTS)
    refused = await desk.leadrope("flow", "run", name, COUNT="3")
    assert (refused.code, "variable COUNT for the input count" in refused.err) == (2, True)
    given = await desk.leadrope("flow", "run", name, "count=4", "-q", COUNT="3")
    assert (given.code, given.out) == (0, "4 here\n"), "what is given needs no variable"
    assert (await desk.leadrope("trust", name, "--yes")).code == 0
    for environ, out in (
        ({"COUNT": "3"}, "3 here\n"),
        ({"COUNT": "3", "PLACE": "there"}, "3 there\n"),
    ):
        ended = await desk.leadrope("flow", "run", name, "-q", **environ)
        assert (ended.code, ended.out) == (0, out), ended.err
    unset = await desk.leadrope("flow", "run", name)
    assert (unset.code, "or set COUNT" in unset.err) == (2, True)
    wrong = await desk.leadrope("flow", "run", name, COUNT="many")
    assert (wrong.code, "'many' is not a whole number" in wrong.err) == (2, True)


# -- secrets ----------------------------------------------------------------------------------------------------------


def kept(desk: Any) -> bytes:
    """Everything that leadrope has stored."""
    folder = Path(desk.environ["LEADROPE_HOME"])
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".env")


REQUEST = """# T

## Steps

### may

- type: approval
- message: Go on?

### get

- type: http
- url: http://127.0.0.1:PORT/
- allow_private: true
- headers: {X-Service-Key: "${secret.SERVICE_KEY}", X-Plain: "Key ${secret.SERVICE_KEY}"}
- params: {key: "${secret.SERVICE_KEY}"}

## Outputs

### answer

- source: ${get.body}
"""


async def test_a_key_goes_into_any_header_by_reference_and_survives_a_resume(desk: Any) -> None:
    """Its value is looked up when it is needed: the resumed execution has the one of that time."""
    async with serving(echo) as server:
        name = write(desk, REQUEST.replace("PORT", str(server.port)))
        without = await desk.leadrope("flow", "run", name, SERVICE_KEY=KEY)
        assert (without.code, "--secret SERVICE_KEY" in without.err) == (2, True)
        begun = await desk.leadrope("flow", "run", name, "--secret", "SERVICE_KEY", "-o", "json", SERVICE_KEY=KEY)
        assert begun.code == 4, begun.err
        execution_id = json.loads(begun.out)["execution_id"]
        gone = await desk.leadrope("flow", "resume", execution_id, "--approve")
        assert (gone.code, "SERVICE_KEY is not set" in gone.err) == (1, True)
        assert server.seen == []
        begun = await desk.leadrope("flow", "run", name, "--secret", "SERVICE_KEY", "-o", "json", SERVICE_KEY=KEY)
        (desk.home / "leadrope/.env").write_text("SERVICE_KEY=another/key-of-it\n")
        ended = await desk.leadrope("flow", "resume", json.loads(begun.out)["execution_id"], "--approve", "-o", "json")
        assert ended.code == 0, ended.err
    seen = server.seen[0]
    assert seen.headers["x-service-key"] == "another/key-of-it"
    assert seen.headers["x-plain"] == "Key another/key-of-it"
    assert seen.path == "/?key=another%2Fkey-of-it"
    report = await desk.leadrope("flow", "report", json.loads(begun.out)["execution_id"])
    everything = f"{begun.out}{begun.err}{ended.out}{ended.err}{report.out}".encode() + kept(desk)
    for secret in (KEY, "another/key-of-it", "another%2Fkey-of-it"):
        assert secret.encode() not in everything
    assert "[redacted]" in json.loads(ended.out)["outputs"]["answer"]


async def test_commands_get_a_secret_and_what_is_kept_does_not(desk: Any) -> None:
    name = write(desk, shell('echo "$SERVICE_KEY $RENAMED"', '- env: {RENAMED: "${secret.SERVICE_KEY}"}'))
    ended = await desk.leadrope("flow", "run", name, "--secret", "SERVICE_KEY", "-o", "json", SERVICE_KEY=KEY)
    assert ended.code == 0, ended.err
    assert KEY not in ended.out + ended.err
    assert KEY.encode() not in kept(desk)
    assert json.loads(ended.out)["last"]["result"] == "[redacted] [redacted]"


@pytest.mark.parametrize("how", [(), ("--detach",)], ids=["here", "in the background"])
async def test_a_secret_of_a_connection_is_kept_nowhere_whoever_prints_it(desk: Any, how: tuple[str, ...]) -> None:
    """Also not as a part of the file: nobody has marked it there."""
    secrets = ("marble-feather-station", "walnut-saddle-horizon", "juniper-compass-velvet", "cinnamon-bicycle-tower")
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"[connections.one]\ncommand = 'server'\nargs = ['--token', '{secrets[2]}']\n"
        f"env = {{ A_TOKEN = '{secrets[0]}', B_TOKEN = '${{GIVEN}}', REGION = 'eu-central-1' }}\n"
        f"[connections.two]\ntype = 'http'\nurl = 'http://127.0.0.1:9'\n"
        f"headers = {{ Authorization = 'Bearer {secrets[3]}' }}\n"
    )
    name = write(desk, shell(f"echo {' '.join(secrets)} eu-central-1 | tee seen.txt"))
    done = await desk.leadrope("flow", "run", name, *how, GIVEN=secrets[1])
    assert done.code == 0, done.err
    await desk.leadrope("flow", "logs", "-f", GIVEN=secrets[1])
    listed = await desk.leadrope("flow", "history", "-o", "json", GIVEN=secrets[1])
    execution_id = json.loads(listed.out.splitlines()[0])["execution"]["id"]
    report = await desk.leadrope("flow", "report", execution_id, GIVEN=secrets[1])
    assert "eu-central-1" in report.out, "a plain value of a connection is an ordinary word"
    assert (desk.project / "seen.txt").read_text().split() == [*secrets, "eu-central-1"], "the command had them"
    everything = kept(desk) + (done.err + report.out + report.err).encode()
    assert [secret for secret in secrets if secret.encode() in everything] == []


async def test_a_secret_cannot_stand_where_it_would_be_shown(desk: Any) -> None:
    for text, told in (
        (shell("echo ${secret.A}"), "cannot be used in 'command'"),
        ("### it\n\n- type: note\n- text: ${secret.A}\n", "cannot be used in 'text'"),
        ("### it\n\n- type: http\n- url: https://example.com/${secret}\n", "names no secret"),
        ("### it\n\n- type: llm\n- prompt: ${secret.A}\n", "cannot be used in 'prompt'"),
    ):
        ended = await desk.leadrope("flow", "check", write(desk, text))
        assert (ended.code, told in ended.out + ended.err) == (2, True), ended.out + ended.err


async def test_an_input_that_is_called_secret_keeps_its_name(desk: Any) -> None:
    text = shell("echo ${secret.a}", inputs="### secret\n\n- type: object\n")
    ended = await desk.leadrope("flow", "run", write(desk, text), 'secret={"a": "mine"}', "-q")
    assert (ended.code, ended.out) == (0, "mine\n"), ended.err


ELSEWHERE = """# T

## Inputs

### dir

- default: none

## Steps

### it

- type: agent
- prompt: go
- mode: full
"""


@pytest.mark.parametrize("asks", ["- cwd: {site}", "- extra_dirs: [~/site]", "- cwd: way"])
async def test_an_agent_of_a_file_works_elsewhere_only_where_the_user_has_allowed_it(
    desk: Any, playing: Any, asks: str
) -> None:
    site = desk.home / "site"
    site.mkdir()
    (desk.project / "way").symlink_to(site)
    (desk.project / "t.flow.md").write_text(ELSEWHERE + asks.format(site=site) + "\n")
    turns = ({"tool": {"name": "Write", "input": {"file_path": f"{site}/new", "content": "x"}}}, {"text": "done"})
    refused = await desk.leadrope("flow", "run", "t.flow.md")
    assert (refused.code, str(site) in refused.err, f"--add-dir {site}" in refused.err) == (2, True, True), refused.err
    for words in ((), ("--add-dir", str(site))):
        async with playing(*turns) as model:
            if not words:
                trusted = await desk.leadrope("trust", "t.flow.md", "--yes")
                assert (trusted.code, str(site) in trusted.out + trusted.err) == (0, True), trusted.err
            ended = await desk.leadrope("flow", "run", "t.flow.md", *words, "--base-url", model.url)
        assert (ended.code, (site / "new").read_text()) == (0, "x"), ended.err
        (site / "new").unlink()
        await desk.leadrope("trust", "t.flow.md", "--forget")


@pytest.mark.parametrize("asks", ["- cwd: ${dir}", "- extra_dirs: ['${dir}']"])
async def test_a_template_leads_an_agent_to_no_folder_that_was_not_given(desk: Any, playing: Any, asks: str) -> None:
    site = desk.home / "site"
    site.mkdir()
    (desk.project / "t.flow.md").write_text(ELSEWHERE + asks + "\n")
    turns = ({"tool": {"name": "Write", "input": {"file_path": f"{site}/new", "content": "x"}}}, {"text": "done"})
    async with playing(*turns, strict=False) as model:
        words = ("flow", "run", "t.flow.md", f"dir={site}", "--base-url", model.url)
        refused = await desk.leadrope(*words)
        assert (refused.code, f"--add-dir {site}" in refused.err) == (1, True), refused.err
        assert list(site.iterdir()) == []
        ended = await desk.leadrope(*words, "--add-dir", str(site))
    assert (ended.code, (site / "new").read_text()) == (0, "x"), ended.err
