"""The fault and fuzz tests with their full counts, and bench/SOAK.md with what came of them; exits as pytest does.

A count without its result is none: the table is written from pytest's own record, also when a test has failed.
Arguments go to pytest; then the table is only printed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from leadrope.providers.claude_code.locate import bundled
from tables import as_text

ROOT = Path(__file__).parents[1]
REPORT = Path(__file__).with_name("SOAK.md")
COUNTS = {"LEADROPE_FAULT_COUNT": "50", "LEADROPE_FUZZ_COUNT": "100000"}
# Most of them wait for processes, not for the CPU.
WORKERS = 3
# One test is fifty runs here, some of them of the real CLI; the suite's own limit is for five.
LONGEST_TEST_S = 3600


class Case(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    count: str
    result: str
    seconds: float


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="leadrope-soak-") as folder:
        record = Path(folder, "junit.xml")
        command = [
            *(sys.executable, "-m", "pytest", "-m", "fault", "-p", "no:cacheprovider"),
            *("-n", str(WORKERS), "--dist", "worksteal"),
            # The newer form of the record has no place for the counts that tests tell.
            *(f"--timeout={LONGEST_TEST_S}", f"--junit-xml={record}", "-o", "junit_family=xunit1", *sys.argv[1:]),
        ]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, **COUNTS}, check=False).returncode
        if not record.exists():
            print(f"soak: pytest ended with {code} and left no record; {REPORT} is unchanged", file=sys.stderr)
            return code or 1
        cases = read(record.read_text(encoding="utf-8"), COUNTS)
    if sys.argv[1:]:
        print(page(cases, code))  # a part of the tests is no soak, and must not pass for one
    else:
        REPORT.write_text(page(cases, code), encoding="utf-8")
        print(f"written: {REPORT}")
    return code


def read(junit: str, counts: Mapping[str, str]) -> list[Case]:
    """The cases of pytest's record. A test may tell its own count with record_property("count", n)."""
    found = []
    for case in ET.fromstring(junit).iter("testcase"):
        told = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        bad = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
        name = case.get("name", "")
        is_fuzz = "fuzz" in case.get("classname", "")
        usual = counts["LEADROPE_FUZZ_COUNT" if is_fuzz else "LEADROPE_FAULT_COUNT"]
        found.append(
            Case(
                name=f"{case.get('classname', '').rpartition('.')[2]}::{name}",
                count=told.get("count") or usual,
                result=" and ".join({"failure": "FAILED", "error": "ERROR"}.get(kind, kind) for kind in bad)
                or "passed",
                seconds=float(case.get("time", 0)),
            )
        )
    return found


def page(cases: list[Case], code: int) -> str:
    rows = [(c.name, f"{int(c.count):,}", c.result, f"{c.seconds:.1f}") for c in cases]
    passed = sum(c.result == "passed" for c in cases)
    return f"""# The last soak

Fault and fuzz tests with their full counts, written by `make soak`. A fault test ends that many agents in one way and
looks for survivors each time; a fuzz test reads that many damaged lines.

- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC
- commit: {commit()}
- machine: {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}
- agent: {agent_version()}

{as_text([("test", "count", "result", "seconds"), *rows])}

{passed} of {len(cases)} tests passed in {sum(c.seconds for c in cases):.0f} s; pytest's exit code was {code}.
"""


def commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    # This report itself is about to be written; whatever else differs is worth a word.
    is_dirty = bool(git("status", "--porcelain", "--", ".", f":!{REPORT.relative_to(ROOT)}"))
    return (git("rev-parse", "HEAD") or "unknown") + ("-dirty" if is_dirty else "")


def agent_version() -> str:
    claude = bundled()
    if claude is None:
        return "none installed"
    with tempfile.TemporaryDirectory(prefix="leadrope-soak-") as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "CLAUDE_CONFIG_DIR": home, "DISABLE_AUTOUPDATER": "1"}
        done = subprocess.run([claude, "--version"], env=env, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or f"{claude} --version exited with {done.returncode}"


if __name__ == "__main__":
    sys.exit(main())
