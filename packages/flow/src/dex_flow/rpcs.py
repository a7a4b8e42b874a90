"""Remote calls of a Flow: pure functions over its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from dex_flow.decisions import Decision

__all__ = ["Rpc", "RpcResult"]

Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(frozen=True)
class RpcResult(Generic[Output]):
    """An output together with a Decision to apply in the same commit."""

    output: Output
    decision: Decision


@dataclass(frozen=True)
class Rpc(Generic[Input, Output]):
    """One remote call.

    Attributes:
        name: The durable name.
        handler: Pure `(tx, input) -> output`, or an `RpcResult` with a Decision. A `read_only` handler gets a view.
        input_type: Type of the input; `type(None)` for none.
        output_type: Type of the output.
        read_only: Whether it changes nothing; such calls read a committed state without a commit.
    """

    name: str
    handler: Callable[[Any, Input], Output | RpcResult[Output]]
    input_type: Any
    output_type: Any
    read_only: bool = False
