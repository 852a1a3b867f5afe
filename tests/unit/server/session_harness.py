"""A server with sessions: our chat and session clients over a scripted engine, called in process, on one event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpx
from fastapi import FastAPI

from chat_harness import TOKENIZER, Chat
from tenuto.chat import ChatLimits, LocalSessionClient
from tenuto.clock import RealClock
from tenuto.ids import IdSource
from tenuto.server import Operations, OtherClients, ServerLimits, create_app
from tenuto.server.access import AccessRules
from tenuto.testing.scripted_engine import NextToken

SESSIONS = "/v1/sessions"
CHAT = "/v1/chat/completions"
BINARY = {"Content-Type": "application/octet-stream"}


class EveryKey:
    """A key is its tenant's name."""

    def tenant_of(self, presented: str) -> str:
        return "" if presented == "nobody" else presented


def key_of(tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {tenant or 'nobody'}"}


class Desk:
    """Short ways to call it."""

    def __init__(self, chat: Chat, app: FastAPI, http: httpx.AsyncClient) -> None:
        self.chat = chat
        self.engine = chat.engine
        self.app = app
        self.http = http

    async def post(self, path: str, status: int = 200, *, tenant: str = "", **body: Any) -> Any:
        answer = await self.http.post(SESSIONS + path, json=body, headers=key_of(tenant))
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str = "", status: int = 200, *, tenant: str = "") -> Any:
        answer = await self.http.get(SESSIONS + path, headers=key_of(tenant))
        assert answer.status_code == status, answer.text
        return answer.json()

    async def delete(self, path: str, status: int = 200, *, tenant: str = "") -> Any:
        answer = await self.http.delete(SESSIONS + path, headers=key_of(tenant))
        assert answer.status_code == status, answer.text
        return answer.json()

    async def export(self, path: str, *, tenant: str = "") -> bytes:
        answer = await self.http.get(f"{SESSIONS}{path}/export", headers=key_of(tenant))
        assert answer.status_code == 200 and answer.headers["content-type"] == BINARY["Content-Type"]
        return answer.content

    async def chats(self, *messages: dict[str, Any], status: int = 200, tenant: str = "", **fields: Any) -> Any:
        body = {"model": "smol", "messages": list(messages), "temperature": 0, **fields}
        answer = await self.http.post(CHAT, json=body, headers=key_of(tenant))
        assert answer.status_code == status, answer.text
        return answer.json()

    async def events(self, path: str, **body: Any) -> list[Any]:
        answer = await self.http.post(SESSIONS + path, json={"stream": True, **body}, headers=key_of(""))
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        data = [line.removeprefix("data: ") for line in answer.text.removesuffix("\n\n").split("\n\n")]
        return [one if one == "[DONE]" else json.loads(one) for one in data]


def with_sessions(
    body: Callable[[Desk], Awaitable[None]],
    script: Iterable[Sequence[int]] | NextToken = (),
    *,
    limits: ServerLimits = ServerLimits(),
    chat_limits: ChatLimits = ChatLimits(),
    **engine: Any,
) -> None:
    """Run `body` with a server to which every tenant has a key."""

    async def main() -> None:
        chat = Chat(script, limits=chat_limits, **engine)
        sessions = LocalSessionClient(chat.engine, TOKENIZER, chat.client)
        app = create_app(
            chat.client,
            served_names=("smol",),
            clock=RealClock(),
            ids=IdSource(1),
            others=OtherClients(engine=chat.engine, sessions=sessions),
            operations=Operations(limits=limits, rules=AccessRules(keys=EveryKey())),  # type: ignore[arg-type]
        )

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as http:
            await body(Desk(chat, app, http))

    asyncio.run(main())
