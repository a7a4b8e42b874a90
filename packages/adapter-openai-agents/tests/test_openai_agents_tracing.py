"""Traces of the SDK: each Step is one, and those of a session belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, function_tool, set_trace_processors, set_tracing_disabled
from agents.tracing import Span, Trace, TracingProcessor
from openai_agents_sessions import SESSION, open_session

from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


class _Recorder(TracingProcessor):
    def __init__(self) -> None:
        self.traces: list[dict[str, Any]] = []
        self.spans: list[str] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.traces.append(trace.export() or {})

    def on_trace_end(self, trace: Trace) -> None: ...

    def on_span_start(self, span: Span[Any]) -> None: ...

    def on_span_end(self, span: Span[Any]) -> None:
        self.spans.append(span.span_data.type)

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


@pytest.fixture
def recorder() -> Iterator[_Recorder]:
    recorder = _Recorder()
    set_trace_processors([recorder])
    set_tracing_disabled(False)
    yield recorder
    set_tracing_disabled(True)
    set_trace_processors([])


@function_tool
def look() -> str:
    """Looks."""
    return "seen"


def test_every_step_is_a_trace_of_the_session(tmp_path: Path, recorder: _Recorder) -> None:
    async def main() -> None:
        model = ScriptedModel([call_item("look")], [text_item("done")])
        agent = Agent[Any](name="Assistant", model=model, tools=[look])
        async with open_session(agent, tmp_path, run_config=RunConfig(trace_metadata={"team": "a"})) as session:
            await session.answer_of("go")

    asyncio.run(main())
    assert [trace["workflow_name"] for trace in recorder.traces] == ["TestAgent"] * 3
    assert {trace["group_id"] for trace in recorder.traces} == {SESSION}
    assert {str(trace["metadata"]) for trace in recorder.traces} == {
        str({"team": "a", "session_id": SESSION, "turn_id": "turn-1"})
    }
    assert "function" in recorder.spans
    assert "guardrail" not in recorder.spans


def test_names_of_the_application_stay(tmp_path: Path, recorder: _Recorder) -> None:
    async def main() -> None:
        agent = Agent[Any](name="Assistant", model=ScriptedModel([text_item("done")]))
        config = RunConfig(workflow_name="Support", group_id="customer-7")
        async with open_session(agent, tmp_path, run_config=config) as session:
            await session.answer_of("go")

    asyncio.run(main())
    assert [(trace["workflow_name"], trace["group_id"]) for trace in recorder.traces] == [("Support", "customer-7")]
