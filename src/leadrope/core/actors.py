"""Who decided something: the value of every `by`, in events, in the store, in JSON and in reports.

user:ID     a person; at a terminal, the name of the system's user
user        a person whose name was not given
token:ID    an access token
program     code of the program that uses leadrope, such as an approver function
policy      a rule
timeout     nobody answered in time
nobody      a person was needed, and none was there
leadrope    leadrope itself: the request was withdrawn, or its answer could not be used
unknown     not recorded
"""

from __future__ import annotations

import functools
import os

USER = "user"
PROGRAM = "program"
POLICY = "policy"
TIMEOUT = "timeout"
NOBODY = "nobody"
LEADROPE = "leadrope"
UNKNOWN = "unknown"

_WITHOUT_ID = frozenset((USER, PROGRAM, POLICY, TIMEOUT, NOBODY, LEADROPE, UNKNOWN))
_WITH_ID = ("user:", "token:")
_EARLIER = {
    "person": USER,
    "rule": POLICY,
    "callback": PROGRAM,
    "supervisor": LEADROPE,
    "recovery": LEADROPE,
    "workflow": LEADROPE,
}
"""Words of stores and logs that were written before; a name without a kind was a person's."""


def read(by: str) -> str:
    """A stored or given value in today's form: `ann` is `user:ann`, and `rule` is `policy`."""
    if not by or by in _WITHOUT_ID or by.startswith(_WITH_ID):
        return by
    return _EARLIER.get(by) or user(by)


def user(name: str) -> str:
    return f"user:{name}"


def kind_of(by: str) -> str:
    """The part before the ID, for counting: `user` of `user:ann`."""
    return by.partition(":")[0]


def is_answer(by: str) -> bool:
    """Whether somebody decided: a person, a token or a program, and not a rule, a clock or leadrope itself."""
    return kind_of(by) in (USER, "token", PROGRAM)


@functools.cache
def system_user() -> str:
    """Whoever this process belongs to. From the system's accounts: variables such as USER can say anything."""
    try:
        import pwd  # noqa: PLC0415  # POSIX only

        return user(pwd.getpwuid(os.getuid()).pw_name)
    except ImportError:
        import getpass  # noqa: PLC0415  # where there is no pwd

        return user(getpass.getuser())
    except KeyError:
        return user(str(os.getuid()))  # an account without a name, as in many containers
