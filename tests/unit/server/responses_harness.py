"""Short ways to speak the Responses API to a server in process."""

from __future__ import annotations

import json
from typing import Any

import httpx
from fastapi import FastAPI
from server_harness import call

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "查天气",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def respond(app: FastAPI, given: Any = "北京今天天气怎么样？", **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", None)
    body = {"model": "smol", "input": given, **fields}
    return call(app, "POST", PATH, json={k: v for k, v in body.items() if v is not ...}, headers=headers)


def typed_events(response: httpx.Response) -> list[dict[str, Any]]:
    """A stream's events; each is named by its type, and they are numbered from 0."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    found = []
    for number, block in enumerate(response.text.removesuffix("\n\n").split("\n\n")):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        found.append(event)
    return found


def put_together(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output items that a client puts together from a stream alone: from deltas, never from what is `done`."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append(json.loads(json.dumps(event["item"])))
            continue
        if "item_id" not in event:
            continue
        item = items[event["output_index"]]
        assert item["id"] == event["item_id"]
        if kind == "response.content_part.added":
            assert event["content_index"] == len(item["content"])
            item["content"].append(dict(event["part"]))
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            part = item["content"][event["content_index"]]
            part["text"] += event["delta"]
            if "logprobs" in event:
                part["logprobs"] = part["logprobs"] + event["logprobs"]
        elif kind == "response.function_call_arguments.delta":
            item["arguments"] += event["delta"]
        elif kind.endswith("text.done"):
            assert event["text"] == item["content"][event["content_index"]]["text"]
        elif kind == "response.function_call_arguments.done":
            assert event["arguments"] == item["arguments"]
        elif kind == "response.content_part.done":
            assert event["part"] == item["content"][event["content_index"]]
    return items


def bare(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items without what differs between two runs, or between an open and a closed one."""
    return [{k: v for k, v in item.items() if k not in ("id", "status", "call_id")} for item in items]
