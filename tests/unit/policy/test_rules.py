"""What each rule finds in a call, each one alone in a run that would allow everything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, Verdict, decide
from leadrope.policy.files import defaults, examples
from leadrope.policy.resolve import Layer, of_rules, resolve, rules_of

HOME = "/home/me"


def judged(rules: dict[str, Any], name: str, facts: Facts | None = None, **input_: Any) -> Verdict:
    policy = Policy(mode="full", workspace=("/ws", "/extra"), rules=resolve([Layer("test", rules_of(rules))]))
    call = ToolCall(id="t", name=name, input=input_)
    return decide(policy, call, facts or Facts(home=HOME), resolve=os.path.normpath)


def table(rule: str, *rows: tuple[Any, str, dict[str, Any], str]) -> list[Any]:
    outer, _, inner = rule.rpartition(".")
    found = []
    for value, name, input_, expected in rows:
        rules = {outer: {inner: value}} if outer else {rule: value}
        found.append(pytest.param(rule, rules, name, input_, expected, id=f"{rule}-{value}-{name}-{input_}"[:110]))
    return found


def cmd(command: str) -> dict[str, Any]:
    return {"command": command}


def file(path: str, **more: Any) -> dict[str, Any]:
    return {"file_path": path, **more}


@pytest.mark.parametrize(
    ("rule", "rules", "name", "input_", "expected"),
    [
        *table(
            "max_file_size",
            (10, "Write", file("/ws/a", content="x" * 10), "allow"),
            (10, "Write", file("/ws/a", content="x" * 11), "deny"),
            (10, "Write", file("/ws/a", content="é" * 6), "deny"),
            (10, "Edit", file("/ws/a", old_string="x" * 50, new_string="x"), "allow"),
            (10, "Edit", file("/ws/a", new_string="x" * 11), "deny"),
            (10, "MultiEdit", file("/ws/a", edits=[{"new_string": "x" * 6}, {"new_string": "x" * 6}]), "deny"),
            (10, "NotebookEdit", {"notebook_path": "/ws/a.ipynb", "new_source": "x" * 11}, "deny"),
            (10, "Read", file("/ws/a", content="x" * 99), "allow"),
        ),
        *table(
            "blocked_paths",
            (["secrets/"], "Read", file("/ws/secrets/key"), "deny"),
            (["secrets/"], "Read", file("/ws/a/secrets/key"), "deny"),
            (["secrets/"], "Write", file("secrets/new"), "deny"),
            (["secrets/"], "Grep", {"path": "/ws/secrets"}, "deny"),
            (["secrets/"], "Grep", {"pattern": "x", "glob": "secrets/*"}, "deny"),
            (["/srv/secrets/"], "Grep", {"pattern": "secrets/", "glob": "*.py"}, "allow"),
            (["secrets/"], "Glob", {"pattern": "a/secrets/**"}, "deny"),
            (["a/secrets/"], "Glob", {"pattern": "secrets/**", "path": "/ws/a"}, "deny"),
            (["*.pem"], "Glob", {"pattern": "**/*.pem"}, "deny"),
            (["config/prod/"], "Glob", {"pattern": "src/**"}, "allow"),
            (["secrets/"], "Read", file("/ws/secret/key"), "allow"),
            (["secrets/"], "Bash", cmd("cat secrets/key"), "deny"),
            (["secrets/"], "Bash", cmd("cd secrets && cat key"), "deny"),
            (["secrets/"], "Bash", cmd("tool --file=secrets/key"), "deny"),
            (["secrets/"], "Bash", cmd("cat readme"), "allow"),
            (["~/.ssh/"], "Read", file(f"{HOME}/.ssh/id"), "deny"),
            (["~/.ssh/"], "Bash", cmd("cat ~/.ssh/id"), "deny"),
            (["*.pem"], "Read", file("/elsewhere/a.PEM"), "deny"),
        ),
        *table(
            "protected_paths",
            ([".git/"], "Write", file("/ws/.git/hooks/x"), "ask"),
            ([".git/"], "Read", file("/ws/.git/config"), "allow"),
            ([".git/"], "Bash", cmd("echo x > .git/config"), "ask"),
            ([".git/"], "Bash", cmd("cd .git && echo x > config"), "ask"),
            ([".git/"], "Bash", cmd("cp a .git/hooks/pre-commit"), "ask"),
            ([".git/"], "Bash", cmd("chmod +x .git/hooks/pre-commit"), "ask"),
            ([".git/"], "Bash", cmd("cat .git/config"), "allow"),
            ([".git/"], "Bash", cmd("echo x > $OUT"), "ask"),
            ([".git/"], "Bash", cmd("ls 2> /dev/null"), "allow"),
            ([".mcp.json"], "Edit", file("/ws/pkg/.mcp.json"), "ask"),
        ),
        *table(
            "workspace_only",
            (True, "Write", file("/ws/a"), "allow"),
            (True, "Write", file("/extra/a"), "allow"),
            (True, "Write", file("/etc/a"), "deny"),
            (True, "Write", file("/ws/../a"), "deny"),
            (True, "Write", {}, "deny"),
            (True, "Read", file("/etc/a"), "allow"),
            (True, "Bash", cmd("echo x > /etc/a"), "deny"),
            (True, "Bash", cmd("echo x > a 2> /dev/null"), "allow"),
            (True, "Bash", cmd("cd .. && echo x > a"), "deny"),
            (False, "Write", file("/etc/a"), "allow"),
        ),
        *table(
            "network.allowed_hosts",
            (["example.com"], "WebFetch", {"url": "https://example.com/a"}, "allow"),
            (["example.com"], "WebFetch", {"url": "https://www.example.com/a"}, "deny"),
            (["*.example.com"], "WebFetch", {"url": "https://www.example.com/a"}, "allow"),
            (["example.com"], "WebFetch", {"url": "http://example.com@evil.test"}, "deny"),
            (["example.com"], "WebFetch", {}, "deny"),
            (["example.com"], "WebSearch", {"query": "x"}, "deny"),
            (["example.com"], "WebSearch", {"query": "x", "allowed_domains": ["example.com"]}, "allow"),
            (["example.com"], "WebSearch", {"allowed_domains": ["example.com", "evil.test"]}, "deny"),
            ([], "WebFetch", {"url": "https://example.com"}, "deny"),
            (["example.com"], "Read", file("/ws/a"), "allow"),
        ),
        *table(
            "network.blocked_hosts",
            (["evil.test"], "WebFetch", {"url": "https://evil.test/"}, "deny"),
            (["evil.test"], "WebFetch", {"url": "https://a.evil.test/"}, "deny"),
            (["evil.test"], "WebFetch", {"url": "https://notevil.test/"}, "allow"),
            (["evil.test"], "WebFetch", {"url": "https://127.1/"}, "deny"),
            (["evil.test"], "WebSearch", {"query": "x", "allowed_domains": ["evil.test"]}, "deny"),
            (["evil.test"], "WebSearch", {"query": "x"}, "allow"),
        ),
        *table(
            "mcp.allowed_servers",
            (["github"], "mcp__github__get", {}, "allow"),
            (["github"], "mcp__githubx__get", {}, "deny"),
            ([], "mcp__github__get", {}, "deny"),
            ([], "Read", file("/ws/a"), "allow"),
        ),
        *table(
            "mcp.allowed_tools",
            (["mcp__github__get_*"], "mcp__github__get_issue", {}, "allow"),
            (["mcp__github__get_*"], "mcp__github__delete", {}, "deny"),
            (["mcp__github"], "mcp__github__delete", {}, "allow"),
        ),
        *table(
            "allowed_tools",
            (["Read"], "Read", file("/ws/a"), "allow"),
            (["Read"], "WebFetch", {"url": "https://example.com"}, "deny"),
            (["Bash(git *)"], "Bash", cmd("git log | cat"), "deny"),
            (["Bash(git *)", "Bash(cat)"], "Bash", cmd("git log | cat"), "allow"),
            (["Write(src/**)"], "Write", file("/ws/src/a"), "allow"),
            (["Write(src/**)"], "Write", file("/ws/a"), "deny"),
            ([], "Read", file("/ws/a"), "deny"),
        ),
        *table(
            "disallowed_tools",
            (["Bash"], "Bash", cmd("ls"), "deny"),
            (["Bash(git push *)"], "Bash", cmd("ls; git push -f"), "deny"),
            (["Bash(git push *)"], "Bash", cmd("git $X"), "ask"),
            (["Write(src/**)"], "Write", file("/ws/src/a"), "deny"),
            (["Write(src/**)"], "Write", file("/ws/a"), "allow"),
            (["mcp__github__delete_*"], "mcp__github__delete_repo", {}, "deny"),
        ),
        *table(
            "blocked_commands",
            (["rm"], "Bash", cmd("rm x"), "deny"),
            (["rm"], "Bash", cmd("npm test"), "allow"),
            (["rm"], "Bash", cmd("ls; /bin/rm x"), "deny"),
            (["rm"], "Bash", cmd("echo rm"), "allow"),
            (["rm"], "Bash", cmd("find . -exec rm {} +"), "deny"),
            (["git push"], "Bash", cmd("git  push --force"), "deny"),
            (["git push"], "Bash", cmd("git -C sub push"), "deny"),
            (["git push"], "Bash", cmd("git status"), "allow"),
            (["text:DROP TABLE"], "Bash", cmd("psql -c 'drop  table x'"), "deny"),
            (["text:DROP TABLE"], "Bash", cmd("echo drop the table"), "allow"),
            (["rm"], "Monitor", cmd("rm x"), "deny"),
            (["rm"], "Read", file("/ws/rm"), "allow"),
        ),
        *table(
            "destructive",
            ("deny", "Bash", cmd("rm -rf /"), "deny"),
            ("ask", "Bash", cmd("rm -fr //"), "ask"),
            ("deny", "Bash", cmd("rm -rf build"), "allow"),
            ("allow", "Bash", cmd("rm -rf /"), "allow"),
        ),
        *table(
            "require_approval",
            (["rm"], "Bash", cmd("rm x"), "ask"),
            (["rm", "Write(*.lock)"], "Write", file("/ws/a.lock"), "ask"),
            (["mcp__db"], "mcp__db__query", {}, "ask"),
            (["WebFetch(domain:example.com)"], "WebFetch", {"url": "https://example.com"}, "ask"),
            (["text:DROP TABLE"], "Bash", cmd("echo drop table"), "ask"),
            (True, "Read", file("/ws/a"), "ask"),
            (True, "TodoWrite", {}, "allow"),
            (False, "Bash", cmd("rm x"), "allow"),
        ),
    ],
)
def test_a_rule(rule: str, rules: dict[str, Any], name: str, input_: dict[str, Any], expected: str) -> None:
    found = judged(rules, name, **input_)
    assert found.word == expected, found
    if expected != "allow":
        assert (found.rule, found.layer) == (rule, "test")
        assert found.reason


@pytest.mark.parametrize(
    ("entry", "name", "input_"),
    [
        ("Bash", "Bash", cmd("make test")),
        ("Bash(make *)", "Bash", cmd("make test")),
        ("Write(src/**)", "Write", file("/ws/src/a")),
        ("mcp__github", "mcp__github__get", {}),
    ],
)
def test_a_list_of_allowed_tools_grants_nothing(entry: str, name: str, input_: dict[str, Any]) -> None:
    words = {}
    for mode in ("default", "dontAsk", "plan", "full"):
        policy = Policy(mode=mode, workspace=("/ws",), rules=of_rules(rules_of({"allowed_tools": [entry]})))
        words[mode] = decide(policy, ToolCall(id="t", name=name, input=input_), resolve=os.path.normpath).word
    assert words == {"default": "ask", "dontAsk": "deny", "plan": "deny", "full": "allow"}


@pytest.mark.parametrize(("used", "expected"), [(0, "allow"), (2, "allow"), (3, "deny"), (9, "deny")])
def test_the_number_of_tool_calls(used: int, expected: str) -> None:
    found = judged({"max_tool_calls": 3}, "Read", Facts(tool_calls=used), file_path="/ws/a")
    assert found.word == expected


def test_links_are_followed(tmp_path: Path) -> None:
    """A link inside the workspace that leads out of it is outside, and what it leads to keeps its own rules."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    secret = tmp_path / "secrets"
    secret.mkdir()
    (workspace / "out").symlink_to(secret)
    (workspace / "harmless").symlink_to(workspace / ".git")

    def write(rules: dict[str, Any], path: str) -> str:
        policy = Policy(mode="full", workspace=(str(workspace),), rules=of_rules(rules_of(rules)))
        return decide(policy, ToolCall(id="t", name="Write", input={"file_path": path})).word

    assert write({"workspace_only": True}, "out/a") == "deny"
    assert write({"workspace_only": True}, "a") == "allow"
    assert write({"blocked_paths": ["secrets/"]}, "out/a") == "deny"
    assert write({"protected_paths": [".git/"]}, "harmless/hooks/x") == "ask"


@pytest.mark.parametrize(
    ("rules", "suggested"),
    [
        ({"blocked_commands": ["Bash(rm *)"]}, "Write 'rm' here, or use disallowed_tools."),
        ({"blocked_commands": ["Bash"]}, "This list takes commands, or use disallowed_tools."),
        ({"blocked_commands": [""]}, ""),
        ({"require_approval": ["Bsh(rm *)"]}, "Did you mean Bash(rm *)?"),
        ({"mcp": {"allowed_servers": ["mcp__github__get"]}}, "Write 'github'."),
        ({"mcp": {"allowed_servers": ["git*"]}}, "Write it as in your connections."),
        ({"mcp": {"allowed_tools": ["get_issue"]}}, "Write mcp__SERVER__get_issue."),
        ({"network": {"allowed_hosts": ["https://example.com/a"]}}, "Write example.com."),
        ({"network": {"blocked_hosts": ["exa mple"]}}, "Write example.com, or *.example.com"),
        ({"blocked_paths": [""]}, "src/**"),
        ({"protected_paths": ["../x"]}, "Name the place from / or ~/ on."),
        ({"protected_paths": ["a//b/../c"]}, "Write a/c."),
        ({"blocked_commands": ["DROP TABLE users"]}, "Write text:DROP TABLE users"),
        ({"require_approval": ["DELETE FROM x"]}, "Write text:DELETE FROM x"),
    ],
)
def test_an_entry_that_cannot_match_is_refused(rules: dict[str, Any], suggested: str) -> None:
    with pytest.raises(errors.BadValue) as refused:
        rules_of(rules)
    assert suggested in (refused.value.hint or "")


@pytest.mark.parametrize("example", defaults.examples(), ids=lambda example: f"{example.call}-{example.expect}")
def test_the_shipped_policy_does_what_it_says(example: examples.Example) -> None:
    [outcome] = examples.run(of_rules(defaults.rules()), [example])
    assert outcome.holds, f"{outcome}\n{outcome.verdict.reading}"


GUARDED = """
    rm x; rmdir x; shred x; unlink x; git push; git push -f; sudo ls; doas ls; su; pkexec ls; fdisk -l; reboot
    shutdown now; npm publish; npm run deploy; npm run release; pnpm publish; pnpm deploy; yarn publish
    yarn npm publish; yarn deploy; bun publish; twine upload dist/a; poetry publish; uv publish; hatch publish
    flit publish; cargo publish; cargo yank; gem push a.gem; mvn deploy; gradle publish; ./gradlew publish
    dotnet nuget push a; vsce publish; gh release create v1; npx semantic-release; gh pr merge 1; docker rm x
    docker rmi x; docker push x; docker system prune; docker volume rm x; docker container rm x
    docker compose down; docker compose rm; docker-compose down; podman rm x; kubectl apply -f x
    kubectl delete pod x; helm upgrade a b; helm uninstall a; terraform apply; terraform destroy; tofu apply
    pulumi up; cdk deploy; sam deploy; serverless deploy; ansible-playbook a.yml; vercel; netlify deploy
    firebase deploy; make deploy; wrangler deploy; fly deploy; flyctl deploy; gcloud app deploy
    gcloud run deploy x; heroku restart; make release
"""
GUARDED_PATHS = """
    .git/config .claude/settings.json .mcp.json leadrope.toml .github/workflows/a.yml .github/actions/a/action.yml
    .gitlab-ci.yml .circleci/config.yml .travis.yml Jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml
    .buildkite/pipeline.yml .drone.yml .woodpecker.yml .woodpecker/a.yml appveyor.yml
    ~/.config/leadrope/config.toml ~/.local/share/leadrope/leadrope.db ~/.local/share/leadrope/sessions/a
    .husky/pre-commit .githooks/pre-push lefthook.yml .pre-commit-config.yaml .gitconfig .gitmodules .vscode/tasks.json
    .devcontainer/devcontainer.json .envrc packages/a/.envrc lib/site.pth .cursor/mcp.json
"""


@pytest.mark.parametrize("command", [each.strip() for each in GUARDED.replace("\n", ";").split(";") if each.strip()])
def test_the_shipped_policy_asks_by_name_for(command: str) -> None:
    """By a rule of its own: a program that is not known would be asked for too, until the day it is known."""
    policy = Policy(mode="full", workspace=("/ws",), rules=of_rules(defaults.rules(), is_checked=True))
    found = decide(
        policy, ToolCall(id="t", name="Bash", input=cmd(command)), Facts(home=HOME), resolve=os.path.normpath
    )
    assert (found.word, found.rule) == ("ask", "require_approval")


@pytest.mark.parametrize("path", GUARDED_PATHS.split())
@pytest.mark.parametrize("how", ["Write", "Edit", "echo x > {}", "touch {}", "cp a {}", "git checkout HEAD~1 -- {}"])
def test_the_shipped_policy_asks_before_it_is_written(path: str, how: str) -> None:
    policy = Policy(mode="full", workspace=("/ws",), rules=of_rules(defaults.rules(), is_checked=True))
    call = ("Bash", cmd(how.format(path))) if "{}" in how else (how, file(path.replace("~", HOME)))
    found = decide(policy, ToolCall(id="t", name=call[0], input=call[1]), Facts(home=HOME), resolve=os.path.normpath)
    assert (found.word, found.rule) == ("ask", "protected_paths")


@pytest.mark.parametrize("command", ["git checkout main", "git checkout -b fix/a", "git restore .", "git mv a b"])
def test_git_changes_other_files_freely(command: str) -> None:
    policy = Policy(mode="full", workspace=("/ws",), rules=of_rules(defaults.rules(), is_checked=True))
    call = ToolCall(id="t", name="Bash", input=cmd(command))
    assert decide(policy, call, Facts(home=HOME), resolve=os.path.normpath).word == "allow"
