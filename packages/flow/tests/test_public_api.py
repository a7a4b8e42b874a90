"""What users import: every public package names exactly what it exports, and the primitives are all at the root."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types

import pytest

import dex_flow

PUBLIC_PACKAGES = ["dex_flow", "dex_flow.embedded", "dex_flow.kernel", "dex_flow.testing"]
PRIMITIVES = [
    "decisions",
    "declarations",
    "engine",
    "errors",
    "flow",
    "options",
    "rpcs",
    "steps",
    "transaction",
    "waits",
]
MODULES = [module.name for module in pkgutil.walk_packages(dex_flow.__path__, "dex_flow.")]


@pytest.mark.parametrize("name", PUBLIC_PACKAGES)
def test_a_public_package_names_exactly_what_it_exports(name: str) -> None:
    package = importlib.import_module(name)
    exported = {
        attribute
        for attribute, value in vars(package).items()
        if not attribute.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert isinstance(package.__all__, tuple)
    assert set(package.__all__) == exported
    assert len(package.__all__) == len(exported), "a name is listed twice"


@pytest.mark.parametrize("name", MODULES)
def test_every_name_of_all_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, "a module says what it is for"
    assert [attribute for attribute in module.__all__ if not hasattr(module, attribute)] == []


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_is_exported_at_the_root(name: str) -> None:
    module = importlib.import_module(f"dex_flow.{name}")
    assert set(module.__all__) <= set(dex_flow.__all__)


def test_every_public_error_has_the_same_base_and_says_when_it_is_raised() -> None:
    errors = [value for value in vars(dex_flow).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert len(errors) > 10
    for error in errors:
        assert issubclass(error, dex_flow.DexFlowError)
        assert error.__doc__
        assert error.__doc__ != dex_flow.DexFlowError.__doc__ or error is dex_flow.DexFlowError


@pytest.mark.parametrize("name", dex_flow.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(dex_flow, name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        assert name in ("Condition", "FlowStatus"), "only type aliases carry no docstring"
        return
    documented = inspect.cleandoc(value.__doc__ or "")
    assert documented
    assert not documented.startswith(f"{name}("), "a generated docstring says nothing"
