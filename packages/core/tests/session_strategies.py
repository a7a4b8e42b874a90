"""What the model, tools and people may say in a random history."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from dex_agents.session.built_in_tools import ASK_USER, DURABLE_WAIT, WRITE_TODOS
from dex_agents.session.compaction_policy import CompactionPolicy
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import RequestedToolCall, ToolCallInputRequested
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect
from dex_agents.session.turn_limits import TurnLimits

__all__ = [
    "ANSWERS",
    "DEADLINE_SECONDS",
    "EDITS",
    "LONGEST_WAIT_SECONDS",
    "MAX_CONTINUATIONS",
    "QUESTIONS",
    "SETTINGS",
    "Configuration",
    "configurations",
    "moves",
    "picks",
    "questions",
    "requested_calls",
    "requested_plan",
    "seconds",
    "some_requested_calls",
    "wants_valid_built_in",
]

DEADLINE_SECONDS = 100
LONGEST_WAIT_SECONDS = 5_000
MAX_CONTINUATIONS = 2

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
    WRITE_TODOS: (
        '{"todos":[{"content":"one","status":"pending"}]}',
        '{"todos":[{"content":"one","status":"completed"},{"content":"two","status":"in_progress"}]}',
        '{"todos":[{"content":"one","status":"completed"}]}',
        '{"todos":[]}',
    ),
}
_INVALID = {
    ASK_USER: ("{}", '{"question":" "}', '{"question":"?","choices":["a","a "]}', '{"question":"?","other":1}'),
    WRITE_TODOS: ("{}", '{"todos":[{"content":"one"}]}', '{"todos":[],"other":1}'),
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
    has_plan_mode: bool
    compacts: bool
    retained_message_limit: int | None
    turn_limits: tuple[int | None, int | None, int | None]

    @property
    def has_plans(self) -> bool:
        return WRITE_TODOS in self.built_in_tools

    @property
    def plan_mode_enabled(self) -> bool:
        return self.has_plan_mode and self.has_plans

    def options(self) -> AgentSessionOptions:
        """The session's options."""
        model_calls, total_tokens, limit_seconds = self.turn_limits
        return AgentSessionOptions(
            interrupt_deadline=timedelta(seconds=DEADLINE_SECONDS) if self.has_deadlines else None,
            max_model_step_continuations=MAX_CONTINUATIONS,
            built_in_tools=self.built_in_tools,
            plan_mode_enabled=self.plan_mode_enabled,
            max_durable_wait=timedelta(seconds=LONGEST_WAIT_SECONDS),
            message_window_size=self.window[0],
            message_chunk_size=self.window[1],
            compaction=CompactionPolicy(context_window_tokens=100) if self.compacts else None,
            retained_message_limit=self.retained_message_limit,
            turn_limits=TurnLimits(model_calls=model_calls, total_tokens=total_tokens, seconds=limit_seconds),
        )


_Template = tuple[str, str, ResolvedToolPolicy, str | None, str | None]


def _call(provider_id: str, template: _Template) -> RequestedToolCall:
    tool_name, arguments, policy, error, schema = template
    return RequestedToolCall(
        tool_call_id=provider_id,
        tool_name=tool_name,
        arguments=arguments,
        policy=policy,
        arguments_error=error,
        arguments_schema=schema,
    )


def wants_valid_built_in(call: RequestedToolCall) -> bool:
    """Whether the arguments are right, if the call is one of an enabled built-in tool."""
    return call.arguments_error is None and call.arguments in _VALID[call.tool_name]


_POLICIES = [
    ResolvedToolPolicy(effect=effect, requires_approval=requires_approval)
    for effect in ToolEffect
    for requires_approval in (False, True)
]
_SCHEMA = (
    '{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"],"additionalProperties":false}'
)
_TEMPLATES: list[_Template] = [
    *(("lookup", '{"n":1}', policy, None, schema) for policy in _POLICIES for schema in (None, _SCHEMA)),
    *(("refund", "{}", policy, "not a JSON object", None) for policy in _POLICIES[:2]),
    *((name, text, _POLICIES[3], None, None) for name, texts in _VALID.items() for text in texts),
    *((name, text, _POLICIES[5], None, None) for name, texts in _INVALID.items() for text in texts),
    (ASK_USER, "{}", _POLICIES[0], "not a JSON object", None),
]

_DEEP: dict[str, Any] = {}
for _ in range(60):
    _DEEP = {"n": _DEEP}


class Edit(NamedTuple):
    """Arguments in place of `{"n":1}`."""

    arguments: dict[str, Any]
    fits_schema: bool
    is_change: bool = True
    can_be_read: bool = True

    def changes(self, proposed: str) -> bool:
        """Whether it says something else than the model's arguments."""
        return self.is_change if proposed == '{"n":1}' else self.arguments != json.loads(proposed)


EDITS = (
    Edit({"n": 2}, fits_schema=True),
    Edit({"n": 9}, fits_schema=True),
    Edit({"n": 1}, fits_schema=True, is_change=False),
    Edit({"n": 1.0}, fits_schema=True, is_change=False),
    Edit({"n": True}, fits_schema=False),
    Edit({"n": 10}, fits_schema=False),
    Edit({}, fits_schema=False),
    Edit({"n": 1, "m": 1}, fits_schema=False),
    Edit(_DEEP, fits_schema=False, can_be_read=False),
)

#: Settings, and whether they may be set.
SETTINGS: tuple[tuple[dict[str, Any] | None, bool], ...] = (
    ({}, True),
    ({"model": "small"}, True),
    ({"model": "large", "turn_limits": None}, True),
    ({"turn_limits": {"model_calls": 1}}, True),
    ({"turn_limits": {"model_calls": None, "seconds": 40}}, True),
    ({"turn_limits": {"total_tokens": 3}}, True),
    ({"x": "y" * (17 * 1024 - 8)}, True),
    ({"x": "y" * (17 * 1024 - 7)}, False),
    ({"turn_limits": {"model_calls": 0}}, False),
    ({"turn_limits": {"tokens": 1}}, False),
    (_DEEP, False),
    (None, False),
)


def some_requested_calls(count: int, number: int) -> list[RequestedToolCall]:
    """The `number`th choice of one to four calls."""
    return [
        _call(
            _PROVIDER_IDS[(number + index) % len(_PROVIDER_IDS)], _TEMPLATES[(number * 7 + index * 3) % len(_TEMPLATES)]
        )
        for index in range(count % 4 + 1)
    ]


def requested_plan(number: int) -> RequestedToolCall:
    """The `number`th choice of a plan, mostly one with work left to do."""
    texts = _VALID[WRITE_TODOS]
    text = texts[number % len(texts)] if number % 3 == 0 else texts[number % 2]
    return _call(_PROVIDER_IDS[number], (WRITE_TODOS, text, _POLICIES[3], None, None))


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
    built_in_tools=st.sampled_from([(ASK_USER, DURABLE_WAIT, WRITE_TODOS), (ASK_USER, WRITE_TODOS), (DURABLE_WAIT,)]),
    starts_claims=st.booleans(),
    has_initial_message=st.booleans(),
    window=st.sampled_from([(1, 1), (4, 2), (64, 32)]),
    has_plan_mode=st.booleans(),
    compacts=st.sampled_from([True, True, False]),
    retained_message_limit=st.sampled_from([1, 1, 2, 4, None]),
    turn_limits=st.sampled_from([(None, None, None), (None, None, None), (2, None, None), (3, 12, 200)]),
)
