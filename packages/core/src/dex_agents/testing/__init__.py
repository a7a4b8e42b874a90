"""Helpers for tests of sessions and runners."""

from dex_agents.testing.session_driver import SessionDriver, plain_user_message

__all__ = ("SessionDriver", "plain_user_message")
