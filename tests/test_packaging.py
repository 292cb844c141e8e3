"""What a user gets: a quiet and light import, types, the command."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import softly
import softly_lab

ROOT = Path(__file__).parents[1]
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import numpy, safetensors.torch, torch
before = set(sys.modules)
import softly
for info in pkgutil.walk_packages(softly.__path__, "softly."):
    if info.name not in ("softly.logic.classifier", "softly.logic.estimator"):  # scikit-learn's, when asked for
        importlib.import_module(info.name)
sys.stderr.write(" ".join({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, check=True, **options
    )


def requirements(distribution, seen):
    """The names of a distribution and of everything that it needs, without extras."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    name = canonicalize_name(distribution)
    if name in seen:
        return seen
    seen.add(name)
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return seen
    for requirement in map(Requirement, needed):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirements(requirement.name, seen)
    return seen


def test_import_says_nothing():
    result = python("-c", "import softly")
    assert result.stdout == ""
    assert result.stderr == ""


def test_import_leaves_the_compiler_alone():
    # torch.compile's machinery takes as long to import as torch itself.
    python("-c", "import sys, softly; assert not {'torch._dynamo', 'torch._inductor'} & set(sys.modules)")


def test_library_imports_only_what_it_needs():
    allowed = set()
    for distribution in ("torch", "numpy", "safetensors"):
        requirements(distribution, allowed)
    owners = metadata.packages_distributions()
    imported = python("-c", IMPORT_EVERYTHING).stderr.split()
    foreign = {
        module: owners[module]
        for module in imported
        if module not in sys.stdlib_module_names and module != "softly" and module in owners
    }
    assert "softly" in imported
    assert not {m: o for m, o in foreign.items() if not {n.lower().replace("_", "-") for n in o} & allowed}


def test_dependencies_are_torch_numpy_and_safetensors():
    from packaging.requirements import Requirement

    needed = map(Requirement, metadata.requires("softly"))
    assert {r.name for r in needed if r.marker is None} == {"torch", "numpy", "safetensors"}


def test_version_has_one_source():
    assert metadata.version("softly") == softly.__version__


@pytest.mark.parametrize("package", [softly, softly_lab])
def test_package_is_typed(package):
    assert Path(package.__file__).with_name("py.typed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("required", ["0", "1"])
def test_without_a_compiler_the_wheel_has_no_compiled_module(required, tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "CXX": "/bin/false", "SOFTLY_REQUIRE_NATIVE": required}
    result = subprocess.run(
        [*command, "-C", f"build-dir={tmp_path / 'build'}", "-w", tmp_path / "dist", Path(__file__).parents[1]],
        env=environment,
        capture_output=True,
    )
    if required == "1":
        assert result.returncode != 0
    else:
        assert [wheel.name for wheel in (tmp_path / "dist").iterdir()] == [
            f"softly-{softly.__version__}-py3-none-any.whl"
        ]


def test_the_readme_shows_its_picture():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", (ROOT / "README.md").read_text())
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)


def test_workflows_cover_what_is_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    versions = {c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)}
    assert versions == set(re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1]))
    (oldest,) = (d.partition(">=")[2] for d in project["dependencies"] if d.startswith("torch"))
    assert f'torch: "{oldest}.0"' in workflow
