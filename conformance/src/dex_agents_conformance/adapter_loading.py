"""Finding an adapter's class: from a name on the command line, and again in a worker process."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from dex_agents_conformance.adapter import AdapterDescription

__all__ = ["AdapterNotFoundError", "adapter_location", "load_adapter", "resolve_adapter_name"]

_WORKSPACE_FOLDERS = ("packages/{name}", "packages/adapter-{name}")


class AdapterNotFoundError(Exception):
    """There is no adapter of this name; the message says what was looked for."""


def adapter_location(adapter: type[AdapterDescription]) -> str:
    """Where another process finds the class that builds the agent: `path/to/file.py:Class`.

    Raises:
        TypeError: The class builds no agent, or stands inside a function.
    """
    for base in adapter.__mro__:
        if base is not AdapterDescription and ("make_flow" in vars(base) or "make_runner" in vars(base)):
            if "<locals>" in base.__qualname__:
                raise TypeError(f"{base.__qualname__} stands inside a function, so a worker process cannot find it")
            return f"{Path(inspect.getfile(base)).resolve()}:{base.__qualname__}"
    raise TypeError(f"{adapter.__name__} must override make_flow or make_runner")


def resolve_adapter_name(name: str) -> str:
    """The location that a name on the command line stands for.

    Args:
        name: `module:Class`, `path/to/file.py:Class`, or in this workspace the short name of a package.

    Raises:
        AdapterNotFoundError: It is none of them.
    """
    if ":" in name:
        return name
    for start in (Path.cwd(), *Path.cwd().parents):
        for folder in _WORKSPACE_FOLDERS:
            file = start / folder.format(name=name) / "tests" / "conformance_adapter.py"
            if file.is_file():
                return f"{file}:Adapter"
    raise AdapterNotFoundError(
        f"there is no adapter {name!r}: give module:Class or path/to/file.py:Class; a short name works inside a "
        "workspace that has packages/<name>/tests/conformance_adapter.py"
    )


def load_adapter(location: str) -> type[AdapterDescription]:
    """Import an adapter's class.

    Args:
        location: `module:Class` or `path/to/file.py:Class`.

    Raises:
        AdapterNotFoundError: There is no such module or class.
        TypeError: It is no adapter.
    """
    place, _, name = location.rpartition(":")
    module = _load_file(Path(place)) if place.endswith(".py") else _import(place)
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise AdapterNotFoundError(f"{place} has no class {name!r}")
    if not isinstance(found, type) or not issubclass(found, AdapterDescription):
        raise TypeError(f"{location} is no subclass of AdapterConformance")
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise AdapterNotFoundError(f"there is no module {name!r}: {error}") from error


def _load_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise AdapterNotFoundError(f"there is no file {file}")
    module_name = f"conformance_adapter_of_{file.resolve().parent.parent.name}".replace("-", "_").replace(".", "_")
    if (loaded := sys.modules.get(module_name)) is not None and loaded.__file__ == str(file.resolve()):
        return loaded
    spec = importlib.util.spec_from_file_location(module_name, file.resolve())
    if spec is None or spec.loader is None:
        raise AdapterNotFoundError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # annotations of the file's classes are looked up here
    own_folder = str(file.resolve().parent)
    if own_folder not in sys.path:
        sys.path.append(own_folder)  # the file may import modules beside it
    spec.loader.exec_module(module)
    return module
