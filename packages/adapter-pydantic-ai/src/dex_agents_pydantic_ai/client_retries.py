"""Models whose provider's client makes one request per attempt: the session repeats what failed, and it counts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from dex_agents_pydantic_ai import private_names

__all__ = ["without_client_retries"]

_SETTING = "max_retries"


def without_client_retries(model: Model | str | None) -> tuple[Model | str | None, dict[str, Any]]:
    """The model to ask in place of another one, and the settings to ask it with, so that its client repeats nothing.

    Args:
        model: The application's model, which stays as it is; a name is resolved as the framework does.

    Raises:
        UserError: The name is of no known model, or its provider has no key.
    """
    if isinstance(model, str):
        model = infer_model(model)
    if model is None:
        return None, {}
    leaves = list(_leaves(model))
    if not any(hasattr(leaf, "client") for leaf in leaves):
        return model, {}
    if _SETTING in ModelSettings.__annotations__ and not any(_ignores_setting(leaf) for leaf in leaves):
        return model, {_SETTING: 0}
    return _with_quiet_clients(model), {}


def _leaves(model: Model) -> Iterator[Model]:
    if isinstance(model, FallbackModel):
        for one in model.models:
            yield from _leaves(one)
    elif isinstance(model, WrapperModel):
        yield from _leaves(model.wrapped)
    else:
        yield model


def _ignores_setting(model: Model) -> bool:
    return _SETTING in getattr(model, "unsupported_settings", ())


def _with_quiet_clients(model: Model) -> Model:
    """A copy whose clients are copies too, for versions of the framework without the setting."""
    if isinstance(model, FallbackModel):
        fallback = copy.copy(model)
        fallback.models = [_with_quiet_clients(one) for one in model.models]
        return fallback
    if isinstance(model, WrapperModel):
        wrapper = object.__new__(type(model))  # `copy.copy` asks it for attributes of the model it does not have yet
        vars(wrapper).update(vars(model))
        wrapper.wrapped = _with_quiet_clients(model.wrapped)
        return wrapper
    client = getattr(model, "client", None)
    if not getattr(client, _SETTING, 0):
        return model
    return private_names.with_client(model, client.with_options(max_retries=0))  # type: ignore[union-attr]
