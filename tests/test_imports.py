"""Imports point one way: native ← the core ← the areas ← softly_lab."""

import ast
import importlib.util
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
CORE = {"distributions", "tnorms", "minmax", "elementary"}
AREAS_USED = {"selection": {"sorting"}, "optimization": {"estimators"}}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports_in(tree: ast.AST, module: str, is_package: bool, modules: set[str]) -> set[str]:
    """The absolute names of the softly modules that a module imports, wherever in it the statement stands."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(dots, package) if node.level else dots
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                found.add(submodule if submodule in modules or alias.name == "_native" else base)
    return {name for name in found if name.split(".")[0] in ("softly", "softly_lab")}


def refusal(importer: str, imported: str) -> str | None:
    """Why ``importer`` must not import ``imported``; None where it may."""
    package, _, inside = importer.partition(".")
    target_package, _, target_inside = imported.partition(".")
    if package == "softly_lab":
        return "only native.py imports the compiled module" if imported == "softly._native" else None
    if target_package == "softly_lab":
        return "the library doesn't know softly_lab"
    unit, target = inside.split(".")[0], target_inside.split(".")[0]
    if target == "_native":
        return None if unit == "native" else "only native.py imports the compiled module"
    if unit == "":
        return None  # softly/__init__.py collects the public names
    if target == "":
        return "the package's own modules don't import its root"
    if unit == target:
        return None
    if unit == "native":
        return "native imports only torch and the compiled module"
    if target == "native" or (target.startswith("_") and unit in CORE):
        return None
    if unit.startswith("_"):
        return None if target.startswith("_") else "a private module at the root is below all others"
    if unit in CORE:
        return None if target in CORE else "the core doesn't know the areas"
    if target in CORE or target.startswith("_") or importer == "softly.algorithms.library":
        return None
    return None if target in AREAS_USED.get(unit, ()) else "areas don't import each other"


GRAPH = {
    name: imports_in(ast.parse(path.read_text()), name, path.name == "__init__.py", set(MODULES))
    for name, path in MODULES.items()
}


@pytest.mark.parametrize("importer", MODULES)
def test_imports_point_one_way(importer):
    reasons = {imported: refusal(importer, imported) for imported in GRAPH[importer]}
    assert not {imported: reason for imported, reason in reasons.items() if reason}


# What the library needs, and what one area of it asks for where a user calls that area.
OUTSIDE = {"torch", "numpy", "safetensors"}
ASKED_FOR = {
    "softly.estimators.solvers": {"scipy"},
    "softly.logic.classifier": {"sklearn"},
    "softly.logic.estimator": {"sklearn"},
    "softly.logic.summary": {"matplotlib"},
    "softly.rendering.files": {"trimesh"},
    "softly.rendering.images": {"PIL"},
}


def foreign(tree: ast.AST) -> set[str]:
    """The packages outside of softly and Python that a module imports, wherever in it the statement stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module)
    return {name.split(".")[0] for name in found} - sys.stdlib_module_names - {"softly", "softly_lab"}


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "softly"])
def test_the_library_needs_three_packages(name):
    assert foreign(ast.parse(MODULES[name].read_text())) <= OUTSIDE | ASKED_FOR.get(name, set())


def test_no_import_cycles():
    # A package that re-exports its modules is above them, and its modules don't import it.
    graph = {name: {other for other in imported if other in MODULES} for name, imported in GRAPH.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


# Words that only data sets have, which the library does not know.
DATA_SETS = re.compile(r"mnist|cifar|monk[123s]|adult|breast.cancer|imagenet|letor", re.IGNORECASE)
LIBRARY = [name for name in MODULES if name.split(".")[0] == "softly"]


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_knows_no_data_set(name):
    assert not DATA_SETS.findall(MODULES[name].read_text())


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("softly", "softly.sorting", True),
        ("softly.native", "softly._native", True),
        ("softly.tnorms", "softly._native", False),
        ("softly.native", "softly.tnorms", False),
        ("softly.minmax", "softly.distributions", True),
        ("softly.minmax", "softly._clamped", True),
        ("softly._clamped", "softly.minmax", False),
        ("softly.minmax", "softly.sorting.networks", False),
        ("softly.sorting.networks", "softly.minmax", True),
        ("softly.sorting.networks", "softly", False),
        ("softly.sorting.losses", "softly.selection", False),
        ("softly.selection.losses", "softly.sorting", True),
        ("softly.optimization.resgro", "softly.estimators.smoothing", True),
        ("softly.algorithms.library", "softly.rendering", True),
        ("softly.algorithms.engine.control", "softly.rendering", False),
        ("softly.logic.layers", "softly_lab.data", False),
        ("softly_lab.cli", "softly.sorting", True),
        ("softly_lab.cli", "softly._native", False),
    ],
)
def test_the_rules(importer, imported, allowed):
    assert (refusal(importer, imported) is None) == allowed


def test_every_form_of_import_is_seen():
    source = """
import softly.tnorms
from softly import minmax, native
from . import networks
from .. import distributions
from ..selection.losses import TopKCrossEntropy
import torch

def late():
    from softly import _native, sort
"""
    modules = {"softly.minmax", "softly.native", "softly.distributions", "softly.sorting.networks"}
    assert imports_in(ast.parse(source), "softly.sorting.losses", False, modules) == {
        *("softly.tnorms", "softly.minmax", "softly.native", "softly.sorting.networks"),
        *("softly.distributions", "softly.selection.losses", "softly._native", "softly"),
    }
