"""The recipes of the documentation, followed to the letter in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from softly.native import library

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/recipes.md").read_text()
RECIPES = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
COPIED = (
    "src",
    "tests",
    "native",
    "CMakeLists.txt",
    "conftest.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "Makefile",
)
# Without `site` no editable installation steps in, and the copy is what is imported.
START = """import runpy, sys
sys.path[:0] = [{source!r}, {packages!r}]
sys.argv = {argv!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def blocks(recipe):
    """(language, path, content) of the blocks of a recipe, in their order."""
    return re.findall(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```$", RECIPES[recipe], re.DOTALL | re.MULTILINE)


def changed(text, change):
    """A text after a change whose lines begin with a space, ``-`` or ``+``; what it replaces stands there once."""
    lines = change.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
    assert text.count(before) == 1, f"not once in the file:\n{before}"
    return text.replace(before, after)


def written(recipe, target):
    """A copy of the repository in which a recipe was followed; its commands."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "files"))
        else:
            shutil.copy(source, target / name)
    commands = []
    for language, path, content in blocks(recipe):
        if language == "console":
            commands += [line.removeprefix("$ ") for line in content.splitlines()]
        elif language == "diff":
            (target / path).write_text(changed((target / path).read_text(), content))
        else:
            assert not (target / path).exists()
            (target / path).write_text(content)
    return commands


def run(command, target):
    """A command of a recipe, with the softly of the copy."""
    program, *arguments = command.split()
    if program == "python":
        assert arguments.pop(0) == "-m"
        module, *arguments = arguments
        if module == "pytest":
            arguments += ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
    else:
        assert program == "softly"
        module = "softly_lab"
    paths = {"source": str(target / "src"), "packages": sysconfig.get_path("purelib")}
    code = START.format(**paths, module=module, argv=[program, *arguments])
    # What has been compiled for the original must not be taken for the copy.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=target, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def with_kernels(target):
    """Gives the copy the kernels of the original."""
    if library.module is not None:
        shutil.copy(library.module.__file__, target / "src/softly")


def test_all_recipes_are_followed():
    assert set(RECIPES) == {"Add a distribution", "Add a sorter", "Add a kernel", "Add an experiment"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_fits(recipe, tmp_path):
    assert written(recipe, tmp_path)
    for language, path, content in blocks(recipe):
        if language == "python":
            compile(content, path, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "Add a kernel"])
def test_recipe(recipe, tmp_path):
    commands = written(recipe, tmp_path)
    with_kernels(tmp_path)
    shown = [run(command, tmp_path) for command in commands]
    assert shown
    for command, output in zip(commands, shown, strict=True):
        assert "pytest" not in command or re.search(r"\d+ passed", output)
    if recipe == "Add an experiment":
        assert (tmp_path / "runs/median/result.json").exists()


@pytest.mark.slow
@pytest.mark.native
def test_kernel_recipe(tmp_path):
    first, *commands = written("Add a kernel", tmp_path)
    assert first == "make install"
    build = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(
        build, cwd=tmp_path, check=True, capture_output=True, env={**os.environ, "SOFTLY_REQUIRE_NATIVE": "1"}
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "wheel", "zip")
    (module,) = (tmp_path / "wheel/softly").glob("_native*.so")
    shutil.copy(module, tmp_path / "src/softly")
    for command in commands:
        assert re.search(r"\d+ passed", run(command, tmp_path))


def test_changes_are_exact():
    assert changed("a\nb\nc\n", " a\n+x\n b\n") == "a\nx\nb\nc\n"
    assert changed("a\nb\n", "-a\n+x\n") == "x\nb\n"
    for missing in (" z\n+x\n", " a\n b\n c\n"):
        with pytest.raises(AssertionError, match="not once"):
            changed("a\nb\n", missing)
