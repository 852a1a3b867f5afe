"""Whose session it is, how long it is kept, and chat in sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from session_harness import BINARY, CHAT, SESSIONS, Desk, key_of, with_sessions

from chat_harness import END, TOKENIZER, said
from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import QueueFull, SessionExists, SessionNotFound
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.hints import RunHints
from tenuto.server import ServerLimits
from tenuto.server.limits import SessionLimits
from tenuto.server.sessions import SessionDirectory, check_name, session_of

S = SessionId("s")
HI = {"role": "user", "content": "你好"}


def few(count: int) -> ServerLimits:
    return ServerLimits(sessions=SessionLimits(max_per_tenant=count))


def test_tenants_neither_see_nor_meet_each_other() -> None:
    async def body(desk: Desk) -> None:
        for tenant in ("", "acme", "of tenant", "a"):
            await desk.post("", id="s", tenant=tenant)
            await desk.post("/s/append", token_ids=[5] * (1 + len(tenant)), tenant=tenant)
        assert len(desk.engine.sessions) == 4
        for tenant in ("", "acme", "of tenant", "a"):
            assert (await desk.get("/s", tenant=tenant))["num_tokens"] == 1 + len(tenant)
            assert [one["id"] for one in (await desk.get(tenant=tenant))["data"]] == ["s"]
        await desk.post("", id="mine", tenant="a")
        for path in ("/mine", "/mine/tokens", "/mine/export"):
            await desk.get(path, 404, tenant="b")
        await desk.post("/mine/append", 404, token_ids=[1], tenant="b")
        await desk.post("", 404, parent="mine", tenant="b")
        await desk.delete("/mine", 404, tenant="b")
        await desk.delete("/s", tenant="a")
        assert (await desk.get("/s", tenant=""))["num_tokens"] == 1
        assert "tenant" not in (await desk.get("/nothing", 404, tenant="a"))["error"]["message"]

    with_sessions(body)


def test_names_of_two_tenants_are_never_equal() -> None:
    tenants = ["", "t", "t of tenant t", " of tenant t", "\0"]
    names = ["s", "s.of.tenant.t", "t", "@", "=of=", "a" * 128]
    assert len({session_of(tenant, check_name(name)) for tenant in tenants for name in names}) == 30


def test_a_prefix_is_the_tenant_s_own() -> None:
    async def body(desk: Desk) -> None:
        seen: list[RunHints] = []
        opened, generated = desk.engine.open, desk.engine.generate

        async def noting(session: SessionId, **options: Any) -> None:
            seen.append(options["hints"])
            await opened(session, **options)

        def noting_too(*arguments: Any, opening: RunHints | None = None) -> Any:
            seen.extend([] if opening is None else [opening])
            return generated(*arguments, opening=opening)

        desk.engine.open, desk.engine.generate = noting, noting_too  # type: ignore[method-assign]
        await desk.post("", id="s", tenant="t")
        await desk.post("", parent="s", tenant="t")
        await desk.chats(HI, tenant="t")
        await desk.chats(HI, tenant="t", session_id="c")
        data = await desk.export("/s", tenant="t")
        await desk.http.put(f"{SESSIONS}/i/import", content=data, headers=BINARY | key_of("t"))
        assert [hints.tenant for hints in seen] == ["t"] * 4
        await desk.chats(HI)
        assert seen[-1].tenant == ""

    with_sessions(body, [said("一"), said("二"), said("三")])


def test_a_tenant_has_so_many_sessions_and_no_more() -> None:
    async def body(desk: Desk) -> None:
        for i in range(2):
            await desk.post("", id=f"s{i}", tenant="t")
        answer = await desk.http.post(SESSIONS, json={}, headers=key_of("t"))
        assert answer.status_code == 429 and "retry-after" in answer.headers
        assert "2 sessions are open already" in answer.json()["error"]["message"]
        await desk.post("/s0/fork", 429, tenant="t")
        imported = await desk.http.put(f"{SESSIONS}/x/import", content=b"[[],0]", headers=BINARY | key_of("t"))
        assert imported.status_code == 429
        await desk.chats(HI, session_id="c", status=429, tenant="t")
        await desk.post("", id="s0", tenant="u")
        await desk.delete("/s1", tenant="t")
        await desk.chats(HI, session_id="c", tenant="t")
        await desk.chats(HI, session_id="d", tenant="t")  # makes room of the other session that chat opened
        assert [(one["id"], one["opened_by"]) for one in (await desk.get(tenant="t"))["data"]] == [
            ("d", "chat"),
            ("s0", "sessions"),
        ]
        assert len(desk.engine.sessions) == 3

    with_sessions(body, [said("一"), said("二")], limits=few(2))


def test_unused_sessions_are_closed_in_time() -> None:
    async def main() -> None:
        clock, closed = VirtualClock(), []

        async def close(session: SessionId) -> None:
            closed.append((session, clock.now()))
            if session == "lost":
                raise SessionNotFound("lost")

        directory = SessionDirectory(clock, SessionLimits(idle_s=100, max_per_tenant=9), close)
        made = {name: directory.add("", name, RunHints()) for name in ("a", "b", "c", "lost")}
        made["c"].keep_until_s = 250.0
        with directory.using(made["b"]):
            await asyncio.sleep(130)
            assert [name for name, _ in closed] == ["a", "lost"]
            with pytest.raises(SessionNotFound):
                directory.find("", "a")
            assert directory.find("", "b") is made["b"]
        directory.add("", "a", RunHints())
        await asyncio.sleep(90)
        assert directory.expires_in_s(made["b"]) == 10.0
        await asyncio.sleep(50)
        assert closed[2:] == [("b", 230.0), ("a", 230.0), ("c", 250.0)]
        assert directory.page("", 10, None) == ([], False)
        with pytest.raises(SessionNotFound):
            directory.find("", "b")
        directory.add("", "b", RunHints())

    run_virtual(main())


def test_names_are_reserved_and_given_back() -> None:
    async def main() -> None:
        failing = True

        async def close(_: SessionId) -> None:
            if failing:
                raise RuntimeError

        directory = SessionDirectory(VirtualClock(), SessionLimits(max_per_tenant=1), close)
        entry = directory.add("t", "a", RunHints())
        with pytest.raises(SessionExists):
            directory.add("t", "a", RunHints())
        with pytest.raises(QueueFull):
            directory.add("t", "b", RunHints())
        with pytest.raises(RuntimeError):
            await directory.close(entry)
        assert directory.find("t", "a") is entry
        failing = False
        await directory.close(entry)
        directory.remove(entry)
        second = directory.add("t", "a", RunHints())
        directory.remove(entry)  # long gone: not the second
        assert directory.find("t", "a") is second

    run_virtual(main())


def test_chat_goes_on_in_a_session_and_sessions_in_chat_s() -> None:
    async def body(desk: Desk) -> None:
        reply = await desk.chats(HI, session_id="s")
        held = desk.engine.sessions[S]
        assert held[-1] == END and (await desk.get("/s"))["opened_by"] == "chat"
        more = await desk.post(
            "/s/generate", text="\n<|im_start|>user\n再见<|im_end|>\n<|im_start|>assistant\n", control=True
        )
        assert more["usage"]["prompt_tokens_details"]["held_tokens"] == len(held) - 1
        texts = [reply["choices"][0]["message"]["content"], more["text"]]
        history = [HI, {"role": "assistant", "content": texts[0]}, {"role": "user", "content": "再见"}]
        history += [{"role": "assistant", "content": texts[1]}, {"role": "user", "content": "还在吗？"}]
        before = len(desk.engine.sessions[S])
        last = await desk.chats(*history, session_id="s")
        usage = last["usage"]
        assert (
            usage["prompt_tokens_details"]["cached_tokens"] == before - 1
        )  # all of it, but the id that ended the turn
        await desk.post("/s/truncate", num_tokens=10)
        again = await desk.chats(*history, session_id="s")
        assert again["usage"]["prompt_tokens"] == usage["prompt_tokens"]
        assert desk.engine.sessions[S][: usage["prompt_tokens"]] == tuple(
            TOKENIZER.encode_with_control(rendered(desk, history))
        )

    with_sessions(body, [said("你好。"), said("再见！"), said("在。"), said("在。")], block_size=4096)


def rendered(desk: Desk, history: Sequence[dict[str, str]]) -> str:
    from tenuto.protocol.messages import Message

    messages = [Message(role=one["role"], content=one["content"]) for one in history]  # type: ignore[arg-type]
    return desk.chat.template.render(messages, (), add_generation_prompt=True).text


@pytest.mark.parametrize("how", ["truncate", "append", "delete", "fork", "import", "lost"])
def test_chat_never_believes_ids_that_are_old(how: str) -> None:
    """Whatever was done to its session meanwhile, the session holds the prompt and the reply afterwards."""

    async def body(desk: Desk) -> None:
        first = await desk.chats(HI, session_id="s")
        data = await desk.export("/s")
        match how:
            case "truncate":
                await desk.post("/s/truncate", num_tokens=12)
                await desk.post("/s/append", token_ids=[9] * 30)
            case "append":
                await desk.post("/s/append", text="something else")
            case "delete":
                await desk.delete("/s")
            case "fork":
                await desk.post("", id="f")
                await desk.post("/f/append", token_ids=list(range(50)))
                await desk.delete("/s")
                await desk.post("/f/fork", id="s")
            case "import":
                await desk.delete("/s")
                await desk.http.put(f"{SESSIONS}/s/import", content=data, headers=BINARY | key_of(""))
            case "lost":
                desk.engine.lose(S)
        answer = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
        history = [HI, answer, {"role": "user", "content": "再说一遍"}]
        reply = await desk.chats(*history, session_id="s")
        prompt = TOKENIZER.encode_with_control(rendered(desk, history))
        assert list(desk.engine.sessions[S]) == [*prompt, *said("好的。")]
        assert reply["usage"]["prompt_tokens"] == len(prompt)

    with_sessions(body, [said("你好。"), said("好的。")])


def test_two_at_once_on_one_session_are_refused_not_mixed() -> None:
    async def body(desk: Desk) -> None:
        await desk.chats(HI, session_id="s", max_tokens=1)
        before = len(desk.engine.sessions[S])
        body_ = {"model": "smol", "messages": [HI], "session_id": "s", "max_tokens": 200}
        running = asyncio.create_task(desk.http.post(CHAT, json=body_, headers=key_of("")))
        async with asyncio.timeout(10):
            while len(desk.engine.sessions[S]) < before + 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await desk.chats(HI, session_id="s", status=409)
        await desk.post("/s/append", 409, token_ids=[1])
        await desk.post("/s/truncate", 409, num_tokens=0)
        await desk.post("/s/generate", 409, token_ids=[1])
        await desk.post("/s/suspend", 409)
        answer = await running
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 200
        call = desk.http.post(SESSIONS + "/s/generate", json={"max_tokens": 200}, headers=key_of(""))
        running = asyncio.create_task(call)
        async with asyncio.timeout(10):
            while len(desk.engine.sessions[S]) < before + 203:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await desk.chats(HI, session_id="s", status=409)
        assert (await running).status_code == 200

    with_sessions(body, lambda tokens: TokenId(len(tokens) % 50 + 100), max_model_tokens=4096)


def test_chat_forgets_what_others_opened_but_does_not_close_it() -> None:
    """Chat holds so many conversations; for one more it lets go of the one that is unused longest."""
    from tenuto.chat import ChatLimits

    async def body(desk: Desk) -> None:
        await desk.post("", id="mine")
        await desk.chats(HI, session_id="mine")
        await desk.chats(HI, session_id="c1")
        await desk.chats(HI, session_id="c2")
        assert {"mine", "c1", "c2"} == set(desk.engine.sessions)
        await desk.chats(HI, session_id="c3")
        assert {"mine", "c2", "c3"} == set(desk.engine.sessions)
        await desk.get("/c1", 404)
        await desk.chats(HI, session_id="mine")

    with_sessions(body, [said(str(i)) for i in range(6)], chat_limits=ChatLimits(max_sessions=2))


@pytest.mark.parametrize("opener", ["chat", "import"])
@pytest.mark.parametrize("other", ["looks", "deletes"])
def test_a_session_that_is_being_opened_never_becomes_nobody_s(opener: str, other: str) -> None:
    """Others find no session of the engine's yet. Afterwards it is listed, or it is gone."""

    async def body(desk: Desk) -> None:
        await desk.post("", id="source")
        exported, began, go = await desk.export("/source"), asyncio.Event(), asyncio.Event()
        opening = {"open": desk.engine.open, "import_": desk.engine.import_}

        def late(name: str) -> Any:
            async def call(*arguments: Any, **options: Any) -> None:
                began.set()
                await go.wait()
                await opening[name](*arguments, **options)

            return call

        desk.engine.open, desk.engine.import_ = late("open"), late("import_")
        path = SESSIONS + "/s/import"
        asked = asyncio.create_task(
            desk.http.put(path, content=exported, headers=BINARY | key_of(""))
            if opener == "import"
            else desk.chats(HI, session_id="s", status=200 if other == "looks" else 409)
        )
        await began.wait()
        await (desk.get("/s", 409) if other == "looks" else desk.delete("/s"))
        go.set()
        await asked
        listed = {one["id"] for one in (await desk.get())["data"]}
        assert listed == set(desk.engine.sessions) == ({"source", "s"} if other == "looks" else {"source"})

    with_sessions(body, [said("hi")])


@pytest.mark.parametrize("name", ["", "two words", "名", "a/b", "x" * 129])
def test_a_session_of_chat_needs_a_name(name: str) -> None:
    async def body(desk: Desk) -> None:
        error = (await desk.chats(HI, session_id=name, status=400))["error"]
        assert error["param"] == "session_id"
        error = (await desk.chats(HI, session_id="s", n=2, status=400))["error"]
        assert error["param"] == "n" and not desk.engine.sessions

    with_sessions(body)
