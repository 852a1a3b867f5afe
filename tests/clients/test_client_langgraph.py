"""LangGraph over LangChain's OpenAI client: a graph of a model node and a tool node.

The model is bound to the tools' schemas as they are: what LangChain makes of functions lacks the key for
copied arguments.
"""

from __future__ import annotations

from typing import Any

import pytest
from errand import QUESTION, TOOLS, City, Days, Errand, Factor, TurnUsage, check_usage, system
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def graph_of(errand: Errand, base_url: str, api: str, streamed: bool) -> Any:
    @tool
    def weather(city: City, days: Days) -> str:
        """查询城市的天气"""
        return errand.weather(city, days)

    @tool
    def multiply(a: Factor, b: Factor) -> str:
        """multiply two whole numbers"""
        return errand.multiply(a, b)

    model = ChatOpenAI(
        model="default",
        base_url=base_url,
        api_key="none",
        temperature=0,
        max_tokens=48,
        max_retries=0,
        timeout=120,
        streaming=streamed,
        stream_usage=True,
        use_responses_api=api == "responses",
    )

    def think(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools(TOOLS, tool_choice=errand.next_tool or "auto", parallel_tool_calls=False)
        return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([weather, multiply]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


def usage_of(message: AIMessage) -> TurnUsage:
    usage = message.usage_metadata
    assert usage is not None
    return TurnUsage(usage["input_tokens"], usage["output_tokens"], usage["input_token_details"]["cache_read"])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_errand(base_url: str, api: str, streamed: bool):
    errand = Errand()
    graph = graph_of(errand, base_url, api, streamed)
    asked = [SystemMessage(system(f"langgraph {api} {streamed}")), HumanMessage(QUESTION)]
    pieces, messages = [], []
    for mode, value in graph.stream({"messages": asked}, {"recursion_limit": 8}, stream_mode=["messages", "values"]):
        if mode == "messages" and isinstance(value[0], AIMessageChunk):
            pieces.append(value[0])
        elif mode == "values":
            messages = value["messages"]
    errand.check_calls()
    replies = [message for message in messages if isinstance(message, AIMessage)]
    assert replies[-1].text and not replies[-1].tool_calls
    assert [message.content for message in messages if isinstance(message, ToolMessage)] == errand.results
    check_usage([usage_of(reply) for reply in replies])
    if streamed:
        assert len([piece for piece in pieces if piece.tool_call_chunks]) > len(errand.calls)
        assert "".join(str(piece.text) for piece in pieces) == "".join(reply.text for reply in replies)
