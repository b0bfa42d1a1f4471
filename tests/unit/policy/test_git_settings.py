"""Which changes of git's settings are kept after a run: each line is one thing that an agent may have set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.policy import git_settings
from leadrope.policy.git_settings import Values

MINE: dict[str, Values] = {
    "core.bare": ("false",),
    "core.hookspath": (".husky",),
    "user.email": ("me@example.org",),
    "commit.gpgsign": ("true",),
    "remote.origin.url": ("git@example.org:me/it.git",),
    "remote.origin.fetch": ("+refs/heads/*:refs/remotes/origin/*",),
    "remote.local.url": ("/srv/git/it.git",),
    "branch.main.remote": ("origin",),
    "branch.main.merge": ("refs/heads/main",),
    "branch.main.description": ("what it is for",),
    "branch.odd.remote": ("origin",),
    "submodule.libs.url": ("https://example.org/libs.git",),
}

FORK: dict[str, Values] = {
    "remote.fork.url": ("https://example.org/fork.git",),
    "remote.fork.fetch": ("+refs/heads/*:refs/remotes/fork/*",),
}

KEPT: dict[str, dict[str, Values]] = {
    "an identity": {"user.name": ("Ä B",), "user.email": ("other@example.org",)},
    "a remote": FORK,
    "a remote over ssh": {"remote.x.url": ("ssh://git@example.org:2222/a/b.git",)},
    "a remote as scp names it": {"remote.x.url": ("git@example.org:a/b.git",), "remote.x.prune": ("true",)},
    "a remote with a token": {"remote.x.url": ("https://u:p%21x@example.org/a",)},
    "two addresses": {"remote.x.url": ("https://example.org/a", "https://example.net/a")},
    "an upstream": {"branch.topic/ü-1.remote": ("origin",), "branch.topic/ü-1.merge": ("refs/heads/topic/ü-1",)},
    "an upstream in a new remote": {**FORK, "branch.new.remote": ("fork",), "branch.new.merge": ("refs/heads/new",)},
    "a local upstream": {"branch.x.remote": (".",), "branch.x.merge": ("refs/heads/main",)},
    "another remote of mine": {"branch.main.remote": ("local",)},
    "one more branch to fetch": {"remote.origin.fetch": ("+refs/heads/a:refs/remotes/origin/a",)},
    "how to pull": {"pull.rebase": ("true",), "branch.main.rebase": ("merges",)},
    "advice": {"advice.detachedhead": ("false",)},
    "a sparse checkout": {"core.sparsecheckout": ("true",), "core.sparsecheckoutcone": ("TRUE",)},
    "a submodule": {"submodule.x/y.url": ("https://example.org/y",), "submodule.x/y.active": ("true",)},
}

GONE: dict[str, set[str]] = {
    "a remote": {"remote.local.url"},
    "a branch": {"branch.main.remote", "branch.main.merge", "branch.main.description"},
    "an upstream": {"branch.main.remote", "branch.main.merge"},
    "an identity": {"user.email"},
}

DROPPED: dict[str, dict[str, Values]] = {
    "a monitor": {"core.fsmonitor": ("/tmp/evil",)},
    "a monitor by a word": {"core.fsmonitor": ("true",)},
    "hooks": {"core.hookspath": ("evil",)},
    "a shell": {"core.sshcommand": ("evil",)},
    "an editor": {"core.editor": ("evil",), "sequence.editor": ("evil",)},
    "a pager": {"core.pager": ("evil",), "pager.log": ("evil",)},
    "an alias": {"alias.st": ("!evil",), "alias.st.command": ("!evil",)},
    "a filter": {"filter.x.clean": ("evil",), "filter.x.process": ("evil",)},
    "programs for differences": {"diff.external": ("evil",), "diff.x.textconv": ("evil",), "diff.x.command": ("evil",)},
    "programs for merges": {"merge.x.driver": ("evil",), "mergetool.x.cmd": ("evil",)},
    "a helper for passwords": {"credential.helper": ("!evil",), "credential.https://x.helper": ("!evil",)},
    "a program for signing": {"gpg.program": ("evil",), "gpg.ssh.program": ("evil",), "user.signingkey": ("x",)},
    "another file": {"include.path": ("evil",), "includeif.gitdir:/.path": ("evil",)},
    "programs of a remote": {"remote.origin.uploadpack": ("evil",), "remote.origin.receivepack": ("evil",)},
    "a helper of a remote": {"remote.origin.vcs": ("evil",), "remote.origin.proxy": ("http://x",)},
    "protocols": {"protocol.ext.allow": ("always",), "protocol.allow": ("always",)},
    "other addresses": {"url.ext::sh.insteadof": ("https://",), "url.https://evil/.pushinsteadof": ("git@",)},
    "a command for a submodule": {"submodule.x.update": ("!evil",)},
    "another tree": {"core.worktree": ("/",), "core.bare": ("true",)},
    "settings of a worktree": {"extensions.worktreeconfig": ("true",)},
    "no signing": {"commit.gpgsign": ("false",)},
    "another address of mine": {"remote.origin.url": ("https://evil.example/it.git",)},
    "one more address of mine": {"remote.origin.pushurl": ("https://evil.example/it.git",)},
    "another address of a submodule": {"submodule.libs.url": ("https://evil.example/libs.git",)},
    "where all is pushed": {"remote.pushdefault": ("fork",), **dict.fromkeys(FORK, ("/evil",))},
    "a name without a value": {"pull.rebase": (None,)},
    "a control character": {"user.name": ("a\x1b[31m",)},
    "a name as long as a book": {"user.name": ("a" * 5000,)},
    "no certificates": {"http.sslverify": ("false",), "http.proxy": ("http://evil",)},
    "an attributes file": {"core.attributesfile": ("x",), "core.excludesfile": ("x",)},
    "a template": {"commit.template": ("/etc/passwd",), "init.templatedir": ("x",)},
    "an upstream that is an address": {"branch.main.remote": ("ext::sh -c evil",)},
    "an upstream that is a path": {"branch.new.remote": ("evil.git",), "branch.new.merge": ("refs/heads/x",)},
    "an odd refspec": {"remote.origin.fetch": ("+refs/heads/*:refs/heads/*",)},
    "what nobody knows": {"new.thing": ("x",), "branch.main.runs": ("evil",)},
}

ADDRESSES = (
    *("ext::sh -c evil", "fd::17", "foo::https://x", "/tmp/evil.git", "./evil.git", "evil.git", "file:///tmp/evil.git"),
    *("ssh://-oProxyCommand=evil/x", "ssh://a@-oProxyCommand=evil/x", "-oProxyCommand=evil:x", "a@-o:x", "host:path"),
    *(
        "https://x/ --upload-pack=evil",
        "--upload-pack=evil",
        "https://x/\nurl = ext::sh",
        "ftp://x/y",
        "",
        "transport::x",
    ),
    *(
        "git@example.org:-x",
        "git@example.org:--upload-pack=x",
        "ssh://-x@example.org/a",
        "https://x:ext::y",
        "C:\\evil",
    ),
)


def verdicts(after: dict[str, Values]) -> dict[str, str]:
    return {change.name: change.kind for change in git_settings.judged(MINE, after)}


@pytest.mark.parametrize("what", KEPT)
def test_kept(what: str) -> None:
    assert verdicts(MINE | KEPT[what]) == dict.fromkeys(KEPT[what], "kept")


@pytest.mark.parametrize("what", GONE)
def test_what_may_go(what: str) -> None:
    after = {name: values for name, values in MINE.items() if name not in GONE[what]}
    assert verdicts(after) == dict.fromkeys(GONE[what], "kept")


@pytest.mark.parametrize("what", DROPPED)
def test_dropped(what: str) -> None:
    assert verdicts(MINE | DROPPED[what]) == dict.fromkeys(DROPPED[what], "dropped")


@pytest.mark.parametrize("name", ["core.bare", "core.hookspath", "commit.gpgsign", "remote.origin.url"])
def test_what_must_not_go(name: str) -> None:
    assert verdicts({other: values for other, values in MINE.items() if other != name}) == {name: "dropped"}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_starts_a_program_drops_the_remote_and_what_leads_there(address: str) -> None:
    new: dict[str, Values] = {
        "remote.x.url": (address,),
        "remote.x.fetch": ("+refs/heads/*:refs/remotes/x/*",),
        "branch.new.remote": ("x",),
        "branch.new.merge": ("refs/heads/new",),
    }
    assert verdicts(MINE | new) == dict.fromkeys(new, "dropped")
    assert verdicts(MINE | {"remote.x.url": ("https://example.org/a", address)}) == {"remote.x.url": "dropped"}
    assert verdicts(MINE | {"submodule.x.url": (address,)}) == {"submodule.x.url": "dropped"}


@pytest.mark.parametrize("name", ["a b", "../x", "a/../b", "-x", 'a"b', "a\nb", "", "x" * 300])
def test_odd_names_are_dropped(name: str) -> None:
    assert set(verdicts(MINE | {f"remote.{name}.url": ("https://example.org/a",)}).values()) == {"dropped"}
    assert set(verdicts(MINE | {f"branch.{name}.remote": ("origin",)}).values()) == {"dropped"}


def test_a_branch_that_set_out_for_one_of_my_remotes_is_not_sent_to_a_new_one() -> None:
    after = MINE | FORK | {"branch.main.remote": ("fork",), "branch.main.pushremote": ("fork",)}
    found = verdicts(after)
    assert found["branch.main.remote"] == "dropped"
    assert found["remote.fork.url"] == "kept"


def test_a_renamed_remote_and_a_renamed_branch_take_all_along() -> None:
    """`git remote rename origin up`, `git branch -m main trunk`; the address of a path is mine, so it may move."""
    after = {
        name.replace("remote.origin", "remote.up").replace("remote.local", "remote.far").replace("h.main", "h.trunk"): (
            ("up",) if values == ("origin",) else values
        )
        for name, values in MINE.items()
    }
    after["remote.up.fetch"] = ("+refs/heads/*:refs/remotes/up/*",)
    assert set(verdicts(after).values()) == {"kept"}


def test_of_a_flood_nothing_is_kept() -> None:
    flood: dict[str, Values] = {f"branch.b{i}.remote": ("origin",) for i in range(git_settings.MOST_CHANGES + 1)}
    assert set(verdicts(MINE | flood).values()) == {"dropped"}


_words = st.sampled_from(
    ["core", "remote", "branch", "submodule", "user", "url", "alias", "x", "fetch", "remote.x.url"]
)


@given(st.lists(st.tuples(_words, _words, _words, st.text(max_size=20)), max_size=6))
def test_only_listed_names_are_ever_kept(parts: list[tuple[str, str, str, str]]) -> None:
    after = MINE | {f"{a}.{b}.{c}": (value,) for a, b, c, value in parts}
    for name, kind in verdicts(after).items():
        section, _, rest = name.partition(".")
        assert kind == "dropped" or (section in ("remote", "branch", "submodule") and "." in rest)
