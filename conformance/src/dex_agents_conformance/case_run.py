"""One case while it runs: its session, what the model was asked, and what the tools really did."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from dex_agents import (
    AgentEvent,
    AgentFrameworkRunner,
    AgentInterrupt,
    AgentMessage,
    AgentSessionFlow,
    AgentSnapshot,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    TurnResult,
)
from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.testing import (
    AgentSessionTestClient,
    AgentTestEnvironment,
    FileGate,
    FlowFactory,
    InvocationLog,
    KillableWorkerProcess,
    poll_until,
)
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.adapter_loading import adapter_location
from dex_agents_conformance.case_flow import CASE_FLOW_FACTORY, CaseLocation, write_case_location
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conversation_script import ConversationScript
from dex_agents_conformance.provider_request import ProviderRequest
from dex_agents_conformance.scripted_tools import TOOL_LOG
from dex_agents_conformance.stored_transcript import check_transcript
from dex_agents_conformance.strict_provider import ProviderRecords
from dex_agents_conformance.worker_forks import worker_fork_server

__all__ = ["SESSION", "CaseRun", "open_case_run"]

SESSION = "session-1"
_PAGE = 200
_MANY_EVENTS = 1_000_000


class CaseRun:
    """What a case's body works with.

    Attributes:
        environment: Engine, client, gates and worker processes.
        client: Talks to the case's sessions; every wait has a deadline.
        script: The case's script.
        parameter: The case's parameter; blank without.
        records: What the provider saw.
    """

    environment: AgentTestEnvironment
    client: AgentSessionTestClient

    def __init__(
        self, script: ConversationScript, setup: CaseSetup, location: CaseLocation, *, forks_workers: bool = False
    ) -> None:
        self.script = script
        self.parameter = setup.parameter
        self.records = ProviderRecords(setup.directory)
        self._tools = InvocationLog(setup.directory / TOOL_LOG)
        self._location = location
        self._forks_workers = forks_workers
        self._directory = setup.directory
        self._sessions: set[str] = set()
        self._exit = contextlib.AsyncExitStack()

    async def open(self, factory: FlowFactory | str, *, runs_worker: bool) -> None:
        """Open the engine; `close` it at the end."""
        environment = AgentTestEnvironment(factory, runs_worker=runs_worker, directory=self._directory)
        self.environment = await self._exit.enter_async_context(environment)
        self.client = self.environment.client

    async def reopen(self, flow: AgentSessionFlow) -> None:
        """Close the engine, and go on with the same sessions on another Flow, as a restarted process would."""
        await self.close()
        await self.open(lambda directory: flow, runs_worker=True)

    async def close(self) -> None:
        """Close the engine, with every worker process."""
        await self._exit.aclose()
        self._exit = contextlib.AsyncExitStack()

    @property
    def runner(self) -> AgentFrameworkRunner:
        """The adapter's runner in this process."""
        flow = self.environment.flow
        assert isinstance(flow, AgentSessionFlow), f"make_flow must return an AgentSessionFlow, not {flow!r}"
        return flow.runner

    # Talking to the session

    async def start(self, text: str | None = None, *, session_id: str = SESSION, **options: Any) -> None:
        """Start a session, with a first message."""
        self._sessions.add(session_id)
        await self.client.start_session(session_id, initial_message=text, **options)

    async def run_turn(self, text: str, *, session_id: str = SESSION, **options: Any) -> TurnResult:
        """Start the session if it is new, send a message, and wait for the end of its turn or for a person."""
        self._sessions.add(session_id)
        await self.client.start_session(session_id, already_started="ignore")
        return await self.client.send_and_wait(session_id, text, **options)

    async def answer_of(self, text: str, *, session_id: str = SESSION) -> str:
        """The answer of a turn that must complete."""
        result = await self.run_turn(text, session_id=session_id)
        assert result.status == "completed", f"the turn is {result.status}: {result.error}"
        return result.text

    async def finish(self, *, session_id: str = SESSION) -> AgentSnapshot:
        """Wait until the session is idle."""
        await self.client.wait_until_idle(session_id, timeout=60)
        return await self.client.get_agent_snapshot(session_id)

    def gate(self, name: str) -> FileGate:
        """A gate at which the script stops the model or a tool."""
        return self.environment.gate(name)

    async def wait_at_gate(
        self, name: str, *, session_id: str = SESSION, check: Callable[[], None] | None = None
    ) -> None:
        """Wait until somebody stands at a closed gate.

        Args:
            name: The gate.
            session_id: The session that must come there; when its turn ends before, the wait ends too.
            check: Called while nobody is there; raises to end the wait.

        Raises:
            AssertionError: The turn ended, or nobody came in time.
        """

        async def is_reached() -> bool | None:
            if any(self._directory.glob(f"{name}.reached.*")):
                return True
            if check is not None:
                check()
            await self._check_active(session_id, f"it came to {name!r}")
            return None

        await poll_until(is_reached, awaited=f"somebody at {name!r}")

    async def _check_active(self, session_id: str, awaited: str) -> None:
        state = (await self.client.get_agent_snapshot(session_id)).state
        has_ended = state is not None and state.turn_count > 0 and state.active_turn_id is None
        assert not has_ended, f"the turn ended before {awaited}: {state}"

    async def finish_unasked(self, *, session_id: str = SESSION) -> AgentSnapshot:
        """`finish` for a turn that must not ask anybody any more.

        Raises:
            AssertionError: It asks.
        """

        async def is_over() -> AgentSnapshot | None:
            snapshot = await self.client.get_agent_snapshot(session_id)
            assert not snapshot.pending_interrupts, (
                f"[a-question-is-asked-once] it waits: {snapshot.pending_interrupts}"
            )
            is_idle = snapshot.state is not None and snapshot.state.active_turn_id is None
            return snapshot if is_idle else None

        return await poll_until(is_over, awaited="the end of the turn")

    async def wait_for_question(self, *, session_id: str = SESSION) -> AgentInterrupt:
        """Wait for a question to the user, and return the oldest.

        Raises:
            AssertionError: The turn ended without one.
        """

        async def asked() -> AgentInterrupt | None:
            pending = await self.client.pending_interrupts(session_id)
            question = next((interrupt for interrupt in pending if interrupt.kind == "question"), None)
            if question is None:
                await self._check_active(session_id, "[a-question-reaches-the-user]")
            return question

        return await poll_until(asked, awaited="a question")

    async def wait_for_call(
        self, tool_name: str, status: AgentToolCallRecordStatus, *, session_id: str = SESSION
    ) -> AgentToolCallRecord:
        """Wait until a call of the active turn has a status, and return its record.

        Raises:
            TimeoutError: None has it in time.
        """

        async def found() -> AgentToolCallRecord | None:
            records = (await self.client.get_agent_snapshot(session_id)).tool_calls
            wanted = (record for record in records if (record.tool_name, record.status) == (tool_name, status))
            return next(wanted, None)

        return await poll_until(found, awaited=f"a call of {tool_name} that is {status.value}")

    async def skip_timer(self, step_type: str, *, session_id: str = SESSION) -> None:
        """End the timer for which a Step of this type waits, once there is one: time passes without passing.

        Args:
            step_type: `AwaitTimer` of a durable wait, `PollToolTask`, `AwaitQuestionAnswer` or `AwaitToolApproval`.
            session_id: The session.

        Raises:
            AssertionError: The turn ended, or no such Step waits for a timer in time.
        """
        engine = self.environment.engine

        async def is_skipped() -> bool:
            await self._check_active(session_id, f"{step_type} waited for a timer")
            open_steps = (await engine.describe_flow(session_id)).open_steps
            waiting = [step.step_execution_id for step in open_steps if step.step_type == step_type]
            for step_execution_id in waiting:
                if await engine.skip_timer(session_id, step_execution_id):
                    return True
            return False

        await poll_until(is_skipped, awaited=f"a timer of {step_type}")

    # Worker processes

    async def start_worker(self, build: str = "current") -> KillableWorkerProcess:
        """Start a worker process with this build of the agent, and wait until it takes work."""
        write_case_location(self.environment.directory, _with_build(self._location, build))
        server = worker_fork_server(self._location.adapter) if self._forks_workers else None
        return await self.environment.start_worker(fork_server=server)

    # What happened

    @property
    def requests(self) -> list[ProviderRequest]:
        """Every model call, oldest first, also those that a killed process made."""
        return [recorded.request for recorded in self.records.requests()]

    @property
    def last_request(self) -> ProviderRequest:
        """The latest model call."""
        return self.requests[-1]

    @property
    def results_seen(self) -> list[str]:
        """The results of the turn's calls as the model read them in the latest request."""
        return self.last_request.results_of_turn

    @property
    def model_calls(self) -> Counter[str]:
        """How often the model was asked for each reply of the script, `<user text>#<number>`."""
        return Counter(recorded.position for recorded in self.records.requests())

    @property
    def effects(self) -> Counter[str]:
        """How often each tool really took effect."""
        return self._tools.count("effect")

    @property
    def values(self) -> list[str]:
        """The arguments with which tools really ran, in that order."""
        return [line.key for line in self._tools.read() if line.event == "value"]

    @property
    def idempotency_keys(self) -> list[str]:
        """The keys that tools read, in the order of their runs."""
        return [line.key for line in self._tools.read() if line.event == "key"]

    @property
    def tool_log(self) -> InvocationLog:
        """Everything that tools recorded."""
        return self._tools

    async def statuses(self, *, session_id: str = SESSION) -> list[tuple[str, str]]:
        """Tool and final status of every finished call, in the order in which they became final."""
        return await self.client.read_tool_call_statuses(session_id)

    async def events(self, *, session_id: str = SESSION) -> list[AgentEvent]:
        """Every live event so far."""
        stream = self.environment.flow.streams[AGENT_EVENTS.name]
        events = await self.environment.engine.read_stream(session_id, stream, limit=_MANY_EVENTS)
        return [event.value for event in events]

    async def event_payloads(self, event_type: str, *, session_id: str = SESSION) -> list[dict[str, Any]]:
        """The payloads of every live event of one type."""
        events = await self.events(session_id=session_id)
        return [decode_event_payload(event) for event in events if event.type == event_type]

    async def messages(self, *, session_id: str = SESSION) -> list[AgentMessage]:
        """Every stored message, oldest first."""
        found: list[AgentMessage] = []
        before: int | None = None
        while True:
            page = await self.client.list_agent_messages(session_id, before_sequence=before, limit=_PAGE)
            found = [*page.messages, *found]
            before = page.next_before_sequence
            if before is None:
                return found

    async def model_attempts(self, *, session_id: str = SESSION) -> int:
        """How many attempts of model Steps have ended."""
        history = await self.client.read_step_history(session_id)
        return sum(entry.step_type == "RunModel" and entry.method == "run" for entry in history)

    def check_provider(self) -> None:
        """Fail with the whole transcript when any request broke a rule.

        Raises:
            AssertionError: A rule was broken; names it.
        """
        violations = self.records.violations()
        assert not violations, "the provider refuses a request:\n" + violations[0]

    async def check_stored_messages(self) -> None:
        """Fail unless every session's stored transcript is complete.

        Raises:
            AssertionError: A sequence is missing, or a call of a turn that ended has not exactly one result behind it.
        """
        for session_id in self._sessions:
            state = (await self.client.get_agent_snapshot(session_id)).state
            messages = await self.messages(session_id=session_id)
            check_transcript(messages, active_turn_id=None if state is None else state.active_turn_id)


def _with_build(location: CaseLocation, build: str) -> CaseLocation:
    return CaseLocation(adapter=location.adapter, case=location.case, parameter=location.parameter, build=build)


@contextlib.asynccontextmanager
async def open_case_run(
    adapter: AdapterDescription,
    name: str,
    setup: CaseSetup,
    build_script: Callable[[CaseSetup], ConversationScript],
    *,
    runs_worker: bool,
) -> AsyncIterator[CaseRun]:
    """Run a case's body; at the end no request may have broken a rule, and every stored transcript is complete."""
    script = build_script(setup)
    location = CaseLocation(
        adapter="" if runs_worker else adapter_location(type(adapter)),
        case=name,
        parameter=setup.parameter,
        build=setup.build,
    )
    write_case_location(setup.directory, location)
    run = CaseRun(script, setup, location, forks_workers=adapter.forks_workers)
    try:
        await run.open(
            (lambda _: adapter.make_flow(script)) if runs_worker else CASE_FLOW_FACTORY, runs_worker=runs_worker
        )
        try:
            yield run
        except Exception as error:
            # A broken transcript explains whatever else went wrong because of it.
            if violations := run.records.violations():
                raise AssertionError(f"{violations[0]}\nand then: {error!r}") from error
            raise
        run.check_provider()
        await run.check_stored_messages()
    finally:
        await run.close()
