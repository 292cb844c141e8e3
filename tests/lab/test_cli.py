"""The `softly` command, as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import softly
from softly_lab.commands import commands

SOFTLY = Path(sys.executable).with_name("softly")


def command(*arguments, **environment):
    return subprocess.run(
        [SOFTLY, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


def test_version():
    result = command("--version")
    assert (result.returncode, result.stdout) == (0, f"softly {softly.__version__}\n")


def test_without_arguments_it_shows_its_help():
    result = command()
    assert "tour" in result.stdout
    assert "makes it differentiable" in result.stdout


def test_unknown_command_is_refused():
    result = command("towr")
    assert result.returncode == 2
    assert "towr" in result.stderr


@pytest.mark.parametrize("package", ["typer", "rich", "matplotlib"])
def test_missing_package_is_explained(package, tmp_path):
    # A None in sys.modules makes an import fail as if the package weren't installed.
    code = f"""
import sys
sys.modules[{package!r}] = None
sys.argv = ["softly", "tour", "--out", {str(tmp_path)!r}]
from softly_lab.cli import app
app()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert package in result.stderr
    assert 'pip install "softly[lab]"' in result.stderr
    assert "Traceback" not in result.stderr


def test_the_tour_refuses_a_file_before_it_works(tmp_path, monkeypatch):
    monkeypatch.setattr("softly_lab.tour.run", lambda out: pytest.fail("it worked"))
    file = tmp_path / "page.html"
    file.write_text("mine")
    for out in (file, file / "deeper"):
        result = CliRunner().invoke(commands, ["tour", "--out", str(out)])
        assert result.exit_code == 1
        assert result.stderr.startswith("softly: ")
        assert str(file) in result.stderr
    assert file.read_text() == "mine"
