"""F06: whatever the history, the cut and the window, no call is ever parted from its result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import event, given
from hypothesis import strategies as st

from dex_agents import AgentMessage, CompactionPolicy, ToolCallsRequested, select_compaction_cutoff
from dex_agents_stepwise import (
    AgentDefinition,
    ModelOutputItem,
    ModelRequest,
    ModelToolResult,
    ScriptedModelClient,
    ScriptedModelReply,
    StepwiseAgentRunner,
    function_tool,
)
from dex_agents_stepwise.framework_items import decode_framework_item
from dex_agents_stepwise.token_estimate import TokenCounts, TokenEstimator

from .stepwise_agent import ask, call, say
from .stepwise_compaction import CompactingSession, is_cut
from .stepwise_session_driver import SessionDriver, StrictModelClient, patient


@function_tool(effect="read")
def read(size: int = 0) -> str:
    return "x" * size


@function_tool(effect="read")
def look(size: int = 0) -> str:
    return "é" * size


@dataclass(frozen=True)
class Turn:
    """What happens in a turn: parallel batches of (call ID, tool, size of the result), and how it ends.

    A `failed` turn stores the results it has and a note, a `lost` one the note alone, a `gone` one nothing.
    """

    text: str
    batches: list[list[tuple[str | None, str, int]]]
    ending: Literal["answer", "failed", "lost", "gone", "switched"]


sizes = st.sampled_from([0, 1, 10, 100, 1_000])
calls = st.tuples(
    st.sampled_from([None, "", " ", "same", "call_1_1", "x" * 300]), st.sampled_from(["read", "look"]), sizes
)
turns = st.builds(
    Turn,
    text=st.builds(lambda size: "u" * (size + 1), sizes),
    batches=st.lists(st.lists(calls, min_size=1, max_size=4), max_size=4),
    ending=st.sampled_from(["answer", "failed", "lost", "gone", "switched"]),
)
policies = st.builds(
    lambda window, trigger, retained: CompactionPolicy(
        context_window_tokens=window, trigger_ratio=trigger, retained_ratio=trigger * retained
    ),
    st.sampled_from([1, 50, 200, 500, 1_000, 5_000]),
    st.floats(0.05, 1),
    st.floats(0.01, 0.99),
)


class Conversation:
    """Plays turns with a model of one provider or, after a switch, of another."""

    def __init__(self, policy: CompactionPolicy) -> None:
        self.replies: list[ScriptedModelReply] = []
        self.models = {
            name: StrictModelClient(ScriptedModelClient(self.reply, provider=name), has_odd_ids=True)
            for name in ("first", "second")
        }
        definition = AgentDefinition(
            name="any",
            instructions="Help.",
            model=self.models["first"],
            resolve_model=lambda settings: self.models[settings["model"]],
            tools=[read, look],
        )
        self.compacting = CompactingSession(SessionDriver(StepwiseAgentRunner(definition)), policy)
        self.session = self.compacting.session
        self.session.settings = {"model": "first"}
        self.expected_results: list[str] = []

    def reply(self, request: ModelRequest) -> ScriptedModelReply:
        seen = [item.output for item in request.input_items if isinstance(item, ModelToolResult)]
        if ScriptedModelClient.is_summary_request(request):
            assert request.tools == ()
            return say("a summary")
        # What is kept is the end of everything that happened, in order and without a gap.
        assert seen == self.expected_results[len(self.expected_results) - len(seen) :]
        return self.replies.pop(0)

    async def play(self, turn: Turn) -> None:
        session = self.session
        session.begin_turn(turn.text)
        for batch in turn.batches:
            self.replies = [ask(*(call(name, {"size": size}, call_id) for call_id, name, size in batch))]
            assert isinstance(await self.compacting.model_step(), ToolCallsRequested)
            await session.run_tools()
            is_lost = turn.ending in ("lost", "gone") and batch is turn.batches[-1]
            missing = (
                "It is unknown whether this tool call took effect: it was interrupted and may have run to the end. "
            )
            self.expected_results += [
                f"{missing}Check what happened before you call it again."
                if is_lost
                else ("x", "é")[name == "look"] * size
                for _, name, size in batch
            ]
        if turn.ending == "gone":
            return
        if turn.ending in ("failed", "lost"):
            if turn.ending == "failed":
                session.store(*session.runner.build_unfinished_turn_messages(session.turn_context()))
            session.store(session.runner.build_user_message("[Dex] The previous turn failed."))
            return
        self.replies = [say("an answer")]
        await self.compacting.model_step()
        if turn.ending == "switched":
            session.settings = {"model": "second" if session.settings["model"] == "first" else "first"}


@patient
@given(st.lists(turns, min_size=1, max_size=5), policies)
def test_every_request_of_a_compacted_session_is_one_that_a_strict_provider_takes(
    played: list[Turn], policy: CompactionPolicy
) -> None:
    conversation = Conversation(policy)

    async def play() -> None:
        for turn in played:
            await conversation.play(turn)

    asyncio.run(play())
    cutoffs = conversation.compacting.cutoffs
    event(f"{min(len(cutoffs), 5)} cuts")
    assert cutoffs == sorted(set(cutoffs))


@patient
@given(st.lists(turns, min_size=1, max_size=4), st.integers(0, 3_000), st.integers(0, 500))
def test_every_cut_of_any_history_leaves_calls_and_results_together(
    played: list[Turn], budget: int, pending_tokens: int
) -> None:
    never = CompactionPolicy(context_window_tokens=10**9)
    conversation = Conversation(never)

    async def play() -> None:
        for turn in played:
            await conversation.play(turn)
        # A turn whose latest response still waits for its results.
        conversation.session.begin_turn("wait")
        conversation.replies = [ask(call("read"), call("look"))]
        await conversation.session.model_step()

    asyncio.run(play())
    messages = tuple(conversation.session.messages)
    estimator = TokenEstimator(conversation.models["first"], TokenCounts())
    for end in range(1, len(messages) + 1):
        history = messages[:end]
        turn_id = history[-1].turn_id
        turn_start = next(message.sequence for message in history if message.turn_id == turn_id)

        def kept_tokens(cutoff: int, history: tuple[AgentMessage, ...] = history) -> int:
            return estimator.messages(history[cutoff:]) + pending_tokens

        cutoff = select_compaction_cutoff(history, turn_id, budget, estimator.message, pending_tokens=pending_tokens)
        possible = [message.sequence for message in history if is_cut(history, message.sequence)]
        if kept_tokens(turn_start - 1) <= budget:
            possible = [sequence for sequence in possible if sequence < turn_start]
        if kept_tokens(0) <= budget or not possible:
            assert cutoff is None
        else:
            event("a cut")
            fitting = [sequence for sequence in possible if kept_tokens(sequence) <= budget]
            assert cutoff == (fitting[0] if fitting else possible[-1])


def test_items_of_the_history_are_of_both_providers() -> None:
    conversation = Conversation(CompactionPolicy(context_window_tokens=10**9))

    async def play() -> None:
        for _ in range(2):
            await conversation.play(Turn("go", [[("same", "read", 1)]], "switched"))

    asyncio.run(play())
    items: list[Any] = [decode_framework_item(message.framework_item) for message in conversation.session.messages]
    assert {item.provider for item in items if isinstance(item, ModelOutputItem)} == {"first", "second"}
