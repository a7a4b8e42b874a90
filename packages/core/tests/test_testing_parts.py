"""The small parts of the testing kit, each on its own."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import socket
import sys
import types
from pathlib import Path

import pytest

from dex_agents import testing
from dex_agents.testing import FileGate, find_free_loopback_ports, poll_until
from dex_agents.testing.flow_factories import load_flow_factory, locate_flow_factory


def test_the_package_names_exactly_what_it_exports_and_documents_it() -> None:
    exported = {
        name
        for name, value in vars(testing).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(testing.__all__) == exported
    assert len(testing.__all__) == len(exported)
    aliases = {"FlowFactory", "StepProcess"}  # a type alias has no docstring at run time
    undocumented = [name for name in exported - aliases if not inspect.getdoc(getattr(testing, name))]
    assert undocumented == []


def test_free_ports_are_distinct_and_can_be_bound() -> None:
    ports = find_free_loopback_ports(20)
    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", ports[0])):
        pass
    with pytest.raises(ValueError, match="at least 1"):
        find_free_loopback_ports(0)


def test_a_probe_is_asked_until_it_has_an_answer() -> None:
    answers = iter([None, False, 0])
    assert asyncio.run(poll_until(lambda: next(answers), awaited="a number", interval=0)) == 0

    async def probe() -> str | None:
        return "there"

    assert asyncio.run(poll_until(probe, awaited="a text", timeout=0)) == "there"


def test_a_probe_without_an_answer_times_out_with_its_last_one() -> None:
    with pytest.raises(TimeoutError, match=r"did not see a file within 0\.01 s; the last answer was False"):
        asyncio.run(poll_until(lambda: False, awaited="a file", timeout=0.01))


def test_what_a_probe_raises_is_not_hidden() -> None:
    def probe() -> None:
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        asyncio.run(poll_until(probe, awaited="nothing"))


def test_a_gate_holds_whoever_comes_while_it_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = FileGate(tmp_path, "paying")
        await gate.pass_through()
        gate.close()
        held = asyncio.create_task(FileGate(tmp_path, "paying").pass_through())
        assert await gate.wait_until_reached() == os.getpid()
        assert not held.done()
        gate.open()
        await asyncio.wait_for(held, 30)
        gate.close()
        with pytest.raises(TimeoutError):
            await gate.wait_until_reached(timeout=0.01)
        blocked = asyncio.create_task(asyncio.to_thread(gate.pass_through_blocking))
        await gate.wait_until_reached(process=os.getpid())
        gate.open()
        await asyncio.wait_for(blocked, 30)

    asyncio.run(scenario())


def test_a_gate_has_a_plain_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        FileGate(tmp_path, "../*")


def write_agent(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("def create_flow(directory):\n    return directory\n", encoding="utf-8")


def test_a_factory_on_the_import_path_is_found_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_agent(tmp_path / "kit_shop" / "kit_refunds.py")
    monkeypatch.syspath_prepend(tmp_path)
    location = "kit_shop.kit_refunds:create_flow"
    factory = load_flow_factory(location)
    assert locate_flow_factory(factory) == location
    assert load_flow_factory(location) is factory


@pytest.mark.parametrize("name", ["__main__", "kit_tests.kit_refunds", "json"])
def test_a_factory_of_a_file_that_no_import_finds_is_found_by_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kit_refunds.py"
    write_agent(file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    location = locate_flow_factory(module.create_flow)
    assert location == f"{file}:create_flow"
    assert load_flow_factory(location).__name__ == "create_flow"
    monkeypatch.delitem(sys.modules, "kit_refunds")


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("create_flow", ValueError),
        ("module:", ValueError),
        ("no_such_module:create_flow", ImportError),
        ("nowhere/agent.py:create_flow", ImportError),
        ("dex_agents.testing:no_such_factory", ImportError),
    ],
)
def test_a_factory_that_is_not_there_is_refused(location: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        load_flow_factory(location)


@pytest.mark.parametrize(
    "name", ["environment", "file_gate", "flow_factories", "session_client", "step_history", "worker_process"]
)
def test_every_module_exports_names_that_exist(name: str) -> None:
    module = importlib.import_module(f"dex_agents.testing.{name}")
    assert module.__doc__
    assert [exported for exported in module.__all__ if not hasattr(module, exported)] == []
