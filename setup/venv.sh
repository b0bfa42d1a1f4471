#!/bin/sh
# Makes a virtual environment (VENV, default .venv) and fills it from one lock file. Run again, it only installs what has
# changed.
set -eu
lock=$1
python=${PYTHON:-python3}
venv=${VENV:-.venv}

"$python" - <<'CHECK' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"leadrope needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.12")
CHECK
case $lock in *-dev.lock) kind=dev ;; *) kind=run ;; esac
PYTHON=$python sh setup/packages.sh "$kind"
wanted=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
if [ -x "$venv/bin/python" ]; then
    found=$("$venv/bin/python" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null || echo none)
    if [ "$found" != "$wanted" ]; then
        echo "leadrope: $venv has Python $found; making it again with $wanted"
        rm -rf "$venv"
    fi
fi
if [ ! -x "$venv/bin/python" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv" || { rm -rf "$venv"; echo "leadrope: cannot make $venv; install python3-venv" >&2; exit 1; }
fi
echo "leadrope: installing from $lock into $venv (the first time this downloads about 170 MB, most of it Claude Code)"
pip="$venv/bin/python -m pip --disable-pip-version-check"
# Progress on a terminal; elsewhere only what goes wrong.
if [ ! -t 1 ]; then pip="$pip -q"; fi
$pip install --require-hashes -r "$lock"
$pip -q install --no-deps --no-build-isolation -e .
# pip compiles what it installs, but not a source tree that it only refers to.
"$venv/bin/python" -m compileall -q src
