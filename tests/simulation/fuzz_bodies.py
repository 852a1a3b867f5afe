"""Sound bodies for every route that takes one, drawn from a seed: small, in several scripts, with most fields."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fuzz_model import STOPS, TOOL_NAMES, words

SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "北京"]}}},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    {"anyOf": [{"type": "null"}, {"const": 1}]},
    {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "string", "maxLength": 3}}},
    {"type": "string", "pattern": "^[ab]{1,3}$"},
    {"not": {}},
    {"$ref": "#/nowhere"},
    {"type": "object", "patternProperties": {"(": {}}},
    {},
)
GRAMMARS = (
    {"kind": "regex", "source": "[ab]{1,4}"},
    {"kind": "choices", "source": '["yes", "不"]'},
    {"kind": "json_schema", "source": '{"type": "boolean"}'},
    {"kind": "lark", "source": 'start: "a"+'},
    {"kind": "lark", "source": "start: ("},
    {"kind": "regex", "source": "(a"},
)


@dataclass
class Memory:
    """What clients learnt from earlier answers, by tenant."""

    sessions: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    responses: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    talks: dict[str, list[list[dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))
    exports: list[bytes] = field(default_factory=list)

    def add(self, known: list[Any], one: Any) -> None:
        known.append(one)
        del known[:-8]


class Bodies:
    """One client's. Args:
    tenant: whose sessions and responses it mostly names.
    """

    def __init__(self, rng: random.Random, memory: Memory, tenant: str) -> None:
        self.rng = rng
        self.memory = memory
        self.tenant = tenant

    # Small parts

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def some(self, **fields: Any) -> dict[str, Any]:
        """A few of these fields."""
        share = self.rng.choice((0.05, 0.2, 0.5))
        return {name: draw() for name, draw in fields.items() if self.chance(share)}

    def text(self) -> str:
        return words(self.rng, self.rng.choice((1, 4, 4, 12, 60)))

    def session(self) -> str:
        """Known, of somebody else, or new."""
        known = self.memory.sessions[self.tenant]
        others = [name for names in self.memory.sessions.values() for name in names]
        draw = self.rng.random()
        if known and draw < 0.75:
            return self.rng.choice(known)
        return self.rng.choice(others) if others and draw < 0.85 else f"s{self.rng.randrange(12)}"

    def response(self) -> str:
        known = self.memory.responses[self.tenant]
        others = [name for names in self.memory.responses.values() for name in names]
        draw = self.rng.random()
        if known and draw < 0.8:
            return self.rng.choice(known)
        return self.rng.choice(others) if others and draw < 0.9 else "resp_nothing"

    def ids(self) -> list[int]:
        return [self.rng.randrange(1100) for _ in range(self.rng.randint(1, 12))]

    def texts(self) -> Any:
        some = [self.text() or "x" for _ in range(self.rng.randint(1, 4))]
        return self.rng.choice((some[0], some, self.ids(), [self.ids()]))

    def sampling(self) -> dict[str, Any]:
        rng = self.rng
        return self.some(
            temperature=lambda: rng.choice((0, 0.5, 1, 2)),
            top_p=lambda: rng.choice((0.1, 1)),
            top_k=lambda: rng.choice((-1, 0, 3)),
            min_p=lambda: 0.2,
            presence_penalty=lambda: rng.choice((-2, 0, 1.5)),
            frequency_penalty=lambda: 0.5,
            repetition_penalty=lambda: rng.choice((0.5, 1, 1.3)),
            logit_bias=lambda: {str(rng.randrange(1200)): rng.choice((-100, 5))},
            seed=lambda: rng.randrange(-4, 4),
            stop=lambda: rng.choice((rng.choice(STOPS), rng.sample(STOPS, 2))),
        )

    def arguments(self) -> str:
        return self.rng.choice(("{}", '{"city": "北京"}', '{"a": {"b": [1, null]}}', "", "{", "[]", "null"))

    def schema(self) -> dict[str, Any]:
        return self.rng.choice(SCHEMAS[:3] if self.chance(0.6) else SCHEMAS)

    def response_format(self, flat: bool) -> dict[str, Any]:
        kind = self.rng.choice(("text", "json_object", "json_schema"))
        if kind != "json_schema":
            return {"type": kind}
        spec = {"name": "form", "schema": self.schema()}
        return {"type": kind, **spec} if flat else {"type": kind, "json_schema": spec}

    def tools(self, flat: bool) -> list[dict[str, Any]]:
        names = self.rng.sample(TOOL_NAMES, self.rng.randint(1, 3))
        specs = [{"name": name, "description": self.text(), "parameters": self.schema()} for name in names]
        return [{"type": "function", **spec} if flat else {"type": "function", "function": spec} for spec in specs]

    def tool_choice(self, flat: bool) -> Any:
        name = self.rng.choice(TOOL_NAMES)
        named = {"type": "function", "name": name} if flat else {"type": "function", "function": {"name": name}}
        listed = {"mode": self.rng.choice(("auto", "required")), "tools": [named]}
        allowed = {"type": "allowed_tools", **(listed if flat else {"allowed_tools": listed})}
        return self.rng.choice(("auto", "none", "required", named, allowed))

    # Chat

    def messages(self) -> list[dict[str, Any]]:
        talks = self.memory.talks[self.tenant]
        said = list(self.rng.choice(talks)) if talks and self.chance(0.4) else []
        if not said and self.chance(0.4):
            said.append({"role": self.rng.choice(("system", "developer")), "content": self.text()})
        if said and said[-1].get("tool_calls"):
            results = [
                {"role": "tool", "tool_call_id": c["id"], "content": self.text()} for c in said[-1]["tool_calls"]
            ]
            return said + self.rng.sample(results, len(results))
        if self.chance(0.15):
            made = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": self.arguments()}}
            said += [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [made]}]
            return [*said, {"role": "tool", "tool_call_id": "c1", "content": self.text()}]
        parts = [{"type": "text", "text": self.text()}, {"type": "text", "text": self.text()}]
        return [*said, {"role": "user", "content": self.text() if self.chance(0.8) else parts}]

    def edits(self) -> dict[str, Any]:
        edit = {"type": self.rng.choice(("evict", "offload", "prefetch", "what"))}
        edit |= self.some(
            target=lambda: self.rng.choice(("session", "messages", "tools")), start=lambda: 1, end=lambda: 2
        )
        return {"manage_request": self.chance(0.3), "edits": [edit] * self.rng.randint(0, 2)}

    def hints(self) -> dict[str, Any]:
        names = ("run-a", "run-b", "跑")
        hint = self.some(
            session_id=lambda: self.rng.choice(names),
            parent_session_id=lambda: self.rng.choice(names),
            context_management=self.edits,
        )
        return self.some(
            agent_hint=lambda: hint, cache_salt=lambda: self.rng.choice(names), cache_sharing=lambda: self.chance(0.5)
        )

    def chat(self) -> dict[str, Any]:
        rng = self.rng
        body = {"model": "default", "messages": self.messages(), "max_tokens": rng.randint(1, 12), **self.sampling()}
        body |= self.hints() | self.some(stream=lambda: True)
        body |= self.some(
            stream=lambda: True,
            n=lambda: rng.randint(1, 3),
            parallel_tool_calls=lambda: False,
            logprobs=lambda: True,
            response_format=lambda: self.response_format(False),
            ignore_eos=lambda: True,
            enable_thinking=lambda: self.chance(0.5),
            reasoning_effort=lambda: rng.choice(("none", "low", "max")),
        )
        if self.chance(0.4):
            body["session_id"] = self.session()
        if self.chance(0.4):
            body["tools"] = self.tools(False)
            body |= self.some(tool_choice=lambda: self.tool_choice(False))
        if body.get("stream") and self.chance(0.5):
            body["stream_options"] = {"include_usage": True}
        if body.get("logprobs") and self.chance(0.5):
            body["top_logprobs"] = rng.randint(0, 3)
        return body

    def release(self) -> dict[str, Any]:
        body = {"model": "default", "messages": self.messages() if self.chance(0.7) else []} | self.hints()
        if self.chance(0.3):
            body["tools"] = self.tools(False)
        return body | self.some(messages_released_index=lambda: 1, tools_released_index=lambda: 0)

    # The other ways to generate

    def items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = [{"role": "user", "content": self.text()}]
        if self.chance(0.3):
            call = {"type": "function_call", "call_id": "c1", "name": "ping", "arguments": self.arguments()}
            items += [call, {"type": "function_call_output", "call_id": "c1", "output": self.text()}]
        if self.chance(0.2):
            items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": self.text()}]})
        if self.chance(0.1):
            items.insert(1, {"type": "reasoning", "content": [{"type": "reasoning_text", "text": self.text()}]})
        return items

    def responses(self) -> dict[str, Any]:
        rng = self.rng
        body = {"model": "default", "input": self.text() if self.chance(0.5) else self.items(), **self.sampling()}
        body |= {"max_output_tokens": rng.randint(1, 12)} | self.some(stream=lambda: True)
        body |= self.some(
            stream=lambda: True,
            instructions=self.text,
            previous_response_id=self.response,
            store=lambda: self.chance(0.5),
            metadata=lambda: {"k": self.text()},
            text=lambda: {"format": self.response_format(True)},
            reasoning=lambda: {"effort": "low"},
            include=lambda: ["message.output_text.logprobs"],
        )
        if self.chance(0.4):
            body["tools"] = self.tools(True)
            body |= self.some(tool_choice=lambda: self.tool_choice(True))
        return body

    def completions(self) -> dict[str, Any]:
        body = {"model": "default", "prompt": self.texts(), "max_tokens": self.rng.randint(1, 10), **self.sampling()}
        body |= self.some(
            stream=lambda: True,
            n=lambda: self.rng.randint(1, 2),
            echo=lambda: True,
            logprobs=lambda: self.rng.randint(0, 2),
            ignore_eos=lambda: True,
        )
        if body.get("stream") and self.chance(0.5):
            body["stream_options"] = {"include_usage": True}
        return body

    def embeddings(self) -> dict[str, Any]:
        return {"model": "talker", "input": self.texts()} | self.some(
            dimensions=lambda: self.rng.randint(1, 5),
            encoding_format=lambda: self.rng.choice(("float", "base64")),
            truncate=lambda: True,
            prompt=lambda: "query",
        )

    def rerank(self) -> dict[str, Any]:
        documents = [self.text() or "x" for _ in range(self.rng.randint(1, 4))]
        body = {"model": "talker", "query": self.text() or "?", "documents": documents}
        return body | self.some(top_n=lambda: 2, return_documents=lambda: False, truncate=lambda: True)

    # Sessions

    def run_fields(self) -> dict[str, Any]:
        return self.some(run=lambda: "run-a", parent_run=lambda: "run-b", priority=lambda: self.rng.randint(-10, 10))

    def given(self) -> dict[str, Any]:
        if self.chance(0.5):
            return {"text": self.text() or "x"} | self.some(control=lambda: True)
        return {"token_ids": self.ids()}

    def create(self) -> dict[str, Any]:
        return self.some(id=self.session, parent=self.session) | self.run_fields()

    def fork(self) -> dict[str, Any]:
        return self.some(id=self.session) | self.run_fields()

    def append(self) -> dict[str, Any]:
        return self.given() | self.run_fields()

    def generate(self) -> dict[str, Any]:
        body = {"max_tokens": self.rng.randint(1, 12), **self.sampling(), **self.run_fields()}
        body |= self.given() if self.chance(0.8) else {}
        return body | self.some(
            stream=lambda: True,
            stop_token_ids=self.ids,
            ignore_eos=lambda: True,
            response_format=lambda: self.response_format(False),
            grammar=lambda: self.rng.choice(GRAMMARS),
            logprobs=lambda: True,
        )

    def suspend(self) -> dict[str, Any]:
        return self.some(seconds=lambda: self.rng.choice((0, 1.5, 500)), reason=self.text)

    def truncate(self) -> dict[str, Any]:
        return {"num_tokens": self.rng.choice((0, 1, 7, 40))}

    def nothing(self) -> dict[str, Any]:
        return {}


def encoded(body: Any, rng: random.Random) -> bytes:
    """As JSON, the way one client or another writes it: with NaN, and with lone surrogates, escaped or not."""
    text = json.dumps(body, ensure_ascii=rng.random() < 0.4)
    return text.encode("utf-8", errors="surrogatepass")
