"""The scripted model that the package gives to applications' tests."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from dex_agents_langgraph.testing import ScriptedChatModel, call_tool


def test_it_answers_by_how_much_was_said() -> None:
    model = ScriptedChatModel("first", lambda messages: f"{len(messages)} messages")
    question = HumanMessage("hi")
    assert model.invoke([question]).text == "first"
    assert model.invoke([question]).text == "first"
    assert model.invoke([question, AIMessage("first"), question]).text == "3 messages"
    assert model.invoke([question, AIMessage("a"), AIMessage("b"), question]).text == "4 messages"
    assert [len(request) for request in model.requests] == [1, 1, 3, 4]


def test_it_streams_words_and_calls() -> None:
    chunks = list(ScriptedChatModel("one two").stream("hi"))
    assert [str(chunk.text) for chunk in chunks] == ["one ", "two", ""]
    whole: AIMessageChunk | None = None
    for chunk in ScriptedChatModel(call_tool("add", a=1)).stream("hi"):
        assert isinstance(chunk, AIMessageChunk)
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert [(call["name"], call["args"], call["id"]) for call in whole.tool_calls] == [("add", {"a": 1}, "call_1")]


def test_a_script_that_is_over_says_so() -> None:
    with pytest.raises(ValueError, match="has 1 replies, and number 2"):
        ScriptedChatModel("only").invoke([HumanMessage("a"), AIMessage("only"), HumanMessage("b")])
