"""Questions that a function tool asks the user: the function is run again from its beginning after each answer."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents import QuestionAnswer, ToolExecutionError, ToolInputRequested
from dex_agents.session.sanitizer import sanitize_text
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED

__all__ = ["SwallowedQuestionError", "ToolInputRequired", "ToolQuestions"]


class ToolInputRequired(BaseException):
    """Leaves a tool's function so that the user can be asked; let it pass.

    It is no `Exception`, so that an `except Exception` in the tool does not stop it.

    Attributes:
        request: The question.
    """

    def __init__(self, request: ToolInputRequested) -> None:
        super().__init__(
            f"the question {request.question!r} has no answer yet; the session asks it and calls the tool again"
        )
        self.request = request


class SwallowedQuestionError(RuntimeError):
    """A tool asked the user and went on without the answer; the call is not tried again, and its effect decides.

    Args:
        tool_name: The tool.
    """

    is_retryable = False

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"the tool {tool_name} caught what ask_user raised, so its question was not asked: let ToolInputRequired "
            "leave the function, and call ask_user outside of tasks and task groups"
        )


class ToolQuestions:
    """Which of the tool's questions one run of its function has asked so far."""

    def __init__(self) -> None:
        self.is_asking = False
        self._next_answer = 0

    def answer(self, request: ToolInputRequested, answers: Sequence[QuestionAnswer]) -> str:
        """The answer's text, when the question has one.

        Answers belong to questions with the same words, in the order in which they are asked: a question whose words
        changed between two runs is a new one.

        Args:
            request: The question.
            answers: How the tool's questions ended, oldest first.

        Raises:
            ToolInputRequired: It was not asked yet.
            ToolExecutionError: The user declined, or the deadline passed.
        """
        words = sanitize_text(request.question)
        for number in range(self._next_answer, len(answers)):
            if answers[number].question == words:
                self._next_answer = number + 1
                return _text(answers[number])
        self.is_asking = True
        raise ToolInputRequired(request)


def _text(answer: QuestionAnswer) -> str:
    if answer.resolution == "answered":
        return answer.answer or ""
    if answer.resolution == "declined":
        raise ToolExecutionError(answer.rejection_message or QUESTION_DECLINED)
    raise ToolExecutionError(QUESTION_DEADLINE_PASSED)
