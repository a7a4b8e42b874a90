"""The embedded engine passes the engine suite, with either durability."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from dex_flow import Engine, Flow
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing.engine_suite import EngineFactory, EngineSuite


class EmbeddedSuite(EngineSuite):
    durability: ClassVar[Literal["power", "process"]]

    def engine_factory(self, tmp_path: Path) -> EngineFactory:
        path = tmp_path / "flows.db"
        durability = self.durability

        def open_engine(*, flows: Sequence[Flow], runs_worker: bool = True) -> AbstractAsyncContextManager[Engine]:
            return EmbeddedEngine(path, flows=flows, runs_worker=runs_worker, durability=durability)

        return open_engine


class TestPowerDurability(EmbeddedSuite):
    durability = "power"


class TestProcessDurability(EmbeddedSuite):
    durability = "process"


def test_a_silently_replaced_case_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Shortened\.test_a_start_request_with_another_input_is_refused replaces"):

        class Shortened(EngineSuite):
            def test_a_start_request_with_another_input_is_refused(self, tmp_path: Path) -> None:
                pass


def test_a_case_may_be_replaced_with_a_reason() -> None:
    class Marked(EngineSuite):
        @pytest.mark.xfail(reason="no request IDs yet")
        def test_a_start_request_with_another_input_is_refused(self, tmp_path: Path) -> None:
            raise NotImplementedError

    assert issubclass(Marked, EngineSuite)
