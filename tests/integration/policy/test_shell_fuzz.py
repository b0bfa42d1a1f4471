"""Generated command lines, read and then run in real bash: one judged clean never starts `evil` without naming it."""

from __future__ import annotations

import os
import posixpath
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from leadrope.policy.shell.reader import Reading, read

# Read at import: the fixtures remove LEADROPE_* before every test. By hand: a larger count and another seed.
COUNT = int(os.environ.get("LEADROPE_SHELL_FUZZ", "5000"))
SEED = int(os.environ.get("LEADROPE_SHELL_FUZZ_SEED", "20"))
DATA = Path(__file__).parents[2] / "data" / "commands"


def items(text: str) -> list[str]:
    """Items stand between bars, because almost every other character is part of some item."""
    return text.split("¦")


EVIL = items(
    r"""evil¦'evil'¦"evil"¦ev''il¦e"vi"l¦\evil¦e\vil¦$'evil'¦$'\x65vil'¦ev{il,}¦../bin/evil¦../bin/ev*¦$x¦"$x"¦${x}"""
    "¦$(echo evil)¦`echo evil`¦ev\\\nil¦~/../bin/evil¦e${n}vil¦ev$'il'"
)
PLAIN = items(r"""a¦-n¦b.txt¦'x y'¦"q"¦*¦$n¦"$n"¦a\ b¦~¦--¦{}¦1¦{a,b}¦-e¦x=1¦#c""")
HARMLESS = items("ls¦echo¦cat¦true¦printf¦test -n¦grep x¦head -1¦wc -l¦mkdir -p¦touch¦[ -n")
WRAPPERS = items(
    "env¦env A=1¦nohup¦timeout 2¦nice¦nice -n 1¦command¦exec¦time¦setsid -w¦xargs¦stdbuf -oL¦xargs -n1¦builtin¦eval"
    "¦find . -maxdepth 0 -exec¦bash -c¦sh -c¦env -S¦!¦X=1¦trap¦coproc¦timeout $n¦env -u¦command -v¦exec -a¦sudo¦busybox"
    "¦git -c¦awk¦sed¦cp ../bin/evil¦echo¦cat <<<¦read¦printf -v¦set --¦ln -s ../bin/evil¦source¦bash¦python3¦make"
    "¦test -v¦unset"
)
SEPARATORS = items(";¦&&¦||¦|¦&¦|&¦;;¦>¦<¦>>¦2>&1¦>&2¦<<<¦\n¦ ; ¦\\\n¦ \\\n ¦\t")
FRAMES = items(
    "if {0}; then {1}; fi¦while {0}; do {1}; break; done¦for i in a; do {0}; done¦for x in {2}; do $x; done¦( {0} )"
    '¦{{ {0}; }}¦f() {{ {0}; }}; f¦f() {{ {0}; }}; {1}¦case a in a) {0};; esac¦echo $({0})¦echo `{0}`¦echo "$({0})"'
    "¦x={2}; {0}¦cat <({0})¦echo ${{n:-$({0})}}¦cat <<E\n{0}\nE¦cat <<E\n$({0})\nE¦cat <<'E'\n{0}\nE¦bash <<E\n{0}\nE"
    "¦cat <<E | {1}\n{0}\nE¦[[ a == {2} ]] && {0}¦[[ -n {2} ]]¦(( {2} ))¦echo $(( {2} ))¦echo {0} > {2}¦echo '{0}'"
    '¦echo "{0}"¦echo {0} # {1}¦# {0}\n{1}¦{0} &¦! {0}¦x=$({0})¦a=({2})¦echo evil > s; {0}¦echo evil | {0}'
    "¦bash -c '{0}'¦bash -c \"{0}\"¦sh -c '{0}'¦eval '{0}'¦{0} < {2}¦cat <<-E\n\t{0}\n\tE\n{1}¦cat <<E; {1}\n{0}\nE\n"
    "¦echo ${{x#{2}}}¦echo ${{x/{2}/a}}¦echo \"${{x:-{2}}}\"¦trap '{0}' EXIT¦declare y={2}¦export y={2}"
    "¦until {0}; do break; done¦select i in a; do {0}; break; done <<< 1¦echo \"a\\\"; {0}\"¦echo 'a'\\''; {0}'"
    "¦echo $'a\\'; {0}'¦echo \\'; {0}; echo \\'¦time {{ {0}; }}"
)
MARKS = [*"'\"\\`$(){};&|<>#\n \t!*?[]~=,E", *items("$(¦))¦((¦<<¦evil¦$'¦${¦[[¦]]¦<(¦>&¦\nE\n¦\\\n")]


def corpus() -> list[str]:
    """The short commands of both tables, as ground to change a little."""
    found = []
    for name in ("evil.yaml", "everyday.yaml"):
        for kind, cases in yaml.safe_load((DATA / name).read_text()).items():
            # Left out: what is slow to start, and what reaches for the machine around it.
            if kind not in ("volume", "tar/ssh/make/npm options", "git options", "tests and builds", "git", "machine"):
                found += [case if isinstance(case, str) else case["run"] for case in cases]
    return found


def word(dice: random.Random) -> str:
    return dice.choice(EVIL) if dice.random() < 0.35 else dice.choice(PLAIN)


def line(dice: random.Random, depth: int) -> str:
    roll = dice.random()
    if depth <= 0 or roll < 0.2:
        head = dice.choice(EVIL) if dice.random() < 0.3 else dice.choice(HARMLESS)
        return " ".join([head, *(word(dice) for _ in range(dice.randrange(3)))])
    if roll < 0.45:
        return f"{dice.choice(WRAPPERS)} {line(dice, depth - 1)}"
    if roll < 0.65:
        return f"{line(dice, depth - 1)}{dice.choice(SEPARATORS)}{line(dice, depth - 1)}"
    return dice.choice(FRAMES).format(line(dice, depth - 1), line(dice, depth - 1), word(dice))


def mutated(dice: random.Random, text: str) -> str:
    for _ in range(dice.randrange(1, 4)):
        place = dice.randrange(len(text) + 1)
        roll = dice.random()
        if roll < 0.6:
            text = text[:place] + dice.choice(MARKS) + text[place:]
        elif roll < 0.8:
            text = text[:place] + text[place + 1 :]
        else:
            first, last = sorted((place, dice.randrange(len(text) + 1)))
            text = text[:last] + text[first : first + 6] + text[last:]
    return text


def cases(seed: int, count: int) -> list[str]:
    dice = random.Random(seed)
    ground = corpus()
    made = []
    for _ in range(count):
        roll = dice.random()
        text = dice.choice(ground) if roll < 0.25 else line(dice, dice.randrange(1, 4))
        if roll < 0.12:
            text = f"{text}{dice.choice(SEPARATORS)}{line(dice, 1)}"
        made.append(mutated(dice, text) if roll < 0.65 else text)
    return made


def names_evil(reading: Reading) -> bool:
    return any(posixpath.basename(program.words[0] or "") == "evil" for program in reading.programs)


def test_a_command_judged_clean_never_starts_a_program_that_it_does_not_name(
    started_evil: Callable[[Sequence[str]], list[bool]],
) -> None:
    """Only what is judged clean and names no `evil` has to be run: the rest promises nothing."""
    promised = [text for text in cases(SEED, COUNT) if (reading := read(text)).is_clean and not names_evil(reading)]
    assert sum("evil" in text for text in promised) > COUNT / 50, "the generator asks nothing of the reader"
    wrong = [text for text, started in zip(promised, started_evil(promised), strict=True) if started]
    assert wrong == []
