#!/bin/sh
# Installs the Debian packages that leadrope uses, when this is root on a machine with apt; otherwise says what to
# install and continues: everything but the sandbox works without them. `packages.sh dev` adds what only tests use.
# SYSTEM_PACKAGES=no installs nothing.
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
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "leadrope: these system packages are missing:$missing" >&2
    echo "leadrope: to install them:  sudo apt-get install$missing" >&2
    exit 0
fi
case ${SYSTEM_PACKAGES:-} in
no | 0 | false)
    echo "leadrope: continuing without the system packages$missing" >&2
    exit 0
    ;;
esac
echo "leadrope: about to install these system packages with apt-get:$missing"
echo "leadrope: (to continue without them: make SYSTEM_PACKAGES=no ...)"
if [ -t 0 ] && [ -t 1 ]; then
    printf 'Install them? [Y/n] '
    read -r answer || answer=no
    case $answer in
    "" | [Yy] | [Yy]es) ;;
    *)
        echo "leadrope: continuing without them"
        exit 0
        ;;
    esac
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of package names
if apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1; then exit 0; fi
# A fresh machine has no package lists yet.
# shellcheck disable=SC2086  # the same
if apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends $missing >/dev/null; then exit 0; fi
echo "leadrope: apt-get could not install$missing; continuing without" >&2
