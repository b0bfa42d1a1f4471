"""Generated lines of the classes that once deceived the reader, run in real bash: one judged clean never starts `evil`.

Each class pairs ways to bring in a text with ways to have it run, and harmless ones with both, so that a part of the
lines is clean and every pair is tried in many frames.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Sequence

import pytest

from leadrope.policy.shell.reader import Reading, read

SEEDS = (31337, 4711, 20261116)
FULL_COUNT = 20_000
# Each call of the box ends after 170 s.
BATCH = 1_000
Dice = random.Random


def items(text: str) -> list[str]:
    """Items stand between bars, because almost every other character is part of some item."""
    return text.split("¦")


PAYLOADS = items("a[$(evil)]¦a[`evil`]¦x[$(evil)]¦1¦7¦b")
NAMES = items("x¦y¦i¦REPLY¦MAPFILE¦BASH_REMATCH¦_¦COPROC¦OPTARG¦RANDOM¦SECONDS¦PPID¦IFS¦DIRSTACK¦1¦n")
GIVERS = items(
    "read <<< '{p}'¦read {n} <<< '{p}'¦mapfile -t <<< '{p}'¦mapfile -t {n} <<< '{p}'¦[[ '{p}' =~ .* ]]¦: '{p}'"
    "¦{n}='{p}'¦{n}=1¦{n}=7; y=2¦printf -v {n} '{p}'¦set -- '{p}'¦declare {n}='{p}'¦export {n}='{p}'"
    "¦{n}=1; {n}+='{p}'¦{n}+=1¦: ${{{n}:='{p}'}}¦{n}=('{p}')¦{n}[0]='{p}'¦echo '{p}' | read {n}"
    "¦IFS= read -r {n} <<< '{p}'¦echo '{p}'¦true¦(({n}=3))¦echo $(({n}=3))¦read -a {n} <<< '{p}'"
    "¦readarray -t {n} <<< '{p}'¦{n}=$((2+3))¦unset {n}¦for {n} in '{p}'; do :; done¦for {n} in 1 2; do :; done"
    "¦for {n} in {{1..3}}; do :; done¦local {n}='{p}'¦getopts a: {n} -a '{p}'¦{n}='{p}' true"
    "¦select {n} in a; do break; done <<< '{p}'¦coproc {{ :; }}¦readonly {n}='{p}'"
)
TAKERS = items(
    "(({n}))¦echo $(({n}))¦echo ${{E:{n}}}¦echo ${{E:0:{n}}}¦echo ${{E:{n}:1}}¦a[{n}]=1¦echo ${{a[{n}]}}"
    "¦[[ {n} -eq 1 ]]¦[ {n} -eq 1 ]¦for (({n}={n};0;)); do :; done¦echo ${{#a[{n}]}}¦((y={n}+1))¦((y+={n}))"
    "¦test -v {n}¦echo $[{n}]¦let {n}¦printf %d {n}¦echo ${{@:{n}}}¦echo $(( {n} > 1 ? 2 : 3 ))¦echo $((1+1))"
    '¦echo ${{E:0:2}}¦(( {n}++ ))¦echo $(( ${n} ))¦echo ${{E: -{n}}}¦[[ -v {n} ]]¦echo ${n}¦echo "${n}"'
    "¦echo ${{{n}@P}}¦echo ${{!{n}}}¦(( 1 ))¦while (({n}<0)); do break; done¦echo ${{{n}:1}}¦echo ${{{n}:-{n}}}"
    "¦shift {n}¦return {n}¦ls¦echo $((x+y))¦(({n}=={n}))¦cat <<E\n$(({n}))\nE\n¦cat <<E\n$((1+1)) ${{E:{n}}}\nE\n"
    "¦cat <<E\n$((1+1))\nE\n¦a=([{n}]=1)¦declare -i z={n}¦unset 'a[{n}]'¦read 'a[{n}]' <<< 1¦mapfile -O {n} b < a"
)
FEEDERS = items(
    "exec <<< 'evil'¦exec <<< '!evil'¦echo evil > f; exec < f¦exec < <(echo evil)¦exec 3<<< evil; exec <&3"
    "¦exec < /dev/null¦exec 2>/dev/null¦true¦exec <<E\nevil\nE\n¦command exec <<< evil¦exec 0<<< '.shell evil'"
    "¦exec <<< 'exec evil'¦ls"
)
FED = items(
    "bash¦sh¦ed¦sqlite3¦tclsh¦cat¦python3¦head -1¦wc -l¦xargs -I% %¦xargs¦while read l; do $l; done¦read l; echo $l"
    "¦dash¦m4¦at now¦make -f -¦awk '{print}'¦sed -n p¦sort¦bash -s¦env bash¦perl¦ls¦cat | sh¦grep -c v¦batch"
    "¦sh -c cat¦nl¦tac"
)
FIND_COMMANDS = items(
    "tar cf /dev/null a¦echo¦sh -c evil¦env¦evil¦grep -q x¦cat¦xargs evil¦true¦env echo¦timeout 1¦sh -c¦nice¦wc -l"
    "¦bash -c¦sort¦find . -exec¦ls"
)
FIND_WORDS = items(
    "{}¦+¦evil¦--checkpoint=1 --checkpoint-action=exec=evil¦a¦{} + -exec evil¦\\; -exec evil¦-o¦x{}¦'+'¦+ {}¦{} {}"
    "¦-name x¦--checkpoint=1¦--checkpoint-action=exec=evil¦\\; -print¦{} + -print¦+ evil"
)
AWK_PARTS = items(
    'system("evil")¦"evil"|getline x¦print "x" | "evil"¦1¦1.5¦0xa¦"a"¦"a\\"b"¦/x/¦/[/]/¦/"/¦ / ¦$1¦x¦x++¦=¦;¦\n'
    '¦print¦ # ¦{¦}¦(¦)¦,¦getline¦>¦>>¦"f"¦|¦||¦@f()¦length¦ in ¦return ¦~¦!¦printf "%s", x¦f="system"¦close(x)'
    "¦\\\\¦'\\''¦ ¦ ¦system(\"evil\")¦print $1¦NR>1¦x=1"
)
AWK_FRAMES = items(
    "BEGIN{{{0}}}¦BEGIN{{x={0}}}¦BEGIN{{print {0}}}¦{{{0}}}¦{0}¦BEGIN{{x=1;{0}}}¦BEGIN{{if(1){0}}}¦{0}{{print}}"
)
NAMED_FILES = items(
    "CC=evil;¦SHELL=../bin/evil¦of=mk¦-o¦--eval=$(shell evil)¦--checkpoint=1¦MAKEFLAGS=x¦x.c¦a.txt¦Makefile"
)
PATTERNS = items("*¦C*¦S*¦o*¦?C*¦-*¦x*¦*.c¦[A-Z]*¦{{C,x}}*¦./*¦--e*¦C?=*¦a.txt")
PATTERN_USERS = items(
    "make {0}¦make x {0}¦make -n {0}¦dd if=a {0}¦env {0}¦ls {0}¦cat {0}¦tar cf /dev/null {0}¦echo {0}¦sort {0}"
    "¦python3 {0}¦xargs make {0}¦git log {0}¦wc -l {0}¦find {0}¦awk 1 {0}¦export {0}¦declare {0}¦grep x {0}"
    "¦bash {0}¦cp {0} d"
)
FILES = items("x1¦Makefile¦test_x.txt¦x.py¦f.md¦.git/hooks/post-commit¦a.log¦d/x1¦x.sh¦.git/config")
WRITERS = items(
    "echo evil > {f}¦printf 'all:\\n\\tevil\\n' > {f}¦/usr/bin/time -f evil -o {f} true"
    "¦python3 -m json.tool - {f} <<< '\"$(evil)\"'¦tar cf {f} $'evil\\n#'¦echo evil | tee {f}¦cp ../bin/evil {f}"
    "¦ln -s ../../bin/evil {f}¦sort -o {f} <<< evil¦uniq - {f} <<< evil¦xxd -r -p - {f} <<< 6576696c0a"
    '¦dd of={f} <<< evil¦awk \'BEGIN{{print "evil" > "{f}"}}\'¦base64 -d <<< ZXZpbAo= > {f}'
    "¦git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m evil"
    "¦git init -q .; git config core.pager evil¦curl -s file://$PWD/../bin/evil -o {f}¦sed 'w {f}' <<< evil"
    "¦sed -n 's/a/b/w {f}' <<< a¦install ../bin/evil {f}¦touch {f}¦mkdir -p d¦mkdir -p .git/hooks¦ls¦true"
    "¦cat ../bin/evil > {f}¦python3 -m venv --prompt '$(evil)' --without-pip v¦split - x <<< evil"
    "¦echo 'import os; os.system(\"evil\")' > {f}¦echo '>>> import os; os.system(\"evil\")' > {f}¦diff a b"
    "¦git diff --no-index --output={f} a ../bin/evil¦git archive -o {f} HEAD¦gzip -c ../bin/evil > {f}"
    "¦mv ../bin/evil {f}¦rsync ../bin/evil {f}¦patch -o {f} a¦tee {f} <<< evil¦chmod +x {f}"
    "¦git init -q --template=.¦cat <<E > {f}\nevil\nE\n¦echo x >> {f}¦wget -O {f} x¦find ../bin -fprint {f}"
    "¦zip -q z ../bin/evil¦echo x > out.log"
)
RUNNERS = items(
    "bash {f}¦sh {f}¦. ./{f}¦source {f}¦./{f}¦make -f {f}¦make¦python3 {f}¦chmod +x {f}; ./{f}"
    "¦python3 -m doctest {f}¦git status¦ls {f}¦cat {f}¦perl {f}¦awk -f {f}¦sed -f {f} a"
    "¦git commit -q --allow-empty -m x¦. v/bin/activate¦bash .git/COMMIT_EDITMSG¦python3 .git/COMMIT_EDITMSG"
    "¦git -p log¦env ./{f}¦xargs -a {f} env¦make -C .¦command ./{f}¦cd d && ./x1¦find . -name {f} -exec {{}} \\;"
    "¦git log¦wc -l {f}¦sort {f}¦python3 -m unittest¦bash *¦./x*¦make -f M*¦head {f}¦bash < {f}¦cat {f} | sh"
    "¦tail -1 out.log¦true¦ls -la¦/bin/sh ./{f}¦timeout 2 ./{f}¦tar tf {f}¦python3 -c pass¦python3 -m doctest f.m*"
    "¦python3 -m doctest *.txt¦git diff"
)
VARIABLES = items(
    "GCONV_PATH¦OPENSSL_CONF¦PATH¦LD_PRELOAD¦BASH_ENV¦ENV¦PS4¦PROMPT_COMMAND¦GIT_PAGER¦PAGER¦MANPAGER¦LESSOPEN"
    "¦MAKEFLAGS¦MAKEFILES¦PERL5OPT¦PYTHONSTARTUP¦PYTHONPATH¦TMPDIR¦LC_ALL¦FOO¦CC¦SHELL¦EDITOR¦TAR_OPTIONS"
    "¦GIT_SSH_COMMAND¦GIT_EXTERNAL_DIFF¦MANOPT¦GIT_EDITOR¦NO_COLOR¦CI¦TZ¦foo¦GREP_OPTIONS¦LANG¦PYTHONINSPECT"
    "¦BAT_PAGER¦GIT_CONFIG_COUNT¦CFLAGS¦COLUMNS¦DEBUG"
)
VALUES = items(
    "../bin¦evil¦.¦./x¦1¦'--eval=$(shell evil)'¦'--checkpoint=1 --checkpoint-action=exec=evil'¦'$(evil)'¦'|evil %s'"
    "¦C¦en_US.UTF-8¦'-Mx'¦../bin/evil¦true¦'evil #'¦'a b'"
)
SETTINGS = items(
    "{v}={w} {0}¦export {v}={w}; {0}¦env {v}={w} {0}¦{v}={w}; {0}¦declare -x {v}={w}; {0}¦{v}={w}; export {v}; {0}¦{0}"
)
OBEDIENT = items(
    "bash -c :¦sh -c :¦env ls¦ls¦make x¦make -n¦git log¦git -p log¦tar cf /dev/null .¦man ls¦perl -e1¦python3 -c 1"
    "¦less a¦git diff¦echo hi¦cat a¦grep x a¦sort a¦date¦git commit --allow-empty¦iconv a¦crontab -e¦bash x¦awk 1 a"
    "¦git --version¦wc -l a¦find . -name a"
)
OPTIONED = items(
    "git init -q .; git -c core.pager=evil -p log¦tar cf /dev/null . --checkpoint=1 --checkpoint-action=exec=evil"
    "¦seq 9 | sort -S1 --compress-program=evil¦git grep -Oevil x¦man -P evil ls¦seq 9 | split --filter=evil"
    "¦env -S evil¦env -Sevil¦find . -okdir evil \\;¦git init -q .; git -c alias.z='!evil' z¦sed s/x/evil/e <<< x"
    "¦sed 's/x/evil/; e' <<< x¦make --eval='$(shell evil)'¦make SHELL=../bin/evil x¦perl -e 'exec evil'"
    "¦tar cf /dev/null a --to-c=evil¦xargs -I% sh -c % <<< evil¦git init -q .; git config alias.z '!evil'; git z"
    "¦tar -c -f /dev/null -I evil a¦tar -cIevil -f x a¦awk 'BEGIN{system(\"evil\")}'"
    "¦python3 -c 'import os; os.system(\"evil\")'¦git diff --ext-diff¦git --exec-path=../bin evil"
    "¦tar tf a --use-comp=evil¦sort -k1 a¦tar cf x a¦git log -1¦git bisect run evil¦git submodule foreach evil"
    "¦curl --trace x file:///etc/hostname¦date +%s¦diff a a¦diff -l a a¦rg --pre evil x¦fd -x evil¦ls -la¦wc -l a"
    "¦zip -q -T -TT evil z a¦find . -name a¦grep -r x .¦nice evil¦timeout 1 evil¦git rebase -x evil¦less +!evil a"
    "¦cat a¦head -1 a¦du -s¦ed a <<< '!evil'"
)
FRAMES = items(
    "{0}¦{0}¦{0}¦{0}¦( {0} )¦{{ {0}; }}¦if true; then {0}; fi¦for j in 1; do {0}; done¦f() {{ {0}; }}; f¦{0} && ls"
    "¦ls; {0}¦{0} | cat¦true && {0}¦bash -c '{1}'¦echo \"$({0})\"¦while :; do {0}; break; done¦{0} 2>/dev/null"
    "¦cd . && {0}¦echo a > a; {0}¦cat <({0})¦case a in a) {0};; esac¦{0} || true¦! {0}¦trap '{1}' EXIT"
    "¦{0} > /dev/null"
)
MARKS: list[str] = [*"'\"\\`$(){};&|<>#\n !*?[]=,+:", *items("$(¦))¦((¦<<<¦evil¦$'¦${¦[[¦]]¦<(¦exec ¦ + ¦ = ¦a[")]


def arithmetic(dice: Dice) -> str:
    name = dice.choice(NAMES)
    parts = [
        dice.choice(GIVERS).format(n=name if dice.random() < 0.7 else dice.choice(NAMES), p=dice.choice(PAYLOADS))
        for _ in range(dice.randrange(1, 3))
    ]
    return "; ".join([*parts, dice.choice(TAKERS).format(n=name if dice.random() < 0.8 else dice.choice(NAMES))])


def feeding(dice: Dice) -> str:
    middle = dice.choice(["", "", "ls; ", "true && ", "echo x; "])
    return f"{dice.choice(FEEDERS)}; {middle}{dice.choice(FED)}".replace("\n; ", "\n")


def finding(dice: Dice) -> str:
    words = " ".join(dice.choice(FIND_WORDS) for _ in range(dice.randrange(4)))
    act = dice.choice(["-exec", "-exec", "-execdir", "-ok", "-name x -o -exec", "-print -exec"])
    end = dice.choice(["\\;", "{} +", "{} \\;", "+", "';'"])
    return f"touch a; find . -maxdepth 0 {act} {dice.choice(FIND_COMMANDS)} {words} {end}"


def awk(dice: Dice) -> str:
    program = dice.choice(AWK_FRAMES).format("".join(dice.choice(AWK_PARTS) for _ in range(dice.randrange(1, 7))))
    return f"{dice.choice(['awk', 'mawk', 'awk -F,', 'awk -v x=1'])} '{program}' <<< 'x y'"


def patterns(dice: Dice) -> str:
    made = " ".join(f"'{dice.choice(NAMED_FILES)}'" for _ in range(dice.randrange(1, 3)))
    return f"touch -- {made} x.c; {dice.choice(PATTERN_USERS).format(dice.choice(PATTERNS).format())}"


def leftovers(dice: Dice) -> str:
    file = dice.choice(FILES)
    other = file if dice.random() < 0.8 else dice.choice(FILES)
    parts = [dice.choice(WRITERS).format(f=file) for _ in range(dice.randrange(1, 3))]
    parts.append(dice.choice(RUNNERS).format(f=other))
    return dice.choice(["; ", " && ", "; "]).join(parts).replace("\n; ", "\n").replace("\n && ", "\n")


def variables(dice: Dice) -> str:
    told = dice.choice(OBEDIENT)
    return dice.choice(SETTINGS).format(told, v=dice.choice(VARIABLES), w=dice.choice(VALUES))


def options(dice: Dice) -> str:
    return f"echo x > a; {dice.choice(OPTIONED)}"


# Lines that are known to start it, with the places that vary: {n} a name, {p} a text with a command in it, {f} a file.
ARITHMETIC_RECIPES = items(
    "read <<< '{p}'; {REPLY}¦read -r <<< '{p}'; {REPLY}¦mapfile -t <<< '{p}'; {MAPFILE}"
    "¦readarray -t <<< '{p}'; {MAPFILE}¦[[ '{p}' =~ .* ]]; {BASH_REMATCH}¦[[ '{p}' =~ ^.*$ ]] && {BASH_REMATCH}"
    "¦: '{p}'; {_}¦true '{p}'; {_}¦echo '{p}'; {_}¦{n}='{p}'; {N}¦{n}=1; {n}+='+{p}'; {N}¦printf -v {n} '{p}'; {N}"
    "¦for {n} in '{p}'; do {N}; done¦read {n} <<< '{p}'; {N}¦: ${{{n}:='{p}'}}; {N}¦declare {n}='{p}'; {N}"
    "¦export {n}='{p}'; {N}¦getopts a: o -a '{p}'; {OPTARG}¦{n}=('{p}'); {N}¦{n}='{p}'; y={n}; {Y}"
    "¦set -- '{p}'; (($1))¦mapfile -t {n} <<< '{p}'; {N}¦read -a {n} <<< '{p}'; {N}¦{n}='{p}' eval '{N}'"
    "¦select {n} in a; do {REPLY}; break; done <<< '{p}'¦while read; do {REPLY}; done <<< '{p}'"
    "¦while read {n}; do {N}; done <<< '{p}'"
)
ARITHMETIC_USES = items(
    "((@))¦echo $((@))¦echo ${{E:@}}¦echo ${{E:0:@}}¦echo ${{E:@:1}}¦((z=@))¦(( @ + 1 ))¦echo ${{HOME:@}}"
    '¦echo "${{E:@}}"¦[[ @ -eq 1 ]]¦a[@]=1¦echo ${{a[@@]}}¦for ((;@;)); do break; done¦echo ${{E: @}}'
    "¦echo $(( (@) ))¦((1+@))¦((@==1))¦echo ${{E:$@}}¦echo $(( $@ ))¦((z+=@))¦echo ${{1:@}}¦echo ${{PWD:@}}"
    "¦((@ ? 1 : 2))¦let @¦cat <<E\n$((@))\nE\n¦cat <<E\nx $(( 1 + @ )) ${{E:-$((@))}}\nE\n¦cat <<-E\n\t$((@))\n\tE\n"
    "¦declare -i z=@¦printf -v 'a[@]' x¦test -v 'a[@]'¦z=$[@]"
)
FEEDING_RECIPES = items(
    "exec <<< '!evil'; ed¦exec <<< 'exec evil'; tclsh¦exec <<< '.shell evil'; sqlite3¦exec <<< evil; bash"
    "¦exec <<< evil; sh¦echo 'exec evil' > q; exec < q; tclsh¦echo '!evil' > q; exec < q; ed"
    "¦echo '.shell evil' > q; exec < q; sqlite3¦exec < <(echo '!evil'); ed¦exec 3<<< '!evil'; exec <&3; ed"
    "¦exec <<< '!evil'; ls; ed¦exec <<< 'exec evil'; true && tclsh¦command exec <<< '!evil'; ed"
    "¦exec <<< '!evil' 2>/dev/null; ed¦exec 0<<< 'exec evil'; tclsh¦builtin exec <<< '!evil'; ed"
    "¦exec <<E\n!evil\nE\ned¦exec <<< evil; xargs env¦exec <<< evil; xargs -I% %"
    "¦if exec <<< 'exec evil'; then tclsh; fi¦for i in 1 2; do tclsh; exec <<< 'exec evil'; done"
    "¦exec <<< '.shell evil'; sqlite3 2>&1 | cat¦{{ exec <<< '!evil'; }}; ed"
)
FIND_RECIPES = items(
    "touch a; find . -maxdepth 0 {x} tar cf /dev/null a + --checkpoint=1 --checkpoint-action=exec=evil \\;"
    "¦touch a; find . -maxdepth 0 {x} tar cf /dev/null + --checkpoint=1 --checkpoint-action=exec=evil a \\;"
    "¦find . -maxdepth 0 {x} env + evil \\;¦find . -maxdepth 0 {x} sh -c evil + \\;"
    "¦find . -maxdepth 0 {x} env x=+ evil \\;¦find . -maxdepth 0 {x} nice evil + \\;"
    "¦find . -maxdepth 0 -name . {x} bash -c evil + x \\;¦find . -maxdepth 0 {x} echo {{}} + -exec evil \\;"
    "¦find . -maxdepth 0 {x} sort --compress-program=evil + \\; "
    "¦touch a; find . -maxdepth 0 {x} awk 'BEGIN{{system(\"evil\")}}' + \\;"
    "¦find . -maxdepth 0 -print {x} make SHELL=../bin/evil + x \\;"
    "¦touch a; find . {x} grep -q + a \\; -exec evil \\;"
)
AWK_RECIPES = items(
    'BEGIN{x=1system("evil")}¦BEGIN{x=1.5system("evil")}¦BEGIN{1e2system("evil")}¦BEGIN{"evil"|getline}'
    '¦BEGIN{print|"evil"}¦BEGIN{x=3;x=x/system("evil")/2}¦BEGIN{print "a" | "evil"}¦{x=$1/2;system("evil")}'
    '¦BEGIN{x="#";system("evil")}¦BEGIN{x="\\"";system("evil")}¦/"/||system("evil")||/"/'
    '¦BEGIN{if(/x/)y;system("evil")}¦BEGIN{x=1 system("evil")}¦BEGIN{print 1/1,system("evil")}'
    '¦BEGIN{# a\nsystem("evil")}¦BEGIN{x=0;x++;y=x/system("evil")}¦{print $1 system("evil")}'
    '¦BEGIN{printf "x"|"evil"}¦BEGIN{while("evil"|getline)n++}¦BEGIN{print length system("evil")}'
    '¦BEGIN{x[1]=system("evil")}¦BEGIN{x=/a/;system("evil")}¦BEGIN{x=!system("evil")}¦BEGIN{2system("evil")3}'
    '¦$1~"x"&&system("evil")¦BEGIN{x=.5system("evil")}'
)
PATTERN_RECIPES = items(
    "touch x.c 'CC=evil;'; make {g} x¦touch x.c 'CC=evil;'; make x {g}¦touch x.c 'CC=evil #'; make x {g}"
    "¦touch -- '--eval=$(shell evil)' x.c; make {d}"
    "¦touch -- '--checkpoint=1' '--checkpoint-action=exec=evil' a; tar cf /dev/null {d}"
    "¦touch 'of=mk' p; echo evil > p; dd if=p o* && sh mk¦mkdir CC=evil; touch x.c; make {g} x"
    "¦echo > x.c; > 'CC=evil;'; make {g} x¦touch x.c; cp x.c 'CC=evil;'; make {g} x¦touch -- -Sevil; env {d}"
    "¦touch x.c 'LINK.c=evil;'; make L* x¦touch x.c 'CC=evil;'; find . -name x.c -exec make {g} x \\;"
    "¦touch x.c 'CC=evil;'; timeout 5 make {g} x¦touch x.c 'CC=evil;'; ls C* | xargs make x"
    "¦touch x.c 'CC=evil;'; make {{C,D}}* x¦touch 'a=evil'; env a*¦touch x.c 'SHELL=../bin/evil'; make S* x"
)
LEFT_RECIPES = items(
    "git init -q .; {c} commit -q --allow-empty -m 'import os; os.system(\"evil\")'; python3 .git/COMMIT_EDITMSG"
    "¦git init -q .; {c} commit -q --allow-empty -m evil; bash .git/COMMIT_EDITMSG"
    "¦git init -q . && {c} commit -q --allow-empty -m $'a:;evil' && make -f .git/COMMIT_EDITMSG"
    "¦git init -q . && {c} commit -q --allow-empty -m $'a:;evil' && cd .git && make -f COMMIT_EDITMSG"
    "¦git init -q . && {c} commit -q --allow-empty -m $'a:;evil' && make -f .g*/C*I*"
    "¦/usr/bin/time -f evil -o {f} true; bash {f}¦/usr/bin/time -f evil -o {f} true; chmod +x {f}; ./{f}"
    "¦/usr/bin/time -f 'a:;evil' -o {f} true; make -f {f}¦echo '\"$(evil)\"' | python3 -m json.tool - {f}; sh {f}"
    "¦python3 -m json.tool - {f} <<< '\"$(evil)\"'; chmod +x {f}; ./{f}"
    "¦tar cf {f} $'evil\\n#' 2>/dev/null; touch $'evil\\n#'; tar cf {f} $'evil\\n#'; chmod +x {f}; ./{f}"
    "¦python3 -m venv --without-pip --prompt '$(evil)' v && . v/bin/activate"
    "¦printf '>>> import os; x = os.system(\"evil\")\\n' > {f}; python3 -m doctest {f}"
    "¦printf '>>> import os; x = os.system(\"evil\")\\n' > f.md; python3 -m doctest f.m?"
    "¦printf 'a:;evil' > {f}; make -f {f}¦sort -o {f} <<< 'a:;evil'; make -f {f}"
    "¦uniq - {f} <<< 'a:;evil'; make -f {f}¦dd of={f} <<< 'a:;evil'; make -f {f}"
    "¦xxd -r -p - {f} <<< 613a3b6576696c0a; make -f {f}¦base64 -d <<< YTo7ZXZpbAo= > {f}; make -f {f}"
    "¦awk 'BEGIN{{print \"a:;evil\" > \"{f}\"}}'; make -f {f}¦echo 'a:;evil' | tee {f}; make -f {f}"
    "¦curl -so {f} file://$PWD/../bin/evil; chmod +x {f}; ./{f}¦echo 'a:;evil' | split - x; make -f xaa"
    "¦echo a > {f}; sed -i 's/a/a:;evil/' {f}; make -f {f}¦git init -q .; git config alias.z '!evil'; git z"
    "¦mkdir -p h; printf '#!/bin/sh\\nevil' > h/post-commit; chmod +x h/post-commit; git init -q .; git "
    "config core.hooksPath h; {c} commit -q --allow-empty -m x"
    "¦git init -q .; echo 'a:;evil' > b; git add b; {c} commit -qm x; git archive -o {f} --format=tar "
    "HEAD; tar xf {f}; make -f b"
    "¦git init -q .; echo 'a:;evil' > b; git add b; {c} commit -qm x; git show HEAD:b > {f}; make -f {f}"
    "¦ln -s ../bin/evil {f}; ./{f}¦cp ../bin/evil {f}; ./{f}"
    "¦git init -q .; git diff --no-index --output={f} /dev/null ../bin/evil; bash {f}"
    "¦gzip -c ../bin/evil | gunzip > {f}; bash {f}¦install ../bin/evil {f}; ./{f}"
    "¦git init -q .; {c} commit -q --allow-empty -m x; git config core.fsmonitor evil; git status"
    "¦printf evil > {f}; . ./{f}¦mkdir b; cp ../bin/evil b/ls; export PATH=$PWD/b:$PATH; ls"
)
VARIABLE_RECIPES = items(
    "BASH_ENV=../bin/evil {b} -c :¦export BASH_ENV=../bin/evil; bash -c :¦MAKEFLAGS='--eval=$(shell evil)' make"
    "¦touch x.c; CC=evil make x¦TAR_OPTIONS='--checkpoint=1 --checkpoint-action=exec=evil' tar cf /dev/null ."
    "¦mkdir b; cp ../bin/evil b/ls; PATH=b ls¦touch x.c; export CC=evil; make x"
    "¦echo x > a; LESSOPEN='|evil %s' less a¦printf 'a:;evil' > m; MAKEFILES=m make a¦touch x.c; env CC=evil make x"
    "¦git init -q .; GIT_EDITOR=evil git commit --allow-empty"
    "¦git init -q .; echo > a; git add a; echo x > a; GIT_EXTERNAL_DIFF=evil git diff¦PS4='$(evil)' bash -xc :"
    "¦git init -q .; export EDITOR=evil; git commit --allow-empty¦touch x.c; CC='evil #' make x"
    "¦touch x.c; declare -x CC=evil; make x¦printf 'a:;evil' > 1; MAKEFILES=1 make a"
    "¦touch x.c; SHELL=../bin/evil make -e x¦PERL5OPT=-Mx perl -e1"
    "¦git init -q .; GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=evil git status"
    "¦touch x.c; CFLAGS=';evil' make x¦ENV=../bin/evil sh -ic :"
)


def use(dice: Dice, name: str) -> str:
    return dice.choice(ARITHMETIC_USES).format().replace("@@", name).replace("@", name)


def recipe(dice: Dice, one: Callable[[Dice], str]) -> str:
    """A line of the class that would start it if nothing more were done to it."""
    if one is arithmetic:
        name = dice.choice(["x", "y", "n", "value"])
        uses = {special: use(dice, special) for special in ("REPLY", "MAPFILE", "BASH_REMATCH", "_", "OPTARG")}
        text = dice.choice(ARITHMETIC_RECIPES)
        return text.format(n=name, p=dice.choice(PAYLOADS[:2]), N=use(dice, name), Y=use(dice, "y"), **uses)
    if one is awk:
        return f"awk '{dice.choice(AWK_RECIPES)}' <<< 'x y'"
    if one is finding:
        return dice.choice(FIND_RECIPES).format(x=dice.choice(["-exec", "-exec", "-execdir"]))
    if one is patterns:
        return dice.choice(PATTERN_RECIPES).format(
            g=dice.choice(["C*", "*C*", "C?=*", "[C]*"]), d=dice.choice(["*", "-*"])
        )
    if one is leftovers:
        identity = "git -c user.name=a -c user.email=b"
        return dice.choice(LEFT_RECIPES).format(f=dice.choice(["x1", "Makefile", "x.txt", "d.md"]), c=identity)
    if one is variables:
        return dice.choice(VARIABLE_RECIPES).format(b=dice.choice(["bash", "bash", "env bash"]))
    return dice.choice(FEEDING_RECIPES).format() if one is feeding else options(dice)


CLASSES: tuple[Callable[[Dice], str], ...] = (
    arithmetic,
    feeding,
    finding,
    awk,
    patterns,
    leftovers,
    variables,
    options,
)


def mutated(dice: Dice, text: str) -> str:
    place = dice.randrange(len(text) + 1)
    if dice.random() < 0.7:
        return text[:place] + dice.choice(MARKS) + text[place:]
    return text[:place] + text[place + 1 :]


def cases(seed: int, count: int) -> list[str]:
    dice = random.Random(seed)
    made = []
    for number in range(count):
        one = CLASSES[number % len(CLASSES)]
        text = recipe(dice, one) if dice.random() < 0.5 else one(dice)
        if dice.random() < 0.12:
            text += "; " + dice.choice(CLASSES)(dice)
        text = dice.choice(FRAMES).format(text, text.replace("'", "'\\''"))
        made.append(mutated(dice, text) if dice.random() < 0.2 else text)
    return made


def names_evil(reading: Reading) -> bool:
    return any(posixpath.basename(program.words[0] or "") == "evil" for program in reading.programs)


@pytest.mark.fault
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_line_of_these_classes_is_judged_clean_and_starts_evil(
    seed: int,
    is_soak: bool,
    started_evil: Callable[[Sequence[str]], list[bool]],
    record_property: Callable[[str, object], None],
) -> None:
    count = FULL_COUNT if is_soak else FULL_COUNT // 10
    record_property("count", count)
    made = cases(seed, count)
    clean = sorted({text for text in made if (reading := read(text)).is_clean and not names_evil(reading)})
    print(f"seed {seed}: {count} lines, {len(set(made))} distinct, {len(clean)} judged clean and run")
    assert len(clean) > 0.08 * len(set(made)), "too few lines are clean for this to prove anything"
    assert sum("evil" in text for text in clean) > count / 200, "the generator asks nothing of the reader"
    started: list[bool] = []
    for first in range(0, len(clean), BATCH):
        started += started_evil(clean[first : first + BATCH])
    assert [text for text, was in zip(clean, started, strict=True) if was] == []


def test_the_classes_really_start_evil(started_evil: Callable[[Sequence[str]], list[bool]]) -> None:
    """Of lines that nobody judged, many of each class start it: else the test above would ask nothing."""
    dice = random.Random(7)
    shares = {}
    for one in CLASSES:
        started = started_evil([recipe(dice, one) for _ in range(40)])
        shares[one.__name__] = sum(started) / len(started)
    print(shares)
    assert {name: share for name, share in shares.items() if share < 0.3} == {}
