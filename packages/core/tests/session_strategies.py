"""What the model, tools and people may say in a random history."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from dex_agents.session.built_in_tools import ASK_USER, DURABLE_WAIT
from dex_agents.session.outcomes import RequestedToolCall, ToolCallInputRequested
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect

__all__ = [
    "ANSWERS",
    "LONGEST_WAIT_SECONDS",
    "QUESTIONS",
    "Configuration",
    "configurations",
    "moves",
    "picks",
    "questions",
    "requested_calls",
    "seconds",
    "some_requested_calls",
    "wants_valid_built_in",
]

LONGEST_WAIT_SECONDS = 5_000

#: Answers and words of people; the first two are choices of some questions.
ANSWERS = ("yes", "no", "maybe", " ", "")

QUESTIONS = (
    ToolCallInputRequested(question="Sure?"),
    ToolCallInputRequested(question="Sure?", choices=("yes", "no"), continuation="c1"),
    ToolCallInputRequested(question="Sure?", choices=("yes",), allows_free_text=False, continuation="c2"),
)

_VALID = {
    ASK_USER: (
        '{"question":"Which?"}',
        '{"question":"Which?","choices":["yes","no"]}',
        '{"question":"Which?","choices":["yes","no"],"allows_free_text":false}',
        '{"question":"Which?","choices":null,"allows_free_text":null}',
    ),
    DURABLE_WAIT: (
        '{"duration_seconds":1,"reason":"a while"}',
        '{"duration_seconds":60.0,"reason":"a while"}',
        '{"duration_seconds":5000,"reason":"a while"}',
    ),
}
_INVALID = {
    ASK_USER: ("{}", '{"question":" "}', '{"question":"?","choices":["a","a "]}', '{"question":"?","other":1}'),
    DURABLE_WAIT: ("{}", '{"duration_seconds":0,"reason":"r"}', '{"duration_seconds":5001,"reason":"r"}'),
}

#: Provider IDs that repeat, are blank, or look like the session's own.
_PROVIDER_IDS = ("a", "a", "b", "", " ", "a~1", "a~2", "call-1", "call-2", "a-input-1", "b-input-1", "turn-1.a")


class Configuration(NamedTuple):
    """What the session and its runner can do."""

    builds_unfinished_turns: bool
    polls_tasks: bool
    cancels_tasks: bool
    has_deadlines: bool
    built_in_tools: tuple[str, ...]
    starts_claims: bool
    has_initial_message: bool
    window: tuple[int, int]


def _call(provider_id: str, template: tuple[str, str, ResolvedToolPolicy, str | None]) -> RequestedToolCall:
    tool_name, arguments, policy, error = template
    return RequestedToolCall(
        tool_call_id=provider_id, tool_name=tool_name, arguments=arguments, policy=policy, arguments_error=error
    )


def wants_valid_built_in(call: RequestedToolCall) -> bool:
    """Whether the arguments are right, if the call is one of an enabled built-in tool."""
    return call.arguments_error is None and call.arguments in _VALID[call.tool_name]


_POLICIES = [
    ResolvedToolPolicy(effect=effect, requires_approval=requires_approval)
    for effect in ToolEffect
    for requires_approval in (False, True)
]
_TEMPLATES: list[tuple[str, str, ResolvedToolPolicy, str | None]] = [
    *(("lookup", '{"n":1}', policy, None) for policy in _POLICIES for _ in range(2)),
    *(("refund", "{}", policy, "not a JSON object") for policy in _POLICIES[:2]),
    *((name, text, _POLICIES[3], None) for name, texts in _VALID.items() for text in texts),
    *((name, text, _POLICIES[5], None) for name, texts in _INVALID.items() for text in texts),
    (ASK_USER, "{}", _POLICIES[0], "not a JSON object"),
]


def some_requested_calls(count: int, number: int) -> list[RequestedToolCall]:
    """The `number`th choice of one to four calls."""
    return [
        _call(
            _PROVIDER_IDS[(number + index) % len(_PROVIDER_IDS)], _TEMPLATES[(number * 7 + index * 3) % len(_TEMPLATES)]
        )
        for index in range(count % 4 + 1)
    ]


requested_calls = st.lists(
    st.builds(_call, st.sampled_from(_PROVIDER_IDS), st.sampled_from(_TEMPLATES)), min_size=1, max_size=4
)
questions = st.sampled_from(QUESTIONS)


def moves(most: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Who takes a step, and which one."""
    return st.lists(st.tuples(picks, st.integers(0, 59)), min_size=1, max_size=most)


#: An index into whatever there is to choose from.
picks = st.integers(0, 11)
seconds = st.sampled_from([0, 1, 2, 5, 30, 100, 2_000, 6_000])
configurations = st.builds(
    Configuration,
    builds_unfinished_turns=st.booleans(),
    polls_tasks=st.sampled_from([True, True, True, False]),
    cancels_tasks=st.booleans(),
    has_deadlines=st.booleans(),
    built_in_tools=st.sampled_from([(ASK_USER, DURABLE_WAIT), (ASK_USER,), ()]),
    starts_claims=st.booleans(),
    has_initial_message=st.booleans(),
    window=st.sampled_from([(1, 1), (4, 2), (64, 32)]),
)
