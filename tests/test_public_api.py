"""Every public name explains itself and shows an example, which pytest runs as a doctest."""

import importlib
import inspect
import pkgutil

import pytest

import softly


def public_modules():
    yield softly
    for info in pkgutil.walk_packages(softly.__path__, "softly."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            yield importlib.import_module(info.name)


MODULES = {module.__name__: module for module in public_modules()}
SYMBOLS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES.values()
    for name in getattr(module, "__all__", ())
}
CALLABLES = {name: value for name, value in SYMBOLS.items() if inspect.isroutine(value) or inspect.isclass(value)}


def public_members(cls):
    """The methods and properties that a class defines itself, by name."""
    for name, member in vars(cls).items():
        if not name.startswith("_") and (
            inspect.isroutine(member) or isinstance(member, (property, staticmethod, classmethod))
        ):
            yield name, getattr(cls, name)


@pytest.mark.parametrize("name", MODULES)
def test_module_has_docstring(name):
    assert (MODULES[name].__doc__ or "").strip()


@pytest.mark.parametrize("name", CALLABLES)
def test_symbol_has_docstring_with_example(name):
    docstring = CALLABLES[name].__doc__ or ""
    assert docstring.strip(), f"{name} has no docstring"
    assert ">>>" in docstring, f"{name} shows no example"


@pytest.mark.parametrize("name", [name for name, value in CALLABLES.items() if inspect.isclass(value)])
def test_members_have_docstrings(name):
    # getdoc: an override that says nothing new inherits what its base class says.
    bare = [member for member, value in public_members(CALLABLES[name]) if not inspect.getdoc(value)]
    assert not bare, f"{name}: {', '.join(bare)} without docstring"


# Whatever has a default is keyword-only, so that calls say what they set. These may go without a name: ---------------

OBVIOUS = {  # the one thing that a call is about
    "softly.Renderer": "image_size",
    "softly.SortingNetwork": "network",
    "softly.TopKNetwork": "network",
    "softly.relax": "function",
    "softly.distributions.Distribution.sample": "shape",
    "softly.distributions.Gamma": "shape",
    "softly.logic.LogicClassifier": "widths",
    "softly.logic.LogicRegressor": "widths",
    "softly.logic.OneHot": "categories",
    "softly.logic.Thermometer": "num_bits",
    "softly.logic.Threshold": "thresholds",
    "softly.logic.summary.Summary.plot": "ax",
    "softly.rendering.Mesh.corners": "values",
    "softly.rendering.icosphere": "vertices",
    "softly.sorting.networks.Network.draw": "values",
    **dict.fromkeys(
        (f"softly.tnorms.{name}" for name in ("AczelAlsina", "Dombi", "Frank", "Hamacher", "SchweizerSklar", "Yager")),
        "p",
    ),
}
DATA = {  # tensors and scenes that need not be there
    "softly.Renderer.buffers": "mesh camera",
    "softly.Renderer.forward": "lights",
    "softly.TopKCrossEntropy.forward": "p_k",
    "softly.estimators.SpoPlusLoss.forward": "solution",
    "softly.rendering.Camera": "centre",
}
OTHERS = {  # as scikit-learn, chapter 2 and relaxed functions have them
    "softly.logic.LogicClassifier.fit": "sample_weight",
    "softly.logic.LogicRegressor.fit": "sample_weight",
    **dict.fromkeys(
        (
            f"softly.algorithms.{name}"
            for name in ("CatProbEq", "CosineSimilarity", "Eq", "GEq", "GT", "LEq", "LT", "NEq")
        ),
        "beta",
    ),
    "softly.algorithms.If": "if_true if_false",
    "softly.algorithms.library.bellman_ford": "margin",
    "softly.algorithms.library.shortest_path_program": "rounds",
    "softly.rendering.voxelize": "resolution",
}


def unnamed(function):
    """The arguments that have a default and can be given without their name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds and p.default is not p.empty
    ]


def called():
    """Public functions, classes and methods under one of their names, and the arguments that need no name."""
    found = {}
    for name, value in CALLABLES.items():
        if inspect.isclass(value) and issubclass(value, (tuple, BaseException)):
            continue
        key = id(value)
        if key not in found or len(name) < len(found[key][0]):
            found[key] = name, value
    for name, value in found.values():
        members = public_members(value) if inspect.isclass(value) else ()
        for path, function in ((name, value), *((f"{name}.{member}", f) for member, f in members)):
            if callable(function):
                yield path, unnamed(function)


def test_what_has_a_default_is_keyword_only():
    allowed = {**OBVIOUS, **DATA, **OTHERS}
    found = {name: " ".join(arguments) for name, arguments in called() if arguments}
    assert found == allowed
