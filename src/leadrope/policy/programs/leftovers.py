"""What a program may leave in files that a later program of the same line would run.

The tables list what leaves nothing, not what writes. A program of the project (`npm ci`, `pytest`, `./build.sh`) leaves
what the project's own files say, unless the line gives it a text to write: a word that is more than a plain name, or
its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from leadrope.policy.programs.effects import Role
from leadrope.policy.programs.git_commands import verb_at
from leadrope.policy.shell.words import Word, names
from leadrope.regex import regex

Leftovers = Literal["nothing", "names", "git", "project", "anything"]
"""nothing: no file at all; names: empty files or folders, whose names the line chooses; git: content below .git;
project: what the project's files say; anything: files that may contain text from this line."""

# Among the programs that otherwise only read or print, those that create, remove or rename something without content.
_NAMES = names("mkdir touch mktemp mkfifo truncate")
_GIT_NOTHING = names(
    """status diff log show rev-parse ls-files blame describe shortlog cherry name-rev cat-file ls-tree ls-remote grep
    count-objects fsck show-ref for-each-ref merge-base rev-list diff-tree diff-index diff-files show-branch
    whatchanged version help check-ignore range-diff var push"""
)
_GIT_PROJECT = names(
    "add rm fetch pull checkout switch restore reset merge rebase stash branch cherry-pick revert clean bisect gc tag"
)
_PLAIN = regex(r"[\w./@,:=%+~^\[\]-]*\Z")
_ADDRESS = regex(r"[:/\\]|\.\.")
_ASKS = names("--version --help -V -h version help")


def leftovers(role: Role, words: Sequence[Word], *, fed: bool) -> Leftovers:
    """Returns what a program with these words may leave, apart from files that its words name."""
    texts = [word.text for word in words[1:]]
    if role in ("inert", "builtin", "wrapper"):
        return "names" if (words[0].text or "").rpartition("/")[2] in _NAMES else "nothing"
    if role == "writer":
        return "names"
    if texts and all(text in _ASKS for text in texts):
        return "nothing"
    if role == "git":
        return _git(words)
    if fed or not all(text is not None and _PLAIN.match(text) for text in texts):
        return "anything"
    return "anything" if role == "unknown" and texts else "project"


def _git(words: Sequence[Word]) -> Leftovers:
    at = verb_at(words[1:]) + 1
    verb = words[at].text if at < len(words) else "status"
    rest = [word.text for word in words[at + 1 :]]
    if verb in _GIT_NOTHING:
        return "nothing"
    if verb == "commit":
        return "git"
    if verb not in _GIT_PROJECT or not all(text is not None and _PLAIN.match(text) for text in rest):
        return "anything"
    # What comes from elsewhere than the project's own remote is not yet a file of the project.
    if verb in ("fetch", "pull") and any(_ADDRESS.search(text) for text in rest if text and text[:1] != "-"):
        return "anything"
    return "project"
