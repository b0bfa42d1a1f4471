"""Every line of the table that counts as reading is run in a real repository, which is the same afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from leadrope.policy.programs.read_only import reads_only
from leadrope.policy.shell.reader import read

DATA = Path(__file__).parents[2] / "data" / "commands" / "read_only.yaml"
PYTHON = Path(sys.executable).resolve()
# git refreshes what it remembers of the files' times in its index; the index is compared by what it lists.
DRIVER = r"""
import hashlib, json, os, subprocess, sys
root = sys.argv[1]
repo = f"{root}/repo"
environ = {"PATH": "/usr/bin:/bin", "HOME": f"{root}/home", "LC_ALL": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "1"}


def picture():
    found = {}
    for base in (repo, f"{root}/home"):
        for folder, folders, files in os.walk(base):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                if path == f"{repo}/.git/index":
                    continue
                info = os.lstat(path)
                content = hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.isfile(path) else ""
                found[path] = (info.st_mode, info.st_mtime_ns if content else 0, content)
    return found


changed, codes = {}, {}
before = picture()
for case in json.load(open(f"{root}/cases.json")):
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", case], cwd=repo, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=20,
        )
        codes[case] = [done.returncode, done.stderr.decode(errors="replace")[-300:]]
    except subprocess.TimeoutExpired:
        codes[case] = [-1, "timed out"]
    after = picture()
    if after != before:
        changed[case] = sorted(path for path in {*after, *before} if after.get(path) != before.get(path))
        before = after
json.dump({"changed": changed, "codes": codes}, open(f"{root}/done.json", "w"))
"""
# The repository: two commits, a tag, a stash, a change that is not committed, an archive of each kind.
SETUP = r"""
set -e
mkdir -p home repo/src repo/tests && cd repo
git init -q -b main && git config user.name me && git config user.email me@example.com
printf '# Title\n\nmain text x\n' > README.md
printf '{"name": "x", "scripts": {"test": "true"}}\n' > package.json
printf 'def main():\n    return 1  # TODO\n' > src/app.py
printf 'import src\n' > tests/test_app.py
printf 'b\na\nb\n' > words.txt
printf 'name,n\na,1\nb,2\n' > data.csv
printf 'build\n' > .gitignore
git add -A && git commit -qm one
printf 'x = 1\n' >> src/app.py && git commit -qam two && git tag v1
printf 'stashed\n' >> words.txt && git stash -q
printf 'changed\n' >> README.md
tar czf a.tgz src
gzip -k words.txt
python3 -c 'import zipfile; zipfile.ZipFile("a.zip", "w").write("README.md")'
git status > /dev/null
"""


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
def test_lines_that_only_read_change_no_file(tmp_path: Path) -> None:
    table = msgspec.yaml.decode(DATA.read_bytes(), type=dict[str, object])
    cases = [case for case in msgspec.convert(table["reads"], list[str]) if reads_only(read(case))]
    assert len(cases) >= 150
    root = tmp_path / "box"
    root.mkdir()
    (root / "cases.json").write_text(json.dumps(cases))
    (root / "driver.py").write_text(DRIVER)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(root / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["/bin/bash", "-c", SETUP], cwd=root, env=env, check=True, stdin=subprocess.DEVNULL)
    wall = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    wall += ["--bind", str(root), str(root), "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    subprocess.run(
        ["bwrap", *wall, "--chdir", str(root), PYTHON, "-I", "-S", str(root / "driver.py"), str(root)],
        check=True,
        timeout=170,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin"},
    )
    done = json.loads((root / "done.json").read_text())
    assert done["changed"] == {}
    # A line that does nothing would prove nothing: most of them must have found what they look for.
    worked = [case for case, (code, _) in done["codes"].items() if code == 0]
    assert len(worked) >= 0.85 * len(cases), {case: told for case, told in done["codes"].items() if told[0]}
