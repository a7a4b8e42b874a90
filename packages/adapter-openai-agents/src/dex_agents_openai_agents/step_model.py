"""Which model a step asks, and the run config it asks it with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agents import Agent, Model, RunConfig

from dex_agents import TurnRefusedError
from dex_agents_openai_agents.observed_model import ModelCallLog, ObservedModel, OneModelProvider
from dex_agents_openai_agents.step_agent import without_retries

__all__ = ["ModelResolver", "StepModel", "model_of_settings", "resolve_step_model"]

#: Gives the model for a session's settings: a name, a model, or None for the agent's own.
ModelResolver: TypeAlias = Callable[[Mapping[str, Any]], str | Model | None]


def model_of_settings(settings: Mapping[str, Any]) -> str | None:
    """The default `ModelResolver`: the name under `model`.

    Raises:
        TurnRefusedError: It is no text.
    """
    name = settings.get("model")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise TurnRefusedError(f"the session setting 'model' must be the name of a model, not {name!r}")
    return name


@dataclass(frozen=True, kw_only=True)
class StepModel:
    """A model for one step.

    Attributes:
        inner: The application's model.
        override: What the run config says in place of the agent's model.
        name: Its name, when it has one.
        label: Tells items that only this kind of model reads from others.
    """

    inner: Model
    override: str | Model | None
    name: str | None
    label: str

    def run_config(self, base: RunConfig, log: ModelCallLog, *, is_first_call: bool) -> RunConfig:
        """The step's run config: its model is observed, and nothing in it repeats a request.

        Args:
            base: The session's run config.
            log: Receives what happens.
            is_first_call: Whether run-level input guardrails run.
        """
        observed = ObservedModel(self.inner, log)
        log.request_model = self.name
        is_named = self.override is None or isinstance(self.override, str)
        return dataclasses.replace(
            base,
            # A name stays a name: the SDK derives default settings from it.
            model=self.override if is_named else observed,
            model_provider=OneModelProvider(observed),
            model_settings=without_retries(base.model_settings),
            input_guardrails=base.input_guardrails if is_first_call else None,
            tool_not_found_behavior="return_error_to_model",
        )


def resolve_step_model(
    agent: Agent[Any], run_config: RunConfig, resolver: ModelResolver, settings: Mapping[str, Any]
) -> StepModel:
    """The model of an agent in a session: the settings' model, then the run config's, then the agent's.

    Raises:
        TurnRefusedError: The settings name something that is no model.
        TypeError: The application's resolver returned something else.
    """
    chosen = resolver(settings)
    if chosen is not None and not isinstance(chosen, (str, Model)):
        raise TypeError(f"resolve_model must return a model's name, a Model or None, not {type(chosen).__name__}")
    override = run_config.model if chosen is None else chosen
    wanted = agent.model if override is None else override
    if isinstance(wanted, Model):
        inner, name = wanted, getattr(wanted, "model", None)
        override = wanted
    else:
        inner, name = run_config.model_provider.get_model(wanted), wanted
    kind = type(inner).__name__
    return StepModel(
        inner=inner,
        override=override,
        name=str(name) if name is not None else None,
        label=kind if chosen is None else f"{kind}:{chosen if isinstance(chosen, str) else name}",
    )
