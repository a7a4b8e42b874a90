"""Finding the function that builds a user's Flow again in another process."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from dex_flow import Flow

__all__ = ["FlowFactory", "load_flow_factory", "locate_flow_factory"]

FlowFactory: TypeAlias = Callable[[Path], Flow]
"""Builds the Flow of an agent for a test; gets the test's directory, where gates and logs are."""


def locate_flow_factory(factory: FlowFactory) -> str:
    """Where another process finds a factory: `module:function`, or `path/to/file.py:function` for a test's own file.

    Raises:
        ValueError: It is no function of a module, such as a lambda or a function inside a function.
    """
    name = getattr(factory, "__qualname__", "<no name>")
    module = sys.modules.get(getattr(factory, "__module__", ""))
    if module is None or getattr(module, name, None) is not factory:
        raise ValueError(f"{factory!r} is no function of a module, so a worker process cannot find it")
    file = inspect.getsourcefile(module)
    if file is None:
        raise ValueError(f"{factory!r} has no source file, so a worker process cannot find it")
    return f"{module.__name__}:{name}" if _is_importable(module.__name__, file) else f"{Path(file).resolve()}:{name}"


def load_flow_factory(location: str) -> FlowFactory:
    """Import a factory.

    Args:
        location: `module:function`, or `path/to/file.py:function`.

    Raises:
        ValueError: It has another form.
        ImportError: There is no such module or function.
    """
    place, separator, name = location.rpartition(":")
    if not separator or not place or not name:
        raise ValueError(f"a flow factory is 'module:function' or 'path/to/file.py:function', not {location!r}")
    module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    factory: FlowFactory | None = getattr(module, name, None)
    if not callable(factory):
        raise ImportError(f"{place} has no function {name!r}")
    return factory


def _is_importable(module_name: str, file: str) -> bool:
    """Whether a new process finds this module by its name: not the program's own file, nor every file of pytest."""
    spec: importlib.machinery.ModuleSpec | None = None
    search: Sequence[str] | None = None
    name = ""
    for part in module_name.split("."):  # `importlib.util.find_spec` would trust what this process has imported
        name = f"{name}.{part}" if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            return False
        search = spec.submodule_search_locations
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()


def _load_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations of the file's classes are looked up here
    spec.loader.exec_module(module)
    return module
