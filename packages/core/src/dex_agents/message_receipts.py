"""Sending a user message with a receipt, by which the turn that takes it can be told from every other turn."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TypeAlias

import msgspec

from dex_agents.session.definition import UserMessageBuilder
from dex_agents.session.ingress import repair_message
from dex_agents.session.persistence import QUEUED_USER_MESSAGES, STEERED_USER_MESSAGES
from dex_agents.session.rpc_values import SendUserMessageInput
from dex_agents.session.sanitizer import sanitize_text
from dex_agents.session.transitions import session_state
from dex_flow import Rpc, Transaction

__all__ = [
    "SEND_USER_MESSAGE_WITH_RECEIPT",
    "ReceiptRpc",
    "UserMessageReceipt",
    "send_user_message_with_receipt",
    "text_digest",
]

#: Durable name of the RPC.
SEND_USER_MESSAGE_WITH_RECEIPT = "send_user_message_with_receipt"


class UserMessageReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where an accepted user message stood in the commit that accepted it.

    Attributes:
        message_id: Its ID in the queue.
        sent_at: When it was accepted; it keeps that when it leaves the queue to steer a turn.
        turn_count: Turns started before.
        turns_ahead: Turns that start before its own, unless messages are deleted or steered.
        last_message_sequence: Sequence of the newest stored message.
        text_digest: Tells its stored form from other user messages; see `text_digest`.
    """

    message_id: int
    sent_at: datetime
    turn_count: int
    turns_ahead: int
    last_message_sequence: int
    text_digest: str


ReceiptRpc: TypeAlias = Rpc[SendUserMessageInput, UserMessageReceipt | None]


def text_digest(stored_text: str) -> str:
    """A short form of a stored message's text, equal for equal texts only."""
    return hashlib.sha256(stored_text.encode()).hexdigest()


def send_user_message_with_receipt(
    send_user_message: Rpc[SendUserMessageInput, bool], build_user_message: UserMessageBuilder
) -> ReceiptRpc:
    """The RPC: `send_user_message` with a receipt in place of True, and None in place of False.

    A repeated request ID gives the first receipt, so that a repeated call waits for the same turn.

    Args:
        send_user_message: The Flow type's own RPC, which knows whether there is a plan mode.
        build_user_message: The runner's pure function, which says how the message will be stored.
    """

    def send(tx: Transaction, input: SendUserMessageInput) -> UserMessageReceipt | None:
        if send_user_message.handler(tx, input) is not True:
            return None
        state = session_state(tx)
        queued = tx.list_messages(QUEUED_USER_MESSAGES)
        message_id, message = queued[-1]
        stored = repair_message(build_user_message(sanitize_text(input.text)), None)
        return UserMessageReceipt(
            message_id=message_id,
            sent_at=message.sent_at,
            turn_count=state.turn_count,
            turns_ahead=len(queued) - 1 + (tx.count_messages(STEERED_USER_MESSAGES) > 0),
            last_message_sequence=state.last_message_sequence,
            text_digest=text_digest(stored.text),
        )

    return Rpc(SEND_USER_MESSAGE_WITH_RECEIPT, send, SendUserMessageInput, UserMessageReceipt | None)
