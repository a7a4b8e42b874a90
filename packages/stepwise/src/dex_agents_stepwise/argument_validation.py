"""What pydantic could not convert, in words the model can act on."""

from __future__ import annotations

from pydantic import ValidationError

from dex_agents.session.argument_validation import argument_path, first_problems

__all__ = ["conversion_problems"]


def conversion_problems(error: ValidationError) -> list[str]:
    """What pydantic could not convert, each line naming the path."""
    return first_problems(
        f"{argument_path(problem['loc'])}: {problem['msg']}" for problem in error.errors(include_url=False)
    )
