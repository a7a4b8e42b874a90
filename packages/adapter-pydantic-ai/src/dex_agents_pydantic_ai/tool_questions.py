"""Questions that a tool asks the user in the middle of its work; the tool runs again from its beginning afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents import QuestionAnswer, ToolExecutionError, ToolInputRequested
from dex_agents.session.sanitizer import sanitize_text
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED

__all__ = ["SwallowedQuestionError", "ToolInputRequired", "ToolQuestions"]


class ToolInputRequired(BaseException):
    """Leaves a tool so that the user can be asked; let it pass. It is no `Exception`, so that handlers do not stop it.

    Args:
        question: What has no answer yet.
    """

    def __init__(self, question: str) -> None:
        super().__init__(f"the question {question!r} has no answer yet; the session asks it and runs the tool again")


class SwallowedQuestionError(RuntimeError):
    """A tool asked the user and went on without the answer; the call is not tried again, and its effect decides.

    Args:
        tool_name: The tool.
    """

    is_retryable = False

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"the tool {tool_name} went on after it asked the user: let ToolInputRequired leave it, and do not ask "
            "from the tools of another agent that it runs"
        )


class ToolQuestions:
    """The questions of one run of a tool.

    Args:
        answers: How the call's earlier questions ended, oldest first.

    Attributes:
        asked: The question that has no answer yet.
    """

    def __init__(self, answers: Sequence[QuestionAnswer] = ()) -> None:
        self.asked: ToolInputRequested | None = None
        self._unread = list(answers)

    def answer(self, request: ToolInputRequested) -> str:
        """The answer to a question, by its words and its place among the questions.

        Raises:
            ToolInputRequired: It was not asked yet.
            ToolExecutionError: The user declined, or the deadline passed.
        """
        words = sanitize_text(request.question)
        for number, answer in enumerate(self._unread):
            if answer.question == words:
                del self._unread[: number + 1]
                return _text(answer)
        self.asked = request
        raise ToolInputRequired(request.question)


def _text(answer: QuestionAnswer) -> str:
    if answer.resolution == "answered":
        return answer.answer or ""
    declined = answer.rejection_message or QUESTION_DECLINED
    raise ToolExecutionError(declined if answer.resolution == "declined" else QUESTION_DEADLINE_PASSED)
