"""Conversations whose every turn calls a tool: requests, results, and the tools themselves."""

from __future__ import annotations

import random

import msgspec

from tenuto.bench.shape import Shape
from tenuto.bench.words import make_words
from tenuto.protocol.messages import COPIED, ToolSpec

_CITIES = ("Berlin", "Madrid", "Cairo", "Lagos", "Lima", "Oslo", "北京", "上海", "广州", "深圳", "成都", "杭州")
_ITEMS = ("brass screws", "copper wire", "oak planks", "door hinges", "红色油漆", "玻璃杯", "spare batteries", "木椅子")
_COPIED = {"type": "string", COPIED: "newest"}

TOOLS = (
    ToolSpec(
        name="look_up_order",
        description="Find an order by its number.",
        parameters={
            "type": "object",
            "properties": {"order_number": _COPIED, "city": _COPIED, "with_history": {"type": "boolean"}},
            "required": ["order_number", "city", "with_history"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name="count_stock",
        description="Count an item in the warehouse of a city.",
        parameters={
            "type": "object",
            "properties": {
                "item": _COPIED,
                "city": _COPIED,
                "unit": {"enum": ["pieces", "boxes", "pallets"]},
                "limit": {"type": "integer", "minimum": 1, "maximum": 99},
            },
            "required": ["item", "city", "unit", "limit"],
            "additionalProperties": False,
        },
    ),
)


class ToolWorkload(msgspec.Struct, frozen=True):
    """What the agents are told. Every turn must call one of TOOLS; `shape.output_tokens` is the most it may take."""

    shape: Shape
    system: str
    results: tuple[tuple[str, ...], ...]  # [agents][turns]: the user's request first, then results of tools


def make_tool_workload(shape: Shape) -> ToolWorkload:
    """The same shape gives the same workload."""
    rng = random.Random(f"{shape.seed}/tools/system")
    system = "You look after orders and stock. Call one tool at a time. " + make_words(rng, shape.prompt_words)
    return ToolWorkload(
        shape,
        system,
        tuple(tuple(_result(shape, agent, turn) for turn in range(shape.turns)) for agent in range(shape.agents)),
    )


def _result(shape: Shape, agent: int, turn: int) -> str:
    rng = random.Random(f"{shape.seed}/tools/{agent}/{turn}")
    order, city, item = f"A{rng.randint(1000, 9999)}", rng.choice(_CITIES), rng.choice(_ITEMS)
    notes = make_words(rng, shape.result_words)
    if turn == 0:
        return f"Order {order} to {city} lacks {item}. Find out why.\n{notes}"
    return f'{{"next_order": "{order}", "city": "{city}", "item": "{item}", "notes": "{notes}"}}'
