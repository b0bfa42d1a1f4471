"""`leadrope login` and `leadrope setup-token`: hand over to the agent program that leadrope itself would start.

The program that the extra `claude` installs is on nobody's PATH, so `claude auth login` need not exist.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.providers.claude_code.locate import find_binary

_LOGIN_EPILOG = """\b
Examples:
  leadrope login              open the browser and log in to your Claude subscription
  leadrope doctor             see which login or key a run would use
"""
_SETUP_EPILOG = """\b
Examples:
  leadrope setup-token        print a long-lived token; put it into CLAUDE_CODE_OAUTH_TOKEN
"""


@click.command("login", epilog=_LOGIN_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def login(args: tuple[str, ...]) -> NoReturn:
    """Log in to Claude, with the agent program that leadrope uses.

    Further ARGS are passed on to its `auth login`.
    """
    _become("auth", "login", *args)


@click.command("setup-token", epilog=_SETUP_EPILOG)
def setup_token() -> NoReturn:
    """Make a long-lived token for machines without a browser, such as CI."""
    _become("setup-token")


def _become(*args: str) -> NoReturn:
    environ = dict(os.environ)
    config = configs.load({**home.load_env(home.leadrope_home(environ)), **environ})
    binary = find_binary(config.run.binary or None, environ)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(binary, [binary, *args], environ)  # noqa: S606  # no shell; it is the user's own terminal
    except OSError as error:
        raise errors.CliNotFound(
            f"{binary} cannot be started: {error.strerror}", hint="See `leadrope doctor`."
        ) from None
