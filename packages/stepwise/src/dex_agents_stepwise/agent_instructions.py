"""The system prompt of a model call, and about how long it is before that call is made."""

from __future__ import annotations

import inspect

from dex_agents import AgentTurnContext
from dex_agents_stepwise.agent_definition import InstructionContext, Instructions

__all__ = ["AgentInstructions"]


class AgentInstructions:
    """The instructions of a definition.

    Args:
        instructions: Text, or a function of an `InstructionContext`.
    """

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions
        # Of any session: only the size of an asynchronous function's text is guessed from it.
        self._latest_async_text = ""

    async def text(self, turn: AgentTurnContext) -> str:
        """The system prompt of a turn's model call.

        Raises:
            TypeError: The function returned something else.
        """
        if isinstance(self._instructions, str):
            return self._instructions
        returned = self._instructions(_context(turn))
        if not inspect.isawaitable(returned):
            return _checked(returned)
        self._latest_async_text = _checked(await returned)
        return self._latest_async_text

    def text_to_measure(self, turn: AgentTurnContext) -> str:
        """A text of about the size of the system prompt, found without waiting.

        For an asynchronous function it is what the function returned last in this process, blank before that.
        """
        if isinstance(self._instructions, str):
            return self._instructions
        if inspect.iscoroutinefunction(self._instructions):
            return self._latest_async_text
        returned = self._instructions(_context(turn))
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()  # never awaited, and Python would warn about it
            return self._latest_async_text
        return _checked(returned)


def _context(turn: AgentTurnContext) -> InstructionContext:
    return InstructionContext(
        flow_id=turn.flow_id,
        turn_id=turn.turn_id,
        attempt=turn.attempt,
        interaction_mode=turn.interaction_mode,
        plan=turn.plan,
        session_settings=turn.session_settings,
    )


def _checked(instructions: object) -> str:
    if not isinstance(instructions, str):
        raise TypeError(f"the function in AgentDefinition.instructions must return text, not {instructions!r}")
    return instructions
