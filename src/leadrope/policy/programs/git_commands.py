"""git: which of its commands and options are harmless, which write a file, and which start another program."""

from __future__ import annotations

import re

from leadrope.policy.programs.effects import (
    Grammar,
    ProgramEffect,
    Words,
    options_used,
    other_options,
    parse,
    unknown_options,
)
from leadrope.policy.shell.words import UNKNOWN, Word, names
from leadrope.regex import regex

_PLAIN = names(
    """status diff log show add commit branch checkout switch restore reset merge tag stash fetch pull push clone
    remote rev-parse ls-files blame describe shortlog reflog cherry-pick revert init mv rm clean worktree
    cherry name-rev cat-file ls-tree ls-remote grep format-patch notes count-objects gc fsck show-ref
    symbolic-ref for-each-ref merge-base rev-list diff-tree diff-index diff-files show-branch whatchanged
    version help check-ignore hash-object update-index range-diff rebase config apply am bisect submodule
    var sparse-checkout archive"""
)
GLOBAL = Grammar(
    "pP",
    "C",
    ("--no-pager", "--paginate", "--bare", "--no-optional-locks", "--literal-pathspecs", "--version", "--help"),
    ("--git-dir", "--work-tree"),
)
# These start a program, or take one from a folder. git accepts abbreviations of long options.
_STARTS = {
    "": ("--exec", "--upload-pack", "--receive-pack", "--template", "--config", "--ext-diff", "--textconv"),
    "grep": ("--open-files-in-pager",),
    "rebase": ("--interactive", "--strategy"),
    "merge": ("--strategy",),
    "pull": ("--strategy",),
    "cherry-pick": ("--strategy",),
    "revert": ("--strategy",),
    "archive": ("--remote", "--format"),
}
_START_LETTERS = {"clone": "uc", "rebase": "xis", "grep": "O", "merge": "s", "pull": "s", "ls-remote": "u"}
_WRITES = ("--output", "--output-directory", "--separate-git-dir")
_WRITE_LETTERS = {"archive": "o", "format-patch": "o"}
# An unlisted option makes the command unknown: git has over a thousand options, and gets new ones.
_OPTIONS = names(
    """--abbrev --abbrev-commit --abbrev-ref --abort --absolute-git-dir --after --ahead-behind --all --all-match
    --allow-empty --allow-empty-message --allow-unrelated-histories --always --amend --ancestry-path --anchored
    --and --annotate --author --author-date-order --autosquash --autostash --bare --basic-regexp --batch
    --batch-check --before --binary --branch --branches --broken --cached --candidates --cc --check --cherry-mark
    --cherry-pick --chmod --cleanup --color --color-words --column --committer --compact-summary --contains
    --continue --count --create --date --date-order --debug --decorate --delete --deleted --depth --dereference
    --detach --detect-dotfiles --diff-algorithm --diff-filter --directory --dirstat --dirty --discard-changes
    --dry-run --edit --email --eol --error-unmatch --exact-match --exclude --exclude-standard --exit-code --expire
    --extended-regexp --false --ff --ff-only --file --files-with-matches --files-without-match --filter --find
    --first-parent --fixed-strings --fixup --follow --force --force-if-includes --force-with-lease --format
    --full-index --full-name --full-tree --function-context --get --get-all --get-regexp --git-common-dir --git-dir
    --global --graph --grep --group --guess --hard --heads --help --histogram --ignore-all-space
    --ignore-blank-lines --ignore-case --ignore-cr-at-eol --ignore-errors --ignore-missing --ignore-removal
    --ignore-space-at-eol --ignore-space-change --ignore-submodules --ignored --include-untracked --indent-heuristic
    --index --initial-branch --intent-to-add --invert-grep --invert-match --is-ancestor --is-bare-repository
    --is-inside-git-dir --is-inside-work-tree --is-shallow-repository --jobs --keep --keep-index --killed
    --left-only --left-right --line-number --list --local --long --match --max-count --max-depth --merge
    --merge-base --merged --merges --message --minimal --mirror --mixed --modified --move --name-only --name-status
    --no-abbrev --no-abbrev-commit --no-ahead-behind --no-all --no-color --no-column --no-commit --no-contains
    --no-decorate --no-edit --no-ext-diff --no-ff --no-gpg-sign --no-guess --no-index --no-merged --no-merges
    --no-pager --no-patch --no-rebase --no-recurse-submodules --no-renames --no-single-branch --no-stat --no-tags
    --no-textconv --no-track --no-verify --not --null --numbered --numstat --oneline --only --onto --or --orphan
    --others --ours --patch --patch-with-stat --pathspec-from-file --patience --perl-regexp --pickaxe-all
    --pickaxe-regex --points-at --porcelain --prefix --pretty --prune --prune-tags --quiet --quit --raw --rebase
    --recurse-submodules --recursive --reflog --refresh --refs --relative --remote --remotes --renames --renormalize
    --reset-author --reuse-message --reverse --right-only --root --set-upstream --set-upstream-to --shallow-since
    --short --shortstat --show-cdup --show-current --show-origin --show-prefix --show-pulls --show-stash
    --show-superproject-working-tree --show-toplevel --signoff --simplify-by-decoration --since --single-branch
    --size --skip --soft --sort --source --sparse --squash --stage --staged --stat --stat-width --status --submodule
    --summary --symbolic --symbolic-full-name --tags --text --theirs --threads --topo-order --track --tracked --tree
    --type --unified --unmerged --unset --unset-upstream --until --untracked --untracked-files --update
    --update-refs --verbose --verify --version --walk-reflogs --word-diff --word-diff-regex --word-regexp
    --work-tree --worktree"""
)
_SETTINGS = regex(
    r"(?:user\.(?:name|email)|color\.\w+|advice\.\w+|init\.defaultbranch|core\.(?:quotepath|autocrlf|longpaths)"
    r"|push\.default|pull\.(?:rebase|ff)|safe\.directory|log\.\w+|diff\.renames|gc\.auto|commit\.gpgsign)\Z",
    re.IGNORECASE,
)
_QUERIES = names("--get --get-all --list -l --get-regexp --show-origin --global --local --unset")
_ADDRESSED = names("clone fetch pull push ls-remote remote archive")


def git(words: Words) -> ProgramEffect:
    settings = []
    while len(words) > 1 and words[0].text == "-c":
        settings.append(words[1])
        words = words[2:]
    parsed = parse(words, GLOBAL)
    if parsed is None or any(not _is_plain_setting(setting) for setting in settings):
        return unknown_options("git")
    if not parsed.rest:
        return ProgramEffect(role="git")
    command, rest = parsed.rest[0], parsed.rest[1:]
    verb = command.text
    if verb is None or command.glob or command.splits:
        return ProgramEffect(role="git", opaque="git with a command that is not known")
    if verb not in _PLAIN:
        return ProgramEffect(
            role="git", unknown=f"git {verb} that is not known here (it may be an alias)", writes=(UNKNOWN,)
        )
    if verb == "config":
        return _config(rest)
    return _command(verb, rest)


def _command(verb: str, rest: Words) -> ProgramEffect:
    first = rest[0].text if rest else ""
    if (verb == "bisect" and first in ("run", "visualize", "view", None)) or (
        verb == "submodule" and first not in ("", "status", "init", "summary")
    ):
        return ProgramEffect(role="git", opaque=f"git {verb} {first or ''} starts programs")
    if verb in ("commit", "tag", "stash", "merge", "notes"):
        rest = _without_messages(rest)
    if options_used(rest, (*_STARTS[""], *_STARTS.get(verb, ())), _START_LETTERS.get(verb, "")):
        return unknown_options(f"git {verb}")
    if verb in _ADDRESSED and any("::" in (word.text or "") for word in rest):
        return ProgramEffect(role="git", opaque="git with an address that starts a helper")
    if options_used(rest, _WRITES, _WRITE_LETTERS.get(verb, "")):
        return ProgramEffect(role="git", writes=(UNKNOWN,))
    if any(not _is_plain_option(word) for word in rest):
        return other_options(f"git {verb}", "git")
    if verb == "clone":
        # What was fetched is not yet a file of the project: running it on the same line is like `curl | sh`.
        return ProgramEffect(role="git", writes=(Word(None, tail=".clone"),))
    return ProgramEffect(
        role="git", writes=(UNKNOWN,) if verb in ("apply", "am", "worktree") and first != "list" else ()
    )


def verb_at(words: Words) -> int:
    """Returns the position of git's command among the words after `git`; the number of words if there is none."""
    place = 0
    while place < len(words) and (text := words[place].text) is not None and text.startswith("-"):
        place += 2 if text in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") else 1
    return min(place, len(words))


def _without_messages(words: Words) -> tuple[Word, ...]:
    """Removes messages, which are often unknown (`-m "$(cat ...)"`) but never options."""
    kept: list[Word] = []
    skip = False
    for word in words:
        if not skip:
            kept.append(word)
        skip = not skip and not word.splits and word.text in ("-m", "-am", "--message", "-F", "--file", "--author")
    return tuple(kept)


def _is_plain_option(word: Word) -> bool:
    text = word.text if word.text is not None else word.lead
    return not text.startswith("--") or text == "--" or text.partition("=")[0] in _OPTIONS


def _is_plain_setting(word: Word) -> bool:
    return word.text is not None and _SETTINGS.match(word.text.partition("=")[0]) is not None


def _config(words: Words) -> ProgramEffect:
    texts = [word.text for word in words]
    operands = [text for text in texts if text is None or not text.startswith("-")]
    options = [text for text in texts if text is not None and text.startswith("-")]
    reads = any(text in ("--get", "--get-all", "--list", "-l", "--get-regexp") for text in options)
    plain = all(text in _QUERIES for text in options) and all(not (w.glob or w.splits) for w in words)
    setting = operands[0] if operands else None
    if plain and (reads or len(operands) <= 1 or (setting is not None and _SETTINGS.match(setting))):
        return ProgramEffect(role="git")
    return ProgramEffect(role="git", opaque="git config with a setting that may start programs")
