"""The provider behind an adapter's fake model: records every request, refuses a broken one, answers by the script."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec

from dex_agents.testing import FileGate
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply
from dex_agents_conformance.provider_request import ProviderRequest, RequestOutput, RequestUserText
from dex_agents_conformance.strict_transcript import ProviderRule, Violation, find_violations

__all__ = [
    "ProviderCall",
    "ProviderRecords",
    "RecordedRequest",
    "ReplyPiece",
    "ScriptedModelFailure",
    "StrictProvider",
    "StrictProviderError",
]


class ScriptedModelFailure(ConnectionError):
    """The scripted model broke, as a provider's client breaks; raise it on, or as the framework's own error."""


class StrictProviderError(Exception):
    """The request breaks a rule; the case fails with it, whatever the framework makes of the exception."""


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One invocation of the model.

    Attributes:
        request: What was asked.
        position: Which reply of the script it is: `<user text>#<number of the reply>`, or
            `summary#<number of the summary>`.
        process: ID of the process that asked.
    """

    request: ProviderRequest
    position: str
    process: int


class _RecordedViolation(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    request: ProviderRequest


class ProviderRecords:
    """What the provider saw, whichever process asked and however it ended.

    Args:
        directory: The case's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._requests = directory / "requests.jsonl"
        self._violations = directory / "violations.jsonl"
        self._replied = directory / "replies.jsonl"

    def requests(self) -> list[RecordedRequest]:
        """Every invocation, oldest first."""
        return [msgspec.json.decode(line, type=RecordedRequest) for line in _lines(self._requests)]

    def finished(self) -> list[str]:
        """Positions of the invocations that gave their whole reply, in that order."""
        return [msgspec.json.decode(line, type=str) for line in _lines(self._replied)]

    def violations(self) -> list[str]:
        """Every broken rule with the whole transcript."""
        found = [msgspec.json.decode(line, type=_RecordedViolation) for line in _lines(self._violations)]
        return [f"{violation.text}\n{_shown(violation.request)}" for violation in found]

    def add_request(self, request: RecordedRequest) -> None:
        """Record an invocation."""
        _append(self._requests, msgspec.json.encode(request))

    def add_finished(self, position: str) -> None:
        """Record that an invocation gave its whole reply."""
        _append(self._replied, msgspec.json.encode(position))

    def add_violations(self, violations: list[Violation], request: ProviderRequest) -> None:
        """Record broken rules of a request."""
        for violation in violations:
            repaired = _encodable(request)
            text = str(violation).encode("utf-8", "replace").decode()
            _append(self._violations, msgspec.json.encode(_RecordedViolation(text=text, request=repaired)))


class ReplyPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a streamed reply.

    Attributes:
        part_number: Which of the reply's parts it belongs to.
        kind: Whether people read it as text or as reasoning.
        text: The piece.
    """

    part_number: int
    kind: Literal["text", "reasoning"]
    text: str


class ProviderCall:
    """One accepted model call.

    Attributes:
        reply: What it answers.
    """

    reply: ScriptedReply

    def __init__(self, reply: ScriptedReply, *, fails: bool, position: str, directory: Path) -> None:
        self.reply = reply
        self._fails = fails
        self._position = position
        self._directory = directory

    async def pieces(self) -> AsyncIterator[ReplyPiece]:
        """What streams of the texts. A reply that fails or waits at a gate does so in here, so go to the end.

        Raises:
            ScriptedModelFailure: The script says so.
        """
        if self._fails and not self.reply.fails_behind_gate:
            raise ScriptedModelFailure(self.reply.failure_text)
        waits = self.reply.gate is not None
        for number, kind, text in self.reply.pieces():
            if waits and number >= self.reply.parts_before_gate:
                waits = False
                await self._wait_at_gate()
            yield ReplyPiece(part_number=number, kind=kind, text=text)
        if waits:
            await self._wait_at_gate()
        if self._fails:
            raise ScriptedModelFailure(self.reply.failure_text)
        ProviderRecords(self._directory).add_finished(self._position)

    async def _wait_at_gate(self) -> None:
        assert self.reply.gate is not None
        await FileGate(self._directory, self.reply.gate).pass_through()


class StrictProvider:
    """Answers an adapter's fake model.

    Args:
        script: The case's script.
    """

    def __init__(self, script: ConversationScript) -> None:
        self._script = script
        self._records = ProviderRecords(script.directory)

    def open(self, request: ProviderRequest) -> ProviderCall:
        """Accept one model call and find its reply; then go through `pieces`.

        Raises:
            StrictProviderError: The request breaks a rule.
        """
        violations = find_violations(request, self._script)
        position, reply = self._reply(request)
        if reply is None:
            violations.append(Violation(ProviderRule.EXPECTED_CALL, f"the script has no reply for {position!r}"))
        earlier = sum(recorded.position == position for recorded in self._records.requests())
        self._records.add_request(RecordedRequest(request=_encodable(request), position=position, process=os.getpid()))
        if violations or reply is None:
            self._records.add_violations(violations, request)
            raise StrictProviderError("\n".join(str(violation) for violation in violations))
        return ProviderCall(reply, fails=earlier < reply.failures, position=position, directory=self._script.directory)

    async def reply(self, request: ProviderRequest) -> ScriptedReply:
        """One model call without streaming.

        Raises:
            StrictProviderError: The request breaks a rule.
            ScriptedModelFailure: The script says so.
        """
        call = self.open(request)
        async for _ in call.pieces():
            pass
        return call.reply

    def _reply(self, request: ProviderRequest) -> tuple[str, ScriptedReply | None]:
        if request.is_summary_request:
            return self._summary(request)
        user_text, number = self._place(request)
        replies = self._script.replies.get(user_text, ())
        return f"{user_text}#{number}", replies[number] if number < len(replies) else None

    def _summary(self, request: ProviderRequest) -> tuple[str, ScriptedReply]:
        summaries = self._script.summaries
        said = [summary.text for summary in summaries]
        known = (number for number, text in enumerate(said, 1) if text.strip() and text in request.told)
        number = min(max(known, default=0), len(summaries) - 1)
        return f"summary#{number}", summaries[number]

    def _place(self, request: ProviderRequest) -> tuple[str, int]:
        """The user text that is answered, and how many replies to it there are already."""
        user_text, number = "", 0
        for item in request.items:
            if isinstance(item, RequestUserText) and not item.is_note:
                user_text, number = item.text, 0
            elif isinstance(item, RequestOutput):
                number += 1
        if user_text or self._script.repeats_tool_call_ids:
            return user_text, number
        # A long turn was summarised in its middle, its user text with it: its calls still tell the place.
        for output in reversed(request.outputs):
            for said, replies in self._script.replies.items():
                for number, reply in enumerate(replies):
                    if output.tool_calls and output.tool_calls[0].tool_call_id in _ids(reply):
                        return said, number + 1
        return user_text, number


def _ids(reply: ScriptedReply) -> list[str]:
    return [call.tool_call_id for call in reply.tool_calls]


def _encodable(request: ProviderRequest) -> ProviderRequest:
    """The request as it can be recorded: what is no Unicode text is replaced."""
    encoded = msgspec.to_builtins(request)
    return msgspec.convert(_repaired(encoded), ProviderRequest)


def _repaired(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list() | tuple():
            return [_repaired(item) for item in value]
        case dict():
            return {key: _repaired(item) for key, item in value.items()}
        case _:
            return value


def _shown(request: ProviderRequest) -> str:
    return msgspec.json.format(msgspec.json.encode(request), indent=2).decode()


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line + b"\n")
    finally:
        os.close(descriptor)
