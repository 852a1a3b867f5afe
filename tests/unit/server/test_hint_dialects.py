"""Every dialect of hints over HTTP: what becomes of it inside, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from server_harness import CHAT, WEATHER, call, chat, events

from tenuto.clock import RealClock
from tenuto.errors import InvalidRequest
from tenuto.ids import IdSource
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.hints import RunHints
from tenuto.protocol.release import KeptPart
from tenuto.server import OtherClients, create_app
from tenuto.testing.scripted_model import Reply, ScriptedModel

USER = {"role": "user", "content": "北京今天天气怎么样？"}
RELEASE = "/release_kv_cache"


class FakeReleases:
    """Notes what is given up."""

    def __init__(self) -> None:
        self.conversations: list[tuple[ChatRequest, KeptPart]] = []
        self.runs: list[RunHints] = []

    async def release_conversation(self, request: ChatRequest, kept: KeptPart) -> int:
        if request.messages[-1].content == "乱":
            raise InvalidRequest("messages: no conversation", "messages")
        self.conversations.append((request, kept))
        return 7

    async def release_run(self, hints: RunHints) -> int:
        self.runs.append(hints)
        return 3


class Served:
    def __init__(self, *, holds_kv: bool = True) -> None:
        self.model = ScriptedModel(lambda _: Reply("你好"))
        self.releases = FakeReleases()
        others = OtherClients(releases=self.releases) if holds_kv else OtherClients()
        self.app: FastAPI = create_app(
            self.model, served_names=("smol",), clock=RealClock(), ids=IdSource(1), others=others
        )

    def hints(self) -> RunHints:
        return self.model.seen.requests[-1].hints


def agent_hint(*edits: dict[str, Any], only: bool = True, **fields: Any) -> dict[str, Any]:
    hint = {"session_id": "会话", "parent_session_id": "会话", **fields}
    return hint | {"context_management": {"manage_request": only, "edits": list(edits)}}


class TestWhoseRequest:
    @pytest.mark.parametrize(
        "header",
        ["X-Session-ID", "x-session-affinity", "X-Conversation-Id", "Session-Id", "session_id", "conversation_id"],
    )
    def test_headers(self, header: str):
        served = Served()
        headers = {header: " run-7 ", "X-Parent-Session-ID": "boss"}
        assert call(served.app, "POST", CHAT, headers=headers, json={"model": "smol", "messages": [USER]}).is_success
        assert served.hints() == RunHints(run="run-7", parent="boss")

    def test_the_first_header_that_says_something_counts(self):
        served = Served()
        headers = {"conversation_id": "c", "X-Session-ID": " ", "x-session-affinity": "a"}
        call(served.app, "POST", CHAT, headers=headers, json={"model": "smol", "messages": [USER]})
        assert served.hints().run == "a"

    def test_responses_belong_to_runs_too(self):
        served = Served()
        headers = {"X-Session-ID": "run-7"}
        body = {"model": "smol", "input": "你好", "store": False}
        assert call(served.app, "POST", "/v1/responses", headers=headers, json=body).is_success
        assert served.hints().run == "run-7"

    def test_without_any_there_is_no_run(self):
        served = Served()
        chat(served.app, USER)
        assert served.hints() == RunHints()

    def test_a_root_session_names_itself_a_child_its_parent(self):
        served = Served()
        chat(served.app, USER, agent_hint={"session_id": "会话", "parent_session_id": "会话", "extra": [1]})
        assert served.hints() == RunHints(run="会话")
        chat(served.app, USER, agent_hint={"session_id": "子", "parent_session_id": "会话"})
        assert served.hints() == RunHints(run="子", parent="会话")

    def test_a_shared_salt_is_a_name_and_a_salt_alone_keeps_prefixes_apart(self):
        served = Served()
        chat(served.app, USER, cache_salt="盐", cache_sharing=True)
        assert served.hints() == RunHints(run="盐")
        chat(served.app, USER, cache_salt="盐")
        assert served.hints() == RunHints(salt="盐")
        chat(served.app, USER, cache_salt="盐", cache_sharing=False)
        assert served.hints() == RunHints(salt="盐")
        chat(served.app, USER, cache_sharing=True)
        assert served.hints() == RunHints()

    def test_the_body_goes_before_the_headers(self):
        served = Served()
        body = {"model": "smol", "messages": [USER], "agent_hint": {"session_id": "b"}}
        call(served.app, "POST", CHAT, headers={"X-Session-ID": "h", "X-Parent-Session-ID": "p"}, json=body)
        assert served.hints() == RunHints(run="b")

    def test_a_long_name_is_stood_for_by_its_digest(self):
        served = Served()
        runs = []
        for name in ("队" * 128, "队" * 129, "队" * 200, "队" * 129):
            chat(served.app, USER, agent_hint={"session_id": name})
            runs.append(served.hints().run)
        assert runs[0] == "队" * 128 and runs[1] == runs[3] != runs[2]
        assert all(len(run) <= 128 for run in runs)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"agent_hint": "会话"}, "agent_hint"),
        ({"agent_hint": {"session_id": 5}}, "agent_hint.session_id"),
        ({"agent_hint": {"context_management": []}}, "agent_hint.context_management"),
        ({"agent_hint": agent_hint({"type": "evict", "start": -1})}, "agent_hint.context_management.edits[0].start"),
        ({"agent_hint": agent_hint({"type": "evict", "end": "3"})}, "agent_hint.context_management.edits[0].end"),
        ({"agent_hint": agent_hint({"target": "session"})}, "agent_hint.context_management.edits[0].type"),
        (
            {"agent_hint": agent_hint({"type": "evict", "target": "messages", "start": 3, "end": 2})},
            "agent_hint.context_management.edits[0]",
        ),
        ({"agent_hint": agent_hint(*[{"type": "evict"}] * 65)}, "agent_hint.context_management.edits"),
        ({"cache_salt": 5}, "cache_salt"),
        ({"cache_sharing": "yes"}, "cache_sharing"),
    ],
)
def test_a_hint_of_the_wrong_shape_is_refused_by_name(fields: dict[str, Any], param: str):
    served = Served()
    response = chat(served.app, USER, **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert served.model.seen.requests == []


class TestEditsOnly:
    def manage(self, served: Served, *edits: dict[str, Any], **fields: Any) -> dict[str, Any]:
        body = {"model": "smol", "messages": [], "agent_hint": agent_hint(*edits), **fields}
        response = call(served.app, "POST", CHAT, json=body)
        assert response.status_code == 200, response.text
        assert served.model.seen.requests == []
        answer = response.json()
        assert answer["choices"][0]["message"]["content"] == "" and answer["usage"]["total_tokens"] == 0
        return answer["context_management"]

    def test_a_session_is_evicted(self):
        served = Served()
        told = self.manage(served, {"type": "evict", "target": "session"})
        assert told == {
            "applied_edits": [{"type": "evict", "target": "session", "blocks_released": 3}],
            "skipped_edits": [],
        }
        assert served.releases.runs == [RunHints(run="会话")]

    def test_messages_and_tools_are_evicted_from_the_start_of_the_range_on(self):
        served = Served()
        edits = (
            {"type": "evict", "target": "messages", "start": 1, "end": 3},
            {"type": "evict", "target": "tools", "start": 0, "end": 1},
        )
        messages = [USER, {"role": "assistant", "content": "晴"}, {"role": "user", "content": "好"}]
        told = self.manage(served, *edits, messages=messages, tools=[WEATHER])
        assert [edit["blocks_released"] for edit in told["applied_edits"]] == [7, 7]
        (asked, kept), (_, kept_tools) = served.releases.conversations
        assert [message.content for message in asked.messages] == [USER["content"], "晴", "好"]
        assert [tool.name for tool in asked.tools] == ["weather"] and asked.hints == RunHints(run="会话")
        assert kept == KeptPart(num_messages=1)
        assert kept_tools == KeptPart(num_messages=3, num_tools=0)

    def test_an_empty_range_means_nothing_and_an_open_one_the_rest(self):
        served = Served()
        edits = (
            {"type": "evict", "target": "messages", "start": 0, "end": 0},
            {"type": "evict", "target": "tools", "start": 1, "end": 1},
            {"type": "evict", "target": "messages"},
            {"type": "evict", "target": "tools", "end": 9},
        )
        self.manage(served, *edits, messages=[USER], tools=[WEATHER])
        assert [kept for _, kept in served.releases.conversations] == [
            KeptPart(num_messages=1),
            KeptPart(num_messages=1, num_tools=1),
            KeptPart(num_messages=0),
            KeptPart(num_messages=1, num_tools=0),
        ]

    def test_what_cannot_be_done_is_told(self):
        served = Served()
        edits = (
            {"type": "offload", "target": "session"},
            {"type": "prefetch", "target": "messages", "start": 0, "end": 2},
            {"type": "compress", "target": "session"},
            {"type": "evict", "target": "planets"},
            {"type": "evict", "target": "messages", "start": 0, "end": 1},
        )
        told = self.manage(served, *edits)
        assert told["applied_edits"] == []
        assert [edit["reason"].split(":")[0] for edit in told["skipped_edits"]] == ["not done"] * 2 + ["skipped"] * 3
        assert told["skipped_edits"][1]["start"] == 0 and told["skipped_edits"][1]["end"] == 2

    def test_a_conversation_that_could_not_be_asked_for_has_nothing_to_evict(self):
        told = self.manage(
            Served(), {"type": "evict", "target": "messages"}, messages=[{"role": "user", "content": "乱"}]
        )
        assert "no conversation" in told["skipped_edits"][0]["reason"]

    def test_no_session_and_no_edits_are_no_error(self):
        served = Served()
        told = self.manage(
            served,
            {"type": "evict", "target": "session"},
            agent_hint=agent_hint({"type": "evict", "target": "session"}, session_id=None),
        )
        assert told["skipped_edits"] and served.releases.runs == []
        assert self.manage(served, n=3, stream=False) == {"applied_edits": [], "skipped_edits": []}

    def test_a_model_whose_kv_is_elsewhere(self):
        told = self.manage(Served(holds_kv=False), {"type": "evict", "target": "session"})
        assert told["skipped_edits"][0]["reason"].startswith("not done")

    def test_a_session_that_chat_holds_is_closed_by_its_name_or_the_runs(self):
        served = Served()
        for name, fields in (("run-1", {}), ("held", {"session_id": "held"})):
            chat(served.app, USER, session_id=name)
            held = served.model.seen.requests[-1].session
            assert held is not None and held not in served.model.seen.closes
            served.model.seen.requests.clear()
            hint = agent_hint({"type": "evict", "target": "session"}, session_id="run-1")
            self.manage(served, agent_hint=hint, **fields)
            assert held in served.model.seen.closes

    def test_streamed(self):
        served = Served()
        hint = agent_hint({"type": "evict", "target": "session"})
        response = call(
            served.app, "POST", CHAT, json={"model": "smol", "messages": [], "stream": True, "n": 2, "agent_hint": hint}
        )
        *chunks, told, done = events(response)
        assert done == "[DONE]" and told["choices"] == []
        assert told["context_management"]["applied_edits"][0]["blocks_released"] == 3
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"

    def test_only_then_may_messages_be_empty(self):
        response = call(Served().app, "POST", CHAT, json={"model": "smol", "messages": [], "agent_hint": {}})
        assert response.status_code == 400 and response.json()["error"]["param"] == "messages"


EVICT = {"type": "evict", "target": "session"}


class TestEditsAfterTheReply:
    def test_whole(self):
        served = Served()
        answer = chat(served.app, USER, agent_hint=agent_hint(EVICT, only=False)).json()
        assert answer["choices"][0]["message"]["content"] == "你好"
        assert answer["context_management"]["applied_edits"][0]["blocks_released"] == 3
        assert len(served.model.seen.requests) == len(served.releases.runs) == 1

    def test_streamed(self):
        served = Served()
        response = chat(
            served.app,
            USER,
            agent_hint=agent_hint(EVICT, only=False),
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, usage, told, done = events(response)
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert text == "你好" and usage["usage"]["total_tokens"] > 0 and done == "[DONE]"
        assert told["context_management"]["applied_edits"] and told["usage"] is None

    def test_without_edits_answers_are_as_ever(self):
        served = Served()
        answer = chat(served.app, USER, agent_hint={"session_id": "s", "parent_session_id": "s"}).json()
        assert "context_management" not in answer


class TestReleaseRoute:
    def release(self, served: Served, path: str = RELEASE, **fields: Any) -> dict[str, Any]:
        body = {"model": "smol", "cache_salt": "盐", "cache_sharing": True, "messages": [USER], **fields}
        response = call(served.app, "POST", path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    @pytest.mark.parametrize("path", [RELEASE, "/v1" + RELEASE])
    def test_messages_and_tools(self, path: str):
        served = Served()
        told = self.release(served, path, tools=[WEATHER], messages_released_index=1, tools_released_index=0)
        assert told == {"cache_salt": "盐", "block_released": 7}
        ((asked, kept),) = served.releases.conversations
        assert asked.hints == RunHints(run="盐")
        assert kept == KeptPart(num_messages=1, num_tools=0)

    @pytest.mark.parametrize(
        ("fields", "kept"),
        [
            ({"messages_released_index": 0}, KeptPart(num_messages=0)),
            ({"messages_released_index": -5}, KeptPart(num_messages=0)),
            ({"messages_released_index": 99}, KeptPart(num_messages=99)),
            ({}, KeptPart(num_messages=0)),
            ({"tools_released_index": -1}, KeptPart(num_messages=1, num_tools=0)),
        ],
    )
    def test_places(self, fields: dict[str, Any], kept: KeptPart):
        served = Served()
        self.release(served, **fields)
        assert served.releases.conversations[0][1] == kept

    def test_without_messages_the_whole_session(self):
        served = Served()
        assert self.release(served, messages=[])["block_released"] == 3
        assert served.releases.runs == [RunHints(run="盐")]

    def test_what_was_never_asked_for_has_nothing_to_release(self):
        assert self.release(Served(), messages=[{"role": "user", "content": "乱"}])["block_released"] == 0
        assert self.release(Served(holds_kv=False), cache_salt=None) == {"cache_salt": None, "block_released": 0}

    def test_wrong_shapes_are_refused(self):
        served = Served()
        for fields in ({"messages_released_index": "1"}, {"messages": "x"}, {"messages": [{"role": "king"}]}):
            body = {"model": "smol", "messages": [USER], **fields}
            assert call(served.app, "POST", RELEASE, json=body).status_code == 400
        assert call(served.app, "POST", RELEASE, json={"model": "gpt-99", "messages": []}).status_code == 404
        assert served.releases.conversations == []
