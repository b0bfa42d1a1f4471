#!/bin/sh
# Installs the Debian packages that leadrope uses, when this is root on a machine with apt; otherwise says what to
# install and goes on: everything but the sandbox works without them. `packages.sh dev` adds what only tests use.
set -eu

missing=""
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need bwrap bubblewrap
need socat socat
need git git
if [ "${1:-}" = dev ]; then
    need chromium chromium # opens the page of a run, as a reader would
fi
"${PYTHON:-python3}" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "leadrope: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # a list of package names
    if apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1; then exit 0; fi
    # A fresh machine has no package lists yet.
    if apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends $missing >/dev/null; then exit 0; fi
    echo "leadrope: apt-get could not install$missing; going on without" >&2
else
    echo "leadrope: not installed here:$missing" >&2
    echo "leadrope: to install them:  sudo apt-get install$missing" >&2
fi
