"""Tab completion of `--option=value` in bash, zsh and fish. click completes `--option value` alone.

Each shell takes such a word apart in its own way: bash splits it at the `=` (unless COMP_WORDBREAKS says otherwise),
zsh and fish keep it whole and expect the option in front of every value that is offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete, add_completion_class

from leadrope.regex import regex

_OPTION = regex(r"--[\w-]+=")


class Bash(BashComplete):
    _prefix = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        if found := _OPTION.match(incomplete):  # '=' is not among the COMP_WORDBREAKS
            self._prefix = found[0]
        return joined(args), incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return super().format_completion(_with_prefix(item, self._prefix))


class Zsh(ZshComplete):
    source_template = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a completions
    local -a completions_with_descriptions
    local -a response
    (( ! $+commands[%(prog_name)s] )) && return 1

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete %(prog_name)s)}")

    # What is offered for the value of --option=value takes the place of the value alone.
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='

    for type key descr in ${response}; do
        if [[ "$type" == "plain" ]]; then
            if [[ "$descr" == "_" ]]; then
                completions+=("$key")
            else
                completions_with_descriptions+=("$key":"$descr")
            fi
        elif [[ "$type" == "dir" ]]; then
            _path_files -/
        elif [[ "$type" == "file" ]]; then
            _path_files -f
        fi
    done

    if [ -n "$completions_with_descriptions" ]; then
        _describe -V unsorted completions_with_descriptions -U -i "$IPREFIX"
    fi

    if [ -n "$completions" ]; then
        compadd -U -i "$IPREFIX" -V unsorted -a completions
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    # autoload from fpath, call function directly
    %(complete_func)s "$@"
else
    # eval/source/. command, register function for later
    compdef %(complete_func)s %(prog_name)s
fi
"""


class Fish(FishComplete):
    source_template = """\
function %(complete_func)s;
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD=(commandline -t) %(prog_name)s);
    set -l option (string match -r -- '^--[^=]+=' (commandline -t));

    for completion in $response;
        set -l metadata (string split -m 1 "," -- $completion);

        if test "$metadata[1]" = "dir";
            for found in (__fish_complete_directories (string replace -- "$option" "" $metadata[2]));
                echo "$option"$found;
            end;
        else if test "$metadata[1]" = "file";
            for found in (__fish_complete_path (string replace -- "$option" "" $metadata[2]));
                echo "$option"$found;
            end;
        else if test "$metadata[1]" = "plain";
            echo "$option"$metadata[2];
        end;
    end;
end;

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)";
"""


def register() -> None:
    """From here on click uses these."""
    for kind in (Bash, Zsh, Fish):
        add_completion_class(kind)


def joined(words: Sequence[str]) -> list[str]:
    """The words of a command line as the program would get them, where bash has split some at their `=`.

    The last option is left without its `=`: its value is what is being completed.

    >>> joined(["run", "--mode", "=", "plan", "--tools", "="])
    ['run', '--mode=plan', '--tools']
    """
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and rest[:1] == ["="]:
            rest.pop(0)
            word = f"{word}={rest.pop(0)}" if rest else word
        found.append(word)
    return found


def _with_prefix(item: CompletionItem, prefix: str) -> CompletionItem:
    if not prefix or item.type != "plain":
        return item
    more: dict[str, Any] = {"help": item.help} if item.help else {}
    return CompletionItem(prefix + item.value, type=item.type, **more)
