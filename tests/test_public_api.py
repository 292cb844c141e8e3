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
