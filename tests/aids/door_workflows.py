"""Workflows of the machine of tests/aids/machine.py: one for each kind of step that uses files, and a few others."""

from __future__ import annotations

EXECUTION = "# {name}\n\nTries one step.\n\n## Steps\n\n### it\n\nThe step.\n\n- type: {type}\n{parameters}\n"
STEPS: dict[str, tuple[str, dict[str, str]]] = {
    "read-file": ("read-file", {"file_path": "given/notes.txt"}),
    "write-file": ("write-file", {"file_path": "page/out.txt", "content": "x"}),
    "append-file": ("write-file", {"file_path": "given/notes.txt", "content": "x", "mode": "append"}),
    "create-file": ("write-file", {"file_path": "page/made.txt", "content": "x", "mode": "create"}),
    "copy-file": (
        "copy-file",
        {"source": "given/notes.txt", "destination": "page/copy.txt", "overwrite": "true"},
    ),
    "move-file": (
        "move-file",
        {"source": "given/notes.txt", "destination": "page/moved.txt", "overwrite": "true"},
    ),
    "output": ("output", {"content": "x", "name": "found", "folder": "page"}),
    "shell": ("shell", {"command": "ls sub given"}),
    "delete-file": ("delete-file", {"file_path": "given/notes.txt"}),
    "email": (
        "email",
        {
            "to": "you@example.com",
            "subject": "x",
            "body": "x",
            "attachments": "[given/notes.txt, given/image.png]",
        },
    ),
    "http": (
        "http",
        {
            "url": "http://127.0.0.1:HTTP_PORT/",
            "allow_private": "true",
            "method": "POST",
            "multipart": "{notes: {file: given/notes.txt}}",
            "save_to": "page/answer.bin",
        },
    ),
    "http-file": (
        "http",
        {
            "url": "http://127.0.0.1:HTTP_PORT/",
            "allow_private": "true",
            "method": "POST",
            "body_file": "given/image.png",
        },
    ),
    "workflow": ("workflow", {"workflow": "read-file.flow.md"}),
    "agent": (
        "agent",
        {
            "prompt": "go",
            "cwd": "sub",
            "extra_dirs": "[given/more]",
            "attachments": "[given/notes.txt]",
            "use_api_key": "true",
        },
    ),
    "llm": ("llm", {"prompt": "go", "images": "[given/image.png]", "use_api_key": "true"}),
    "code": ("code", {"code": "result = 1"}),
    "command-file": ("shell", {"command_file": "texts/run.sh"}),
    "code-file": ("code", {"code_file": "texts/run.py"}),
    "mcp": ("mcp", {"server": "own", "tool": "echo", "arguments": "{}"}),
}
ROWS = """# save-dataset

Keeps the rows of a file.

## Steps

### found

- type: read-file
- file_path: given/rows.json

### it

- type: save-dataset
- name: rows
- rows: ${found.content}
"""
ASK = """# ask

Waits for a person, then copies a file.

## Steps

### may

- type: approval
- message: Copy it?

### it

- type: copy-file
- source: given/notes.txt
- destination: page/out.txt
- overwrite: true
"""
NOTE = """# note

Says what it is given.

## Inputs

### text

- type: string

## Steps

### it

- type: note
- text: ${text}
"""
WANTS = """# wants

Asks for a folder.

## Steps

### it

- type: shell
- command: ls given/more

## Settings

- folders: [given/more]
"""
OTHERS = {"save-dataset": ROWS, "ask": ASK, "note": NOTE, "wants": WANTS}
MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        own = {"name": "own", "version": "1"}
        info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": own}
        tools = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        done = {"content": [{"type": "text", "text": "done"}]}
        found = {"initialize": info, "tools/list": tools, "tools/call": done}.get(asked["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": found}), flush=True)
"""


def written(*, http_port: int) -> dict[str, str]:
    """Name -> the text of the file."""
    found = dict(OTHERS)
    for name, (kind, given) in STEPS.items():
        listed = "\n".join(f"- {key}: {value}" for key, value in given.items())
        found[name] = EXECUTION.format(name=name, type=kind, parameters=listed).replace("HTTP_PORT", str(http_port))
    return found
