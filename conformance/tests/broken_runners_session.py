"""Runners with one fault each in questions, tasks, plans, settings, compaction, limits or changed arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from dex_agents import (
    AgentToolCall,
    AgentTurnContext,
    AgentTurnOutcome,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolExecution,
    DeferredToolOutcome,
    InteractionMode,
    ToolCallsRequested,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    TurnCompleted,
)
from dex_agents.session.plans import build_plan_note
from dex_agents_stepwise import StepwiseAgentRunner

from .broken_runners import BrokenRunner

__all__ = ["BROKEN_SESSION_RUNNERS"]


class ForgetsAnswers(StepwiseAgentRunner):
    """Hands a tool its latest answer alone."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        return await super().execute_deferred_tool_call(replace(call, input_answers=call.input_answers[-1:]))


class KeepsAnswersInMemory(StepwiseAgentRunner):
    """Knows only the answers that came while this process ran."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unseen: dict[str, int] = {}

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        known = max(len(call.input_answers) - 1, 0)
        unseen = self._unseen.setdefault(call.idempotency_key, known)
        return await super().execute_deferred_tool_call(replace(call, input_answers=call.input_answers[unseen:]))


class DropsChoices(StepwiseAgentRunner):
    """Asks without the choices."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        outcome = await super().execute_deferred_tool_call(call)
        return replace(outcome, choices=()) if isinstance(outcome, ToolInputRequested) else outcome


class MakesResultsOfQuestions(StepwiseAgentRunner):
    """Tells the model the question instead of asking the user."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        outcome = await super().execute_deferred_tool_call(call)
        return ToolExecutionResult(output=outcome.question) if isinstance(outcome, ToolInputRequested) else outcome


class OffersNoBuiltInTools(StepwiseAgentRunner):
    """Offers the agent's own tools alone."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, enabled_built_in_tools=()))


class RepairsBuiltInArguments(StepwiseAgentRunner):
    """Hands over what it takes for better arguments of the session's own tools."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        if not isinstance(outcome, ToolCallsRequested):
            return outcome
        repaired = tuple(
            msgspec.structs.replace(call, arguments='{"question": "?"}') if call.tool_name == "ask_user" else call
            for call in outcome.tool_calls
        )
        return replace(outcome, tool_calls=repaired)


class PollsTwice(StepwiseAgentRunner):
    """Looks again at once when the work is not done."""

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        outcome = await super().poll_tool_task(poll)
        return outcome if isinstance(outcome, ToolExecutionResult) else await super().poll_tool_task(poll)


class MakesResultsOfBrokenPolls(StepwiseAgentRunner):
    """Takes a poll that broke for the end of the work."""

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        try:
            return await super().poll_tool_task(poll)
        except ConnectionError as error:
            return ToolExecutionResult(output=f"error: {error}")


class ForgetsTheTasksAnswer(StepwiseAgentRunner):
    """Polls without how the question ended."""

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        answers = tuple(msgspec.structs.replace(answer, answer=None) for answer in poll.input_answers)
        return await super().poll_tool_task(replace(poll, input_answers=answers))


class NeverStopsATask(StepwiseAgentRunner):
    """Leaves remote work running."""

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        return None


class WorksWhilePlanning(StepwiseAgentRunner):
    """Offers every tool in a planning turn."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, interaction_mode=InteractionMode.CHAT))


class HidesThePlan(StepwiseAgentRunner):
    """Shows the model no plan."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, plan=None))


class StoresThePlan(StepwiseAgentRunner):
    """Stores the plan's note as if the user had said it."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        note = build_plan_note(turn.plan, turn.interaction_mode)
        if note is None or not isinstance(outcome, TurnCompleted):
            return outcome
        return replace(outcome, new_messages=(*outcome.new_messages, self.build_user_message(note)))


class IgnoresSettings(StepwiseAgentRunner):
    """Asks the agent's own model always."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, session_settings={}))


class RemembersSettings(StepwiseAgentRunner):
    """Goes on with the settings it saw last while a turn runs, whichever session they are of."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._settings: Any = {}

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        if turn.model_step_count == 0:
            self._settings = turn.session_settings
        return await super().run_model_step(replace(turn, session_settings=self._settings))


class SummarizesWithTheAgentsModel(StepwiseAgentRunner):
    """Forgets the settings in summaries."""

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        return await super().summarize_context(replace(request, session_settings={}))


class ForgetsTheSummary(StepwiseAgentRunner):
    """Goes on with what was not summarised."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, context_summary=None))


class CutsInsideABatch(StepwiseAgentRunner):
    """Summarises through the latest call, and leaves its results."""

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        calls = [message.sequence for message in turn.messages if message.tool_calls]
        return max(calls, default=None)


class CutsAtAnyMessage(StepwiseAgentRunner):
    """Counts messages, whatever they are, to come to what may stay."""

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        stays = self.estimate_input_tokens(turn)
        for message in turn.messages[:-1]:
            stays -= self.estimate_input_tokens(replace(turn, messages=(message,)))
            if stays <= retained_token_budget:
                return message.sequence
        return None


class SummarizesEverything(StepwiseAgentRunner):
    """Leaves nothing of the earlier turns, however much would fit."""

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        return 10 * super().estimate_input_tokens(turn)

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        earlier = [message.sequence for message in turn.messages if message.turn_id != turn.turn_id]
        return max(earlier, default=None)


class SummarizesHalfOfIt(StepwiseAgentRunner):
    """Hands the model only the newest of the messages that the summary is to stand for."""

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        return await super().summarize_context(replace(request, messages=request.messages[-2:]))


class ForgetsThePreviousSummary(StepwiseAgentRunner):
    """Summarises what came since the summary alone."""

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        return await super().summarize_context(replace(request, previous_summary=None))


class RepeatsAFailedSummary(StepwiseAgentRunner):
    """Tries again by itself when the summary call breaks."""

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        try:
            return await super().summarize_context(request)
        except ConnectionError:
            return await super().summarize_context(request)


class ShowsTheSummary(StepwiseAgentRunner):
    """Streams the summary to the user."""

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        result = await super().summarize_context(request)
        request.events.write_text_delta(result.text)
        return result


class IgnoresTurnLimits(StepwiseAgentRunner):
    """Offers its tools behind a limit."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, turn_limit_reached=None))


class RunsTheProposedArguments(StepwiseAgentRunner):
    """Runs what the model asked for, whatever a person made of it."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        proposed = msgspec.structs.replace(call.tool_call, executed_arguments=None)
        return await super().execute_deferred_tool_call(replace(call, tool_call=proposed))


class HidesChangedArguments(StepwiseAgentRunner):
    """Tells the model the result alone."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def unchanged(call: AgentToolCall) -> AgentToolCall:
            return msgspec.structs.replace(call, executed_arguments=None)

        return await super().run_model_step(replace(turn, tool_calls=tuple(map(unchanged, turn.tool_calls))))


class ForgetsTheSchema(StepwiseAgentRunner):
    """Lets a person put anything in place of the arguments."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        if not isinstance(outcome, ToolCallsRequested):
            return outcome
        calls = tuple(msgspec.structs.replace(call, arguments_schema=None) for call in outcome.tool_calls)
        return replace(outcome, tool_calls=calls)


BROKEN_SESSION_RUNNERS = (
    BrokenRunner(ForgetsAnswers, "a_tool_asks_two_questions", "a-question-is-asked-once"),
    BrokenRunner(KeepsAnswersInMemory, "F48_a_question_outlives_its_process", "a-question-is-asked-once"),
    BrokenRunner(DropsChoices, "F53_a_tool_asks_and_goes_on_with_the_answer", "a-question-reaches-the-user"),
    BrokenRunner(MakesResultsOfQuestions, "a_declined_question_ends_the_call[in_words]", "a-question-reaches-the-user"),
    BrokenRunner(
        OffersNoBuiltInTools,
        "the_enabled_built_in_tools_are_offered[ask_user]",
        "enabled-built-in-tools-are-offered",
    ),
    BrokenRunner(
        RepairsBuiltInArguments,
        "F13_invalid_arguments_of_a_built_in_tool_are_told_to_the_model[blank_question]",
        "waiting_for_person",
    ),
    BrokenRunner(PollsTwice, "a_task_is_polled_until_it_ends[3]", "one-look-per-poll"),
    BrokenRunner(
        MakesResultsOfBrokenPolls,
        "F21_a_broken_poll_is_repeated_and_the_task_is_not[read]",
        "a-task-is-polled-until-it-ends",
    ),
    BrokenRunner(ForgetsTheTasksAnswer, "F53_a_task_asks_the_user[answered]", "the-answer-reaches-the-task"),
    BrokenRunner(NeverStopsATask, "F40_cancelling_the_turn_stops_the_task", "a-cancelled-turn-stops-its-tasks"),
    BrokenRunner(
        WorksWhilePlanning, "a_planning_turn_offers_write_todos_alone", "planning-turns-offer-write_todos-alone"
    ),
    BrokenRunner(HidesThePlan, "the_plan_reaches_the_model_in_every_call", "the-plan-note-reaches-the-model"),
    BrokenRunner(StoresThePlan, "a_plan_note_is_not_stored", "notes-are-not-stored"),
    BrokenRunner(IgnoresSettings, "the_settings_choose_the_model[small]", "settings-choose-the-model"),
    BrokenRunner(RemembersSettings, "F18_sessions_do_not_share_their_settings", "sessions-do-not-mix"),
    BrokenRunner(
        SummarizesWithTheAgentsModel, "the_settings_choose_the_model_of_a_summary", "settings-choose-the-model"
    ),
    BrokenRunner(ForgetsTheSummary, "a_long_conversation_is_summarised", "the-summary-reaches-the-model"),
    BrokenRunner(
        CutsInsideABatch, "F06_no_cut_separates_a_call_from_its_results[2]", "no-cut-separates-a-call-from-its-results"
    ),
    BrokenRunner(
        CutsAtAnyMessage,
        "F06_no_budget_separates_a_call_from_its_results[3]",
        "no-cut-separates-a-call-from-its-results",
    ),
    BrokenRunner(SummarizesEverything, "F02_reasoning_behind_the_cut_is_unchanged", "the-newest-messages-stay"),
    BrokenRunner(SummarizesHalfOfIt, "the_next_summary_knows_the_one_before", "a-summary-call-gets-its-messages"),
    BrokenRunner(ForgetsThePreviousSummary, "the_next_summary_knows_the_one_before", "a-summary-knows-the-one-before"),
    BrokenRunner(
        RepeatsAFailedSummary,
        "F39_a_turn_goes_on_without_a_summary_while_it_fits[breaks]",
        "one-model-call-per-model-step",
    ),
    BrokenRunner(ShowsTheSummary, "nothing_of_a_summary_is_shown", "nothing-of-a-summary-streams"),
    BrokenRunner(IgnoresTurnLimits, "behind_a_limit_no_tools_are_offered", "no-tools-behind-a-limit"),
    BrokenRunner(
        RunsTheProposedArguments,
        "F29_changed_arguments_run_and_both_forms_are_kept",
        "what-was-approved-is-what-runs",
    ),
    BrokenRunner(
        HidesChangedArguments,
        "F29_the_model_is_told_of_changed_arguments",
        "changed-arguments-are-told-to-the-model",
    ),
    BrokenRunner(ForgetsTheSchema, "F29_arguments_that_do_not_fit_are_refused[wrong_type]", "calls-carry-their-schema"),
)
