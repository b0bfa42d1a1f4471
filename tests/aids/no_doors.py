"""Commands and kinds of steps that use nothing in a folder that an agent can write, each with the reason.

Whatever is not here must be in the table of tests/aids/doors.py; tests/e2e/test_hostile_doors.py holds that.
"""

from __future__ import annotations

_STORE = "reads and changes rows of leadrope's own database"
_OWNER = "leaves a message in the database for the process that supervises the run"

COMMANDS = {
    "flow steps": "prints what the package itself knows",
    "flow data": _STORE,
    "flow logs": _STORE,
    "flow stop": _STORE,
    "flow pause": _STORE,
    "flow values": _STORE,
    "flow delete": "deletes a saved workflow in leadrope's own folder, which no agent can write",
    "flow delete-data": _STORE,
    "flow clear-cache": _STORE,
    "runs interrupt": _OWNER,
    "runs list": _STORE,
    "runs logs": _STORE,
    "runs pause": _OWNER,
    "runs revoke": _OWNER,
    "runs send": _OWNER,
    "runs stop": _OWNER,
    "approvals answer": _STORE,
    "approvals approve": _STORE,
    "approvals deny": _STORE,
    "approvals edit": _STORE,
    "approvals list": _STORE,
    "approvals show": _STORE,
    "connections list": "reads the user's own config.toml, by a path from HOME and LEADROPE_CONFIG",
    "connections test": "starts servers of the user's own config.toml in a scratch folder",
    "connections tools": "starts a server of the user's own config.toml in a scratch folder",
    "top": _STORE,
    "stats": _STORE,
    "demo": "works in a scratch folder of its own, with an agent whose script is ours",
    "policy allow": "writes the user's own config.toml, by a path from HOME and LEADROPE_CONFIG",
    "login": "starts the agent program's own login, in no workspace",
    "setup-token": "starts the agent program's own login, in no workspace",
    "completion": "prints a script for the user's shell, or adds a line to the user's own start-up file",
}
STEPS = {
    "claude-code": "another name of the step `agent`",
    "approval": "asks a person",
    "condition": "compares values",
    "group": "runs the steps inside it, which are in the table themselves",
    "switch": "compares values",
    "set": "gives values names",
    "fail": "says why the workflow fails",
    "structure": "rearranges values",
    "wait": "waits",
    "note": "says what is written in it",
}
