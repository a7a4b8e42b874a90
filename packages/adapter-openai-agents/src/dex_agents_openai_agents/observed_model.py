"""The application's model during one model step: what it was asked and answered, with calls that can be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Model, ModelProvider, ModelResponse
from agents.items import TResponseStreamEvent
from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
)

from dex_agents import AgentUsage, ModelCallMetadata
from dex_agents.session.sanitizer import sanitize_json_text
from dex_agents_openai_agents.private_names import run_end_cleanup, supports_default_prompt_cache_key
from dex_agents_openai_agents.stored_items import InputItem

__all__ = ["ModelCallLog", "ObservedModel", "OneModelProvider", "SecondModelCallError"]


class SecondModelCallError(RuntimeError):
    """The SDK asked the model again within one model step; the session pays for one call per step."""

    def __init__(self) -> None:
        super().__init__("the SDK made a second model call in one model step")


@dataclass
class ModelCallLog:
    """What is known of the step's model call, however the run ends.

    Attributes:
        call_count: How often the model was asked.
        usage: Tokens the model reported; None while unknown.
        request_model: Name of the model that was asked for.
        response_model: Name of the model that answered.
        response_id: The provider's ID of the response.
        output: The response's items; None before the model has answered.
        cut_off: Why the provider ended the response before its end; None when it did not.
        stream: The response while it streams.
    """

    call_count: int = 0
    usage: AgentUsage | None = None
    request_model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    output: list[Any] | None = None
    cut_off: str | None = None
    stream: AsyncGenerator[TResponseStreamEvent, None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the model answered."""
        return self.output is not None

    async def close(self) -> None:
        """Let go of the provider's connection; the SDK leaves a stream open that it does not read to its end."""
        if self.stream is not None and not getattr(self.stream, "ag_running", False):
            await self.stream.aclose()

    def output_items(self) -> list[InputItem]:
        """The response as input items, for a run that ends without giving them."""
        return [item.model_dump(mode="json", exclude_unset=True) for item in self.output or ()]

    @property
    def step_usage(self) -> AgentUsage | None:
        """Usage of the step for the session: none without a call, unknown when the model reported nothing."""
        return AgentUsage() if self.call_count == 0 else self.usage

    @property
    def metadata(self) -> ModelCallMetadata | None:
        """What is known of the call for traces."""
        if self.call_count == 0:
            return None
        return ModelCallMetadata(
            request_model=self.request_model, response_model=self.response_model, response_id=self.response_id
        )


class OneModelProvider(ModelProvider):
    """Gives one model, whatever name is asked for.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        """The model."""
        return self._model


class ObservedModel(Model):
    """Stands in front of a model for one model step.

    Args:
        inner: The application's model.
        log: Where to write what happens.
    """

    def __init__(self, inner: Model, log: ModelCallLog) -> None:
        self._inner = inner
        self._log = log

    def _supports_default_prompt_cache_key(self) -> bool:
        return supports_default_prompt_cache_key(self._inner)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await run_end_cleanup(self._inner, owner)

    def get_retry_advice(self, request: Any) -> Any:
        """The inner model's advice."""
        return self._inner.get_retry_advice(request)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """One model call.

        Raises:
            SecondModelCallError: There was one already.
        """
        self._begin_call()
        response = await self._inner.get_response(*args, **kwargs)
        output = _CallRepair(_input_items(args, kwargs)).repaired_output(response.output)
        self._log.response_id = response.response_id
        if response.usage is not None and response.usage.requests:
            self._log.usage = _usage(response.usage)
        response.output = output
        self._log.output = output
        return response

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """One streaming model call.

        Raises:
            SecondModelCallError: There was one already.
        """
        self._log.stream = self._stream(*args, **kwargs)
        return self._log.stream

    async def _stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[TResponseStreamEvent, None]:
        self._begin_call()
        repair = _CallRepair(_input_items(args, kwargs))
        events = self._inner.stream_response(*args, **kwargs)
        try:
            async for event in events:
                yield self._observed(event, repair)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    def _begin_call(self) -> None:
        if self._log.call_count:
            raise SecondModelCallError()
        self._log.call_count += 1

    def _observed(self, event: TResponseStreamEvent, repair: _CallRepair) -> TResponseStreamEvent:
        response = getattr(event, "response", None)
        if response is not None:
            self._log.response_model = getattr(response, "model", None) or self._log.response_model
            self._log.response_id = getattr(response, "id", None) or self._log.response_id
            if getattr(response, "usage", None) is not None:
                self._log.usage = _usage(response.usage)
        if event.type == "response.incomplete":
            details = event.response.incomplete_details
            self._log.cut_off = str(details.reason if details is not None else None)
        if isinstance(event, ResponseOutputItemDoneEvent):
            item = repair.repaired(event.item, repair.streamed)
            return event if item is event.item else event.model_copy(update={"item": item})
        if isinstance(event, ResponseCompletedEvent):
            output = repair.repaired_output(event.response.output)
            self._log.output = output
            if any(new is not old for new, old in zip(output, event.response.output, strict=True)):
                return event.model_copy(update={"response": event.response.model_copy(update={"output": output})})
        return event


class _CallRepair:
    """Makes calls fit to be sent back: one whose ID is blank or was used before gets another.

    Results are found by the ID. The SDK refuses a response in which one repeats, and drops earlier items of a history
    in which one does.
    """

    def __init__(self, history: Sequence[Any]) -> None:
        self._used = {call_id for item in history if isinstance(call_id := _value(item, "call_id"), str)}
        self._given: dict[tuple[str, int], str] = {}
        #: How often each ID came in the streamed items; the finished response has them once more.
        self.streamed: Counter[str] = Counter()

    def repaired_output(self, output: Sequence[Any]) -> list[Any]:
        """The items of a finished response."""
        seen: Counter[str] = Counter()
        return [self.repaired(item, seen) for item in output]

    def repaired(self, item: Any, seen: Counter[str]) -> Any:
        """The item, or a repaired copy; `seen` counts the IDs that came before it."""
        if not isinstance(item, ResponseFunctionToolCall):
            return item
        original = item.call_id or ""
        seen[original] += 1
        key = (original, seen[original])
        call_id = self._given.get(key)
        if call_id is None:
            call_id = self._given[key] = self._unused(original)
        # The SDK takes a hash of the arguments, which a lone surrogate has not.
        arguments = sanitize_json_text(item.arguments or "")
        if (call_id, arguments) == (item.call_id, item.arguments):
            return item
        return item.model_copy(update={"call_id": call_id, "arguments": arguments})

    def _unused(self, wanted: str) -> str:
        base = wanted.strip() or "call"
        call_id, number = wanted if wanted.strip() else f"{base}_1", 1
        while call_id in self._used:
            number += 1
            call_id = f"{base}_{number}"
        self._used.add(call_id)
        return call_id


def _input_items(args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
    items = kwargs["input"] if "input" in kwargs else args[1] if len(args) > 1 else ()
    return () if isinstance(items, str) else items


def _value(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)


def _usage(usage: Any) -> AgentUsage:
    """Token counts of a provider's or the SDK's usage; what is missing counts as unknown, which is 0."""
    input_details = getattr(usage, "input_tokens_details", None)
    output_details = getattr(usage, "output_tokens_details", None)
    return AgentUsage(
        model_calls=1,
        input_tokens=_count(usage, "input_tokens"),
        output_tokens=_count(usage, "output_tokens"),
        cached_input_tokens=_count(input_details, "cached_tokens"),
        cache_write_tokens=_count(input_details, "cache_write_tokens"),
        reasoning_tokens=_count(output_details, "reasoning_tokens"),
        total_tokens=_count(usage, "total_tokens"),
    )


def _count(source: Any, name: str) -> int:
    count = getattr(source, name, None)
    return count if isinstance(count, int) and count > 0 else 0
