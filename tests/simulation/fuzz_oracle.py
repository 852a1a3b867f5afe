"""What must be true of every answer, whatever was asked."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fuzz_visit import Visit

from tenuto.errors import TenutoError

STATUSES = frozenset((200, 307, 400, 401, 404, 405, 408, 409, 413, 415, 429))  # 307: a slash too many
MAX_AFTERMATH_S = 0.3  # of virtual time, for the work of a client that has gone to end
LAST = ("response.completed", "response.incomplete", "response.failed")
BETRAYING = ("Traceback", 'File "', ".py", "site-packages", "/src/", "/home/", "0x7f")


class Broken(AssertionError):
    """A promise that the server did not keep."""


def expect(holds: bool, promise: str) -> None:
    if not holds:
        raise Broken(promise)


def check(visit: Visit, secrets: tuple[str, ...]) -> None:
    """Raises Broken."""
    is_export = visit.route.endswith("/export")
    if visit.error is not None:
        # An export that breaks off breaks the connection.
        told = is_export and visit.answer and isinstance(visit.error, TenutoError)
        expect(bool(told), f"an exception came out of the application: {visit.error!r}")
        return
    text = visit.body.decode("utf-8", errors="replace") + str(visit.answer_headers)
    expect(not any(secret in text for secret in secrets), "an API key is in the answer")
    lasted_s = visit.end_s - visit.left_s if visit.left is not None else 0.0
    expect(lasted_s <= MAX_AFTERMATH_S, f"work goes on for {lasted_s:.1f} s after its client has gone")
    if visit.left is not None and (visit.status is None or not visit.whole):
        expect(visit.status in (None, 200, 499, *STATUSES), f"status {visit.status}")
        return
    if visit.left is not None and visit.status == 499:
        return
    expect(visit.status in STATUSES, f"status {visit.status}")
    expect(visit.whole, "the answer has no end")
    expect(visit.answer_headers.get("x-request-id", "").startswith("req-"), "the answer has no request id")
    kind = visit.answer_headers.get("content-type", "")
    if visit.status == 307:
        expect(visit.answer_headers["location"].startswith("http://localhost/"), "sent to another place")
    elif visit.status != 200:
        check_error(_json(visit.body))
        expect(visit.status != 429 or int(visit.answer_headers["retry-after"]) >= 1, "a 429 without Retry-After")
    elif kind.startswith("text/event-stream"):
        check_stream(visit)
    elif kind.startswith("application/json"):
        _json(visit.body)


def check_error(body: Any) -> None:
    expect(isinstance(body, dict) and set(body) == {"error"}, f"no error's shape: {body!r}")
    error = body["error"]
    expect(set(error) == {"message", "type", "param", "code"}, f"no error's fields: {error!r}")
    expect(isinstance(error["message"], str) and error["message"] != "", "an error without a message")
    expect(error["type"] in ("invalid_request_error", "rate_limit_error"), f"an error of type {error['type']}")
    told = error["message"]
    expect(not any(word in told for word in BETRAYING), f"an error tells of the inside: {told}")


def _json(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=_no_constant)
    except ValueError as error:
        raise Broken(f"not valid JSON: {error}: {content[:200]!r}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def events_of(visit: Visit) -> list[dict[str, Any] | str]:
    """A stream's events; the terminator as it stands."""
    text = visit.body.decode()
    expect(text.endswith("\n\n"), "a stream breaks off inside an event")
    found: list[dict[str, Any] | str] = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        lines = block.split("\n")
        expect(lines[-1].startswith("data: ") and len(lines) <= 2, f"no event: {block[:200]!r}")
        data = lines[-1].removeprefix("data: ")
        found.append(data if data == "[DONE]" else _json(data.encode()))
        if len(lines) == 2:
            expect(lines[0] == f"event: {found[-1]['type']}", "an event of another name")  # type: ignore[index]
    return found


def check_stream(visit: Visit) -> None:
    events = events_of(visit)
    if "/responses" in visit.route:
        kinds = [event["type"] for event in events if isinstance(event, dict)]
        expect(len(kinds) == len(events), "a stream of a response has no [DONE]")
        expect([k for k in kinds if k in LAST] == kinds[-1:], f"a stream with {kinds} has not one end")
        expect([e["sequence_number"] for e in events] == list(range(len(events))), "events out of order")  # type: ignore[index]
        last = events[-1]["response"]  # type: ignore[index]
        expect((last["error"] or {}).get("code") not in ("internal_error", "server_error"), f"failed: {last['error']}")
        return
    expect(events.count("[DONE]") == 1 and events[-1] == "[DONE]", "a stream has exactly one end")
    values: list[dict[str, Any]] = events[:-1]  # type: ignore[assignment]
    errors = [value for value in values if "error" in value]
    if errors:
        expect(len(errors) == 1 and values[-1] is errors[0], "an error ends the stream")
        check_error(errors[0])
        return
    ends: Counter[int] = Counter()
    for value in values:
        for choice in value.get("choices", [value]):
            ends[choice.get("index", 0)] += choice["finish_reason"] is not None
    expect(bool(ends) and set(ends.values()) == {1}, f"each choice ends once: {ends}")
    if visit.sent is not None and "/sessions" not in visit.route:
        asked = (visit.sent.get("stream_options") or {}).get("include_usage") is True
        told = [value for value in values if value.get("usage") is not None]
        expect(len(told) == asked, f"{len(told)} chunks with usage")


# Streamed and whole


def outcome(visit: Visit) -> Any:
    """What an answer says, whichever way it came, without what differs between two answers."""
    if visit.status != 200:
        return visit.status, _json(visit.body)["error"]["code"]
    if not visit.answer_headers["content-type"].startswith("text/event-stream"):
        return _said(visit.route, _json(visit.body))
    events = events_of(visit)
    if "/responses" in visit.route:
        return _said(visit.route, events[-1]["response"])  # type: ignore[index]
    values: list[dict[str, Any]] = events[:-1]  # type: ignore[assignment]
    if "error" in values[-1]:
        return "error", values[-1]["error"]["code"]
    if "/sessions" in visit.route:
        ids = [i for value in values for i in value["token_ids"]]
        text = "".join(value["text"] for value in values)
        return ids, text, values[-1]["finish_reason"], values[-1]["stop_reason"]
    return _collected(values)


def _said(route: str, body: dict[str, Any]) -> Any:
    if "/sessions" in route:
        return body["token_ids"], body["text"], body["finish_reason"], body["stop_reason"]
    if "/responses" in route:
        items = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in body["output"]]
        return body["status"], body["error"], items
    said = {}
    for choice in body["choices"]:
        message = choice.get("message") or {"content": choice["text"]}
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
        text, thought = message["content"] or "", message.get("reasoning_content") or ""
        said[choice["index"]] = (text, thought, calls, choice["finish_reason"])
    return said


def _collected(values: list[dict[str, Any]]) -> Any:
    parts: dict[int, dict[str, Any]] = {}
    for value in values:
        for choice in value["choices"]:
            part = parts.setdefault(choice["index"], {"text": "", "thought": "", "calls": [], "end": None})
            delta = choice.get("delta") or {"content": choice.get("text")}
            part["text"] += delta.get("content") or ""
            part["thought"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    expect(call["index"] == len(part["calls"]), "calls are numbered as they come")
                    part["calls"].append([call["function"]["name"], ""])
                part["calls"][call["index"]][1] += call["function"].get("arguments", "")
            part["end"] = choice["finish_reason"] or part["end"]
    return {i: (p["text"], p["thought"], [tuple(c) for c in p["calls"]], p["end"]) for i, p in parts.items()}
