"""Do both sides make the same tool calls? Asked through the chat client, under the grammar of the tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tenuto.compare.report import CallReport, DifferentCall
from tenuto.protocol.chat import ChatRequest, ModelClient, ReplyFinished
from tenuto.protocol.messages import Message

MAX_PROMPTS = 256
_AT_ONCE = 8
_CITIES = (
    *("Beijing", "Lisbon", "Toronto", "Oslo", "Cairo", "Lima", "Mumbai", "Sydney"),
    *("Rome", "Denver", "Nairobi", "Vienna", "Boston", "Hanoi", "Dublin", "Prague"),
)
_CHINESE_CITIES = (
    *("北京", "上海", "广州", "深圳", "武汉", "西安", "重庆", "天津"),
    *("青岛", "大连", "厦门", "昆明", "长沙", "郑州", "沈阳", "哈尔滨"),
)
_QUESTIONS = (
    "What is the weather in {city} {day}?",
    "Will it rain in {city} {day}?",
    "How cold will it be in {city} {day}?",
    "Please check the weather in {city} for {day}.",
    "I am going to {city} {day}, do I need an umbrella?",
    "Tell me {city}'s forecast for {day}",
    "Is it going to be windy in {city} {day}?",
)
_CHINESE_QUESTIONS = (
    "{city}{day}天气怎么样？",
    "{day}{city}会下雨吗？",
    "请帮我查一下{city}{day}的天气",
    "我{day}要去{city}，需要带伞吗？",
    "{city}{day}冷不冷？",
    "{city}{day}的天气好吗？",
    "{day}去{city}旅行，天气如何？",
)
_DAYS = ("today", "tomorrow", "next Friday", "next Sunday", "next Tuesday")
_CHINESE_DAYS = ("今天", "明天", "后天", "下周五", "下周二")

# A reply as it is compared: the calls, each as its name and its arguments in one spelling; empty without a call.
Calls = tuple[str, ...]


@dataclass(frozen=True)
class Prompt:
    """A question, and the one call that answers it."""

    question: str
    right: Calls


def prompts(num: int) -> list[Prompt]:
    """Weather questions, by turns in English and Chinese; no two are equal up to MAX_PROMPTS."""
    assert 0 < num <= MAX_PROMPTS
    found = []
    for index in range(num):
        turn = index // 2
        shapes, cities, days = (
            (_CHINESE_QUESTIONS, _CHINESE_CITIES, _CHINESE_DAYS) if index % 2 else (_QUESTIONS, _CITIES, _DAYS)
        )
        # The three lengths have no common divisor, so that the same combination comes back only after 560 turns.
        shape = shapes[turn % len(shapes)]
        city, day = cities[turn % len(cities)], days[turn % len(days)]
        right = _shown_call("weather", {"city": city, "date": day})
        found.append(Prompt(shape.format(city=city, day=day), (right,)))
    return found


async def collect_calls(
    model: ModelClient, request: ChatRequest, questions: Sequence[str], done: Callable[[], None]
) -> list[Calls]:
    """The calls of the first turn that answers each question.

    Args:
        request: with the tools, their examples and the instructions; each question becomes its last message.
        done: called after each.
    """
    room = asyncio.Semaphore(_AT_ONCE)

    async def ask(question: str) -> Calls:
        async with room:
            messages = (*request.messages, Message(role="user", content=question))
            calls = await _first_turn(model, msgspec.structs.replace(request, messages=messages))
        done()
        return calls

    first = await ask(questions[0])  # alone: what cannot run at all fails once, and the others find its prompt computed
    async with asyncio.TaskGroup() as group:
        rest = [group.create_task(ask(question)) for question in questions[1:]]
    return [first, *(task.result() for task in rest)]


async def _first_turn(model: ModelClient, request: ChatRequest) -> Calls:
    async for event in model.stream(request):
        if isinstance(event, ReplyFinished):
            return tuple(_shown_call(call.name, call.arguments) for call in event.message.tool_calls)
    raise AssertionError("a reply ends with ReplyFinished")


def _shown_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {json.dumps(arguments, ensure_ascii=False, sort_keys=True)}"


def call_report(asked: Sequence[Prompt], a: Sequence[Calls], b: Sequence[Calls]) -> CallReport:
    triples = list(zip(asked, a, b, strict=True))
    return CallReport(
        num_prompts=len(triples),
        num_right_a=sum(x == prompt.right for prompt, x, _ in triples),
        num_right_b=sum(y == prompt.right for prompt, _, y in triples),
        num_same=sum(x == y for _, x, y in triples),
        different=tuple(
            DifferentCall(prompt=prompt.question, a=_shown(x), b=_shown(y)) for prompt, x, y in triples if x != y
        ),
    )


def _shown(calls: Calls) -> str:
    return "; ".join(calls) or "no call"
