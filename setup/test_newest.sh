#!/bin/sh
# Runs the unit and integration tests on the newest Python that this machine has, in a virtual environment of its own.
# Says which one that is, or that there is none beside the default one.
set -eu
default=$("${VENV:-.venv}/bin/python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
found=$("${VENV:-.venv}/bin/python" setup/newest_python.py)
python=$(printf '%s' "$found" | cut -f1)
version=$(printf '%s' "$found" | cut -f2)
short=$(printf '%s' "$version" | cut -d. -f1,2)

if [ -z "$found" ]; then
    echo "leadrope: no Python 3.12 or newer was found, so everything was tested on $default alone"
    exit 0
fi
if [ "$short" = "$default" ]; then
    echo "leadrope: the newest Python here is $version, on which everything was tested already"
    exit 0
fi
echo "leadrope: unit and integration tests on Python $version ($python)"
PYTHON=$python VENV=.venv-$short sh setup/venv.sh requirements-dev.lock
set -- -n "${WORKERS:-4}" --dist worksteal tests/unit tests/integration
if [ -n "${RERUN:-}" ]; then
    exec ".venv-$short/bin/python" setup/rerun_failed.py "$@"
fi
exec ".venv-$short/bin/pytest" -p no:cacheprovider "$@"
