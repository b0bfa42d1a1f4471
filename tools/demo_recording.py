"""Records `leadrope demo` in a terminal of its own and writes docs/demo.svg, the recording at the top of README.

    python tools/demo_recording.py [FILE]            (`make pictures`)

The run is real: Claude Code, supervised, with the demo's script as its model. A person who reads for a moment and then
approves is played by this script.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from terminal_picture import COLUMNS, Written, svg

ROOT = Path(__file__).resolve().parents[1]
TITLE = "leadrope demo: an agent reads and edits a file, and a person approves the command that it wants to run"
ANSWER = "y"
READING_S = 2.5
PATIENCE_S = 120
_PROMPT = "$ leadrope demo"
_QUESTION = re.compile(r"Allow\?.*\[e\]dit[^\n]*: $", re.DOTALL)
_SCRATCH = re.compile(r"/\S*?leadrope-demo-\w+/")


def record(program: list[str]) -> Iterator[Written]:
    """The demo's output, piece by piece; it is answered once."""
    yield Written(0.0, f"\x1b[2m$\x1b[0m {_PROMPT[2:]}\r\n")
    with tempfile.TemporaryDirectory(prefix="leadrope-recording-") as home:
        pid, terminal = pty.fork()
        if pid == 0:
            environ = {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": home,
                "TERM": "xterm-256color",
                "LANG": "C.UTF-8",
            }
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
            os.execve(program[0], program, environ)
        try:
            yield from _read(terminal)
        finally:
            os.close(terminal)
            _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(program)} ended with {os.waitstatus_to_exitcode(status)}")


def _read(terminal: int) -> Iterator[Written]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    began, delay, seen, is_answered = time.monotonic(), 0.0, "", False
    while select.select([terminal], [], [], PATIENCE_S)[0]:
        try:
            text = decoder.decode(os.read(terminal, 65536))
        except OSError:  # the demo has ended
            break
        yield Written(time.monotonic() - began + delay, _SCRATCH.sub("~/", text))
        seen += text
        if not is_answered and _QUESTION.search(seen):
            # The recording waits for its reader; this process need not.
            delay += READING_S
            os.write(terminal, f"{ANSWER}\n".encode())
            is_answered = True
    else:
        raise SystemExit(f"the demo said nothing for {PATIENCE_S} s after: {seen[-300:]!r}")


def main(target: Path) -> None:
    program = shutil.which("leadrope", path=str(Path(sys.executable).parent))
    if program is None:
        raise SystemExit("leadrope is not installed beside this Python: run `make setup`")
    target.write_text(svg(record([program, "demo"]), title=TITLE), encoding="utf-8")
    print(f"wrote {target} ({target.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/demo.svg")
