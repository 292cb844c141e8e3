"""What is said of the compiled module where it is missing, or asked for what there is not."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import softly


def python(code, **environment):
    inherited = {name: value for name, value in os.environ.items() if name not in ("SOFTLY_ISA", "SOFTLY_NATIVE")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**inherited, **environment}
    )


def test_an_unknown_instruction_set_is_refused():
    done = python("import softly", SOFTLY_ISA="bogus")
    assert done.returncode == 1
    assert "SOFTLY_ISA must be one of portable, avx2, avx512, got 'bogus'" in done.stderr


MISSING = """
import sys, warnings
sys.modules["softly._native"] = None
import torch, softly
warnings.simplefilter("always")
assert not softly.native.available() and softly.native.isa() is None
print(softly.native.why())
with warnings.catch_warnings(record=True) as caught:
    for _ in range(3):
        print(softly.sort(torch.tensor([3.0, 1.0, 2.0]), sorter=softly.SortingNetwork(steepness=1e6)).round())
print(len(caught), caught[0].message if caught else "")
"""


def test_missing_kernels_are_told_of_once():
    done = python(MISSING)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "_native" in lines[0]
    assert lines[1:4] == ["tensor([1., 2., 3.])"] * 3
    assert lines[4].startswith("1 softly runs without its compiled kernels")


def test_who_switched_them_off_is_not_told():
    done = python(MISSING, SOFTLY_NATIVE="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "switched off by SOFTLY_NATIVE=0"
    assert done.stdout.splitlines()[4] == "0 "


def test_what_was_not_built_is_said_to_be_missing(tmp_path):
    shutil.copytree(Path(softly.__file__).parent, tmp_path / "softly", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    paths = [str(tmp_path), sysconfig.get_path("purelib")]
    code = f"import sys; sys.path[:0] = {paths}; import softly; print(softly.native.why())"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "No module named 'softly._native'\n"


@pytest.mark.native
def test_where_they_are_there_is_no_reason():
    done = python("import softly; print(repr(softly.native.why()))")
    assert done.stdout == "''\n"
