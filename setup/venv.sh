#!/bin/sh
# Makes .venv and fills it from one lock file. Run again, it only installs what has changed.
set -eu
lock=$1
python=${PYTHON:-python3}

"$python" - <<'EOF' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"leadrope needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.12")
EOF
case $lock in *-dev.lock) kind=dev ;; *) kind=run ;; esac
PYTHON=$python sh setup/packages.sh "$kind"
if [ ! -x .venv/bin/python ]; then
    rm -rf .venv
    "$python" -m venv .venv || { rm -rf .venv; echo "leadrope: cannot make .venv; install python3-venv" >&2; exit 1; }
fi
echo "leadrope: installing from $lock"
pip=".venv/bin/python -m pip --disable-pip-version-check -q"
$pip install --require-hashes -r "$lock"
$pip install --no-deps --no-build-isolation -e .
