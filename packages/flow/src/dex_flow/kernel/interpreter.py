"""`Kernel.apply`: one command, one state, one set of changes. No I/O, clock, threads or randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from dex_flow.codec import decode, decode_input, encode, encode_declared, encoded_null
from dex_flow.errors import (
    FlowAlreadyStartedError,
    FlowClosedError,
    FlowNotFoundError,
    RequestIdReusedError,
    UnknownRpcError,
    UnstorableValueError,
)
from dex_flow.flow import Flow
from dex_flow.kernel import attempts
from dex_flow.kernel.changes import Changes, CommandResult
from dex_flow.kernel.commands import (
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    ClaimReady,
    Command,
    FireTimers,
    InvokeRpc,
    SaveCheckpoint,
    SkipTimer,
    StartFlow,
    StopFlow,
)
from dex_flow.kernel.known import KnownState
from dex_flow.kernel.machine import Machine
from dex_flow.kernel.overlay import Overlay
from dex_flow.kernel.reader import StateReader, StoredRequest
from dex_flow.kernel.state import FlowHeader, StepBody, decode_header, decode_last_now, encode_header
from dex_flow.kernel.transaction import KernelTransaction, KernelView
from dex_flow.rpcs import Rpc, RpcResult
from dex_flow.steps import ActivityStep
from dex_flow.transaction import StateView

__all__ = ["Kernel"]

Value = TypeVar("Value")

REMEMBERED_REQUESTS = 1_000
REMEMBERED_FOR = 24 * 3600 * 1_000_000


class Kernel:
    """Interprets the executions of one Flow definition."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def apply(
        self,
        reader: StateReader,
        flow_id: str,
        now: int,
        command: Command,
        *,
        claim_slots: int = 0,
        known: KnownState | None = None,
    ) -> CommandResult:
        """Apply one command.

        Args:
            reader: The stored state.
            flow_id: The execution.
            now: Microseconds since the epoch; an earlier time than the last one counts as the last one.
            command: What happened.
            claim_slots: How many attempts the calling worker may take in this command, counting the one that
                `AttemptStarted` starts.
            known: `Changes.known` of the command that left exactly this stored state; spares reads, changes nothing.
                What is read now is added.

        Raises:
            FlowNotFoundError, FlowAlreadyStartedError, FlowClosedError, RequestIdReusedError,
            UnstorableValueError, AttemptDiscardedError, or what an RPC handler raised. Nothing is changed then.
        """
        stored = reader.header()
        if isinstance(command, (StartFlow, InvokeRpc)) and command.request_id is not None and stored is not None:
            remembered = self._remembered(reader, command)
            if remembered is not None:
                return remembered
        if isinstance(command, StartFlow):
            if stored is not None:
                raise FlowAlreadyStartedError(flow_id)
            header = FlowHeader(started_at=now, now=now, steps={})
            known = KnownState.of_new_execution(self.flow)
        else:
            if stored is None:
                raise FlowNotFoundError(flow_id)
            header = decode_header(stored)
            if header.status != "open":
                return CommandResult(None, self._answer_closed(header, flow_id, command))
        last_now, header.now = header.now, max(now, header.now)
        machine = Machine(self.flow, flow_id, reader, header, header.now, known)
        has_timer_come = self._fire_due(machine, last_now)
        machine.settle()
        if machine.is_open:
            output = self._dispatch(machine, command)
            machine.settle()
        else:
            output = self._answer_closed(header, flow_id, command)
        if claim_slots > 0 and machine.is_open:
            attempts.claim_ready(machine, claim_slots)
        is_changed = (
            isinstance(command, StartFlow) or has_timer_come or machine.overlay.is_changed or not machine.is_open
        )
        request_id = command.request_id if isinstance(command, (StartFlow, InvokeRpc)) else None
        if not is_changed and request_id is None:
            return CommandResult(None, output)
        return CommandResult(self._changes(machine, reader, command, output), output)

    def view(
        self,
        reader: StateReader,
        flow_id: str,
        now: int,
        code: Callable[[StateView], Value],
        known: KnownState | None = None,
    ) -> Value:
        """Run read-only code over the stored state.

        Args:
            reader: The stored state.
            flow_id: The execution.
            now: Microseconds since the epoch.
            code: What it returns may be changed by whoever gets it.
            known: See `apply`.

        Raises:
            FlowNotFoundError: There is no such execution.
        """
        stored = reader.header()
        if stored is None:
            raise FlowNotFoundError(flow_id)
        overlay = Overlay(self.flow, reader, 0, known)
        return code(KernelView(overlay, flow_id, max(now, decode_last_now(stored))))

    def read_rpc(self, reader: StateReader, flow_id: str, now: int, name: str, input: bytes) -> Any:
        """Call a read-only RPC; it also answers for an execution that has ended."""
        rpc = self.flow.rpc(name)
        if not rpc.read_only:
            raise UnknownRpcError(f"RPC {name!r} of flow {self.flow.flow_type!r} is not read-only")
        value = decode_input(f"the input of RPC {name!r}", rpc.input_type, input)
        output = self.view(reader, flow_id, now, lambda view: rpc.handler(view, value))
        if isinstance(output, RpcResult):
            raise TypeError(f"RPC {name!r} of flow {self.flow.flow_type!r} is read-only and may not return a Decision")
        return _checked_output(rpc, output)

    def load_snapshot(self, reader: StateReader, flow_id: str, now: int, step_type: str, input: bytes) -> Any:
        """What a claimed attempt's `run` needs, from one consistent read."""
        return self.view(reader, flow_id, now, self.snapshot_loader(step_type, input))

    def snapshot_loader(self, step_type: str, input: bytes) -> Callable[[StateView], Any]:
        """Code for `view` that returns what a claimed attempt's `run` needs."""
        step: Any = self.flow.step(step_type)
        value = decode(step.input_type, input)
        return lambda view: step.load(view, value)

    def _answer_closed(self, header: FlowHeader, flow_id: str, command: Command) -> Any:
        if isinstance(command, InvokeRpc):
            raise FlowClosedError(flow_id, header.status, header.failure)
        if isinstance(command, (AttemptStarted, AttemptSucceeded, AttemptFailed, SaveCheckpoint)):
            raise attempts.AttemptDiscardedError(f"flow {flow_id!r} is {header.status}")
        return False

    def _dispatch(self, machine: Machine, command: Command) -> Any:
        match command:
            case StartFlow():
                step = self.flow.step(self.flow.start_step)
                value = decode_input("the start input", step.input_type, command.input)
                machine.spawn(self.flow.start_step, value)
                return True
            case InvokeRpc():
                return self._invoke(machine, self.flow.rpc(command.name), command.input)
            case AttemptSucceeded():
                attempts.attempt_succeeded(machine, command.step_execution_id, command.attempt, command.outcome)
            case AttemptFailed():
                attempts.attempt_failed(machine, command.step_execution_id, command.attempt, command.failure)
            case AttemptStarted():
                attempts.attempt_started(machine, command.step_execution_id, command.attempt)
            case AttemptsLost():
                attempts.attempts_lost(machine, command.message)
            case SaveCheckpoint():
                attempts.save_checkpoint(machine, command.step_execution_id, command.attempt, command.text)
            case SkipTimer():
                return self._skip_timer(machine, command.step_execution_id)
            case StopFlow():
                machine.close("stopped", command.reason)
                return True
            case ClaimReady() | FireTimers():
                pass
        return None

    def _invoke(self, machine: Machine, rpc: Rpc[Any, Any], input: bytes) -> Any:
        if rpc.read_only:
            raise UnknownRpcError(f"RPC {rpc.name!r} of flow {self.flow.flow_type!r} is read-only")
        machine.overlay.mark()
        value = decode_input(f"the input of RPC {rpc.name!r}", rpc.input_type, input)
        output = rpc.handler(KernelTransaction(machine), value)
        if isinstance(output, RpcResult):
            machine.apply_decision(output.decision, None)
            output = output.output
        machine.overlay.encode_written()
        return _checked_output(rpc, output)

    def _fire_due(self, machine: Machine, last_now: int) -> bool:
        """Wake and resume what is due; True when a timer has come, even if its `all_of` waits for more."""
        now = machine.now
        has_timer_come = False
        for step_id in sorted(machine.header.steps):
            step = machine.header.steps.get(step_id)
            if step is None:
                continue
            if step.status == "waiting":
                if any(last_now < condition.due <= now for condition in step.wait):
                    has_timer_come = True
                    machine.wake(step_id)
            elif step.status == "ready" and step.type not in self.flow.steps:
                machine.hold(step, "attempt")
            elif step.due and step.due <= now:
                if step.status == "backoff":
                    self._resume(machine, step_id)
                elif step.status == "ready":
                    attempts.fail_unstarted(machine, step)
        return has_timer_come

    def _resume(self, machine: Machine, step_id: int) -> None:
        step = machine.header.steps[step_id]
        match step.phase:
            case "wait_for":
                machine.register_wait(step)
            case "commit":
                attempts.commit_stored_outcome(machine, step)
            case _ if step.type not in self.flow.steps:
                machine.hold(step, "attempt")
            case _:
                machine.make_ready(step)

    def _skip_timer(self, machine: Machine, step_id: int) -> bool:
        step = machine.header.steps.get(step_id)
        if step is None:
            return False
        if step.status == "backoff":
            self._resume(machine, step_id)
            return True
        if step.status == "waiting" and any(condition.due for condition in step.wait):
            skipped = tuple(
                replace(condition, due=machine.now) if condition.due else condition for condition in step.wait
            )
            machine.put(replace(step, wait=skipped))
            machine.wake(step_id)
            return True
        return False

    def _remembered(self, reader: StateReader, command: StartFlow | InvokeRpc) -> CommandResult | None:
        assert command.request_id is not None
        seen = reader.stored_request(command.request_id)
        if seen is None:
            return None
        operation, digest = _fingerprint(command)
        if seen.operation != operation or seen.input_digest != digest:
            raise RequestIdReusedError(command.request_id)
        if isinstance(command, StartFlow):
            return CommandResult(None, True)
        return CommandResult(None, decode(self.flow.rpc(command.name).output_type, seen.output))

    def _changes(self, machine: Machine, reader: StateReader, command: Command, output: Any) -> Changes:
        header = machine.header
        overlay = machine.overlay
        changes = Changes(
            cancelled=machine.cancelled,
            claimed=[claim for claim in machine.claimed if claim.step_execution_id in header.steps],
            history=machine.history,
            forgotten_history=machine.forgotten_history,
        )
        header.next_message = overlay.next_message
        header.next_history += len(machine.history)
        self._remember(changes, machine, reader, command, output)
        changes.attributes = {
            slot: None if pending is None else pending.data for slot, pending in overlay.written.items()
        }
        if overlay.published:
            changes.published = [
                (channel, key, message_id, data)
                for (channel, key), messages in overlay.published.items()
                for message_id, data in sorted(messages.items())
            ]
        if overlay.consumed:
            changes.consumed = [
                (channel, key, message_id)
                for (channel, key), message_ids in overlay.consumed.items()
                for message_id in sorted(message_ids)
            ]
        for stream, event in overlay.events:
            changes.events.setdefault(stream, []).append(event)
        stored_bodies = self._store_bodies(changes, machine)
        self._schedule(changes, header)
        changes.status = header.status
        changes.known = overlay.known.after(overlay, stored_bodies)
        changes.header = encode_header(header)
        return changes

    def _remember(self, changes: Changes, machine: Machine, reader: StateReader, command: Command, output: Any) -> None:
        if not isinstance(command, (StartFlow, InvokeRpc)) or command.request_id is None:
            return
        header = machine.header
        operation, digest = _fingerprint(command)
        number = header.next_request
        header.next_request += 1
        changes.requests.append(
            StoredRequest(command.request_id, number, operation, digest, Raw(encode(output)), header.now)
        )
        for oldest in reader.oldest_requests(2):
            if oldest.number <= number - REMEMBERED_REQUESTS and oldest.recorded_at < header.now - REMEMBERED_FOR:
                changes.forgotten_requests.append(oldest.request_id)

    def _store_bodies(self, changes: Changes, machine: Machine) -> dict[int, tuple[StepBody, int] | None]:
        """Note the body rows to write; returns the bodies with their encoded sizes, None for those that are gone."""
        stored: dict[int, tuple[StepBody, int] | None] = {}
        for step_id in machine.stale_bodies:
            changes.step_bodies[step_id] = stored[step_id] = None
        for step_id, body in machine.bodies.items():
            step = machine.header.steps[step_id]
            data = encode(body)
            if step.has_body or data != _EMPTY_BODY:
                changes.step_bodies[step_id] = data
                stored[step_id] = (body, len(data))
                machine.header.steps[step_id] = replace(step, has_body=True)
        return stored

    def _schedule(self, changes: Changes, header: FlowHeader) -> None:
        next_due: int | None = None
        for step in header.steps.values():
            dues: list[int] = []
            if step.status == "waiting":
                # A due time that has come is settled: it holds until the other conditions of an `all_of` do.
                dues = [condition.due for condition in step.wait if condition.due > header.now]
            elif step.status in ("backoff", "ready") and step.due:
                dues = [step.due]
            for due in dues:
                next_due = due if next_due is None else min(next_due, due)
            if step.status in ("claimed", "running"):
                changes.active_steps += 1
            elif step.status == "ready" and isinstance(self.flow.steps.get(step.type), ActivityStep):
                changes.has_ready = True
        changes.next_due = next_due


_EMPTY_BODY = encode(StepBody(Raw(encoded_null)))


def _checked_output(rpc: Rpc[Any, Any], output: Any) -> Any:
    try:
        return encode_declared(rpc.output_type, output)[1]
    except Exception as error:
        raise UnstorableValueError(f"the output of RPC {rpc.name!r}", rpc.output_type, error) from error


def _fingerprint(command: StartFlow | InvokeRpc) -> tuple[str, str]:
    operation = "start" if isinstance(command, StartFlow) else f"rpc:{command.name}"
    return operation, hashlib.blake2b(command.input, digest_size=16).hexdigest()
