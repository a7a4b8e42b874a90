"""A guardrail that stops a turn: what the user is told instead of the model's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunContextWrapper,
)

from dex_agents import TurnRefusedError

__all__ = [
    "DEFAULT_GUARDRAIL_REFUSAL",
    "GuardrailRefusal",
    "GuardrailTrip",
    "GuardrailTrippedError",
    "check_output",
    "refusal_text",
]

DEFAULT_GUARDRAIL_REFUSAL = "I cannot help with that request."


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailTrip:
    """A guardrail whose tripwire was triggered.

    Attributes:
        kind: Whether it checked the user's input or the agent's output.
        guardrail_name: Its name.
        output_info: What the guardrail said about it; stays in this process.
    """

    kind: Literal["input", "output"]
    guardrail_name: str
    output_info: Any = None

    @classmethod
    def of_input(cls, error: InputGuardrailTripwireTriggered) -> GuardrailTrip:
        """The trip behind the SDK's exception."""
        result = error.guardrail_result
        return cls(kind="input", guardrail_name=result.guardrail.get_name(), output_info=result.output.output_info)

    @classmethod
    def of_output(cls, error: OutputGuardrailTripwireTriggered) -> GuardrailTrip:
        """The trip behind the SDK's exception."""
        result = error.guardrail_result
        return cls(kind="output", guardrail_name=result.guardrail.get_name(), output_info=result.output.output_info)


#: The refusal's text, a function that makes one, or None: the turn fails with `GuardrailTrippedError`.
GuardrailRefusal: TypeAlias = str | Callable[[GuardrailTrip], str] | None


class GuardrailTrippedError(TurnRefusedError):
    """A guardrail stopped the turn, and the application wants that to be a failed turn.

    Args:
        trip: The guardrail.
    """

    def __init__(self, trip: GuardrailTrip) -> None:
        super().__init__(f"the {trip.kind} guardrail {trip.guardrail_name!r} stopped the turn")


def refusal_text(refusal: GuardrailRefusal, trip: GuardrailTrip) -> str:
    """What the user is told.

    Raises:
        GuardrailTrippedError: The application wants a failed turn.
        TypeError: The application's function returned no text.
    """
    if refusal is None:
        raise GuardrailTrippedError(trip)
    text = refusal if isinstance(refusal, str) else refusal(trip)
    if not isinstance(text, str) or not text.strip():
        raise TypeError(f"guardrail_refusal must give text that is not blank, not {text!r}")
    return text


async def check_output(
    agent: Agent[Any], run_config: RunConfig, context: RunContextWrapper[Any], output: Any
) -> GuardrailTrip | None:
    """Check an answer that no model gave, as the SDK checks a model's; the first guardrail that trips, if any."""
    for guardrail in (*agent.output_guardrails, *(run_config.output_guardrails or ())):
        result = await guardrail.run(context, agent, output)
        if result.output.tripwire_triggered:
            return GuardrailTrip(
                kind="output", guardrail_name=guardrail.get_name(), output_info=result.output.output_info
            )
    return None
