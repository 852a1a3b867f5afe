"""The errand that every client runs: look up the weather, multiply, answer. Two tools, one of them Chinese throughout.

The model is small and weak, so each turn says which tool comes next, and the city can only be copied from the question;
what is under test is the traffic: calls with arguments of the right types, results fed back, a last answer, usage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

QUESTION = "6 乘以 14 等于多少？北京今天天气怎么样？"


def system(who: str) -> str:
    """Begins with what tells a conversation from all others, so that each finds only its own KV again."""
    return f"({who}) You run errands with tools, then answer in one short sentence. 先用工具，再用一句话回答。"


CITY = "^(北京|上海)$"

City = Annotated[str, Field(description="城市", pattern=CITY, json_schema_extra={"x-tenuto-copied": True})]
Days = Annotated[int, Field(description="天数", ge=1, le=3)]
Factor = Annotated[int, Field(description="a factor", ge=0, le=99)]

# The same as plain JSON Schema, for clients that take their tools so.
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "查询城市的天气",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "x-tenuto-copied": True, "pattern": CITY},
                    "days": {"type": "integer", "minimum": 1, "maximum": 3},
                },
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "multiply two whole numbers",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "minimum": 0, "maximum": 99},
                    "b": {"type": "integer", "minimum": 0, "maximum": 99},
                },
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    },
]
ORDER = ("weather", "multiply")


@dataclass
class Errand:
    """The tools, and what was asked of them."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def weather(self, city: str, days: int) -> str:
        return self._done("weather", {"city": city, "days": days}, f"{city}未来{days}天：晴，最高8°C（模拟）")

    def multiply(self, a: int, b: int) -> str:
        return self._done("multiply", {"a": a, "b": b}, f"{a} × {b} = {a * b}")

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        return self.weather(**arguments) if name == "weather" else self.multiply(**arguments)

    @property
    def next_tool(self) -> str | None:
        """The tool whose turn it is; None when all that is left is the answer."""
        return ORDER[len(self.calls)] if len(self.calls) < len(ORDER) else None

    def check_calls(self) -> None:
        """Both tools were called, each once and in order, with arguments of the declared types."""
        assert [name for name, _ in self.calls] == list(ORDER)
        (_, weather), (_, factors) = self.calls
        assert weather["city"] == "北京", weather
        assert type(weather["days"]) is int and 1 <= weather["days"] <= 3
        assert all(type(factors[name]) is int and 0 <= factors[name] <= 99 for name in ("a", "b"))

    def _done(self, name: str, arguments: dict[str, Any], result: str) -> str:
        self.calls.append((name, arguments))
        self.results.append(result)
        return result


@dataclass(frozen=True)
class TurnUsage:
    """What one turn cost, however a client names it."""

    prompt: int
    generated: int
    cached: int


def check_usage(turns: list[TurnUsage]) -> None:
    """Three turns; each prompt holds the one before, its reply and a result; and its KV was found again."""
    assert len(turns) == len(ORDER) + 1
    for before, after in pairwise(turns):
        assert before.generated > 0
        # The reply and the result of its tool stand in the next prompt: nothing was dropped on the way.
        assert after.prompt > before.prompt + before.generated
        # Whole blocks of 16 tokens are found again: the earlier prompt, and what was generated after it.
        assert after.cached >= before.prompt + before.generated - 2 * 16
        assert after.cached <= after.prompt
