"""Helpers for tests of agents, sessions and runners; docs/test-your-agent.md shows how they go together."""

from dex_agents.testing.environment import AgentTestEnvironment
from dex_agents.testing.file_gate import FileGate
from dex_agents.testing.flow_factories import FlowFactory
from dex_agents.testing.loopback_ports import find_free_loopback_ports
from dex_agents.testing.polling import poll_until
from dex_agents.testing.session_client import AgentSessionTestClient, SessionWaitTimeoutError
from dex_agents.testing.session_driver import SessionDriver, plain_user_message
from dex_agents.testing.step_history import describe_step_history, read_step_history
from dex_agents.testing.step_processes import (
    SessionOfStepProcesses,
    StepProcess,
    cold_step_processes,
    forked_step_processes,
)
from dex_agents.testing.step_program import StepRequest, run_step_program
from dex_agents.testing.worker_process import KillableWorkerProcess
from dex_agents.testing.worker_program import run_agent_worker_process
from dex_flow.testing import InvocationLog, ProcessFailedError

__all__ = (
    "AgentSessionTestClient",
    "AgentTestEnvironment",
    "FileGate",
    "FlowFactory",
    "InvocationLog",
    "KillableWorkerProcess",
    "ProcessFailedError",
    "SessionDriver",
    "SessionOfStepProcesses",
    "SessionWaitTimeoutError",
    "StepProcess",
    "StepRequest",
    "cold_step_processes",
    "describe_step_history",
    "find_free_loopback_ports",
    "forked_step_processes",
    "plain_user_message",
    "poll_until",
    "read_step_history",
    "run_agent_worker_process",
    "run_step_program",
)
