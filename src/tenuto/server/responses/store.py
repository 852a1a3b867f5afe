"""The responses that are kept: each as bytes, within bounds, each tenant's for itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tenuto.clock import Clock
from tenuto.errors import NotStored
from tenuto.protocol.messages import Message
from tenuto.server.limits import StoreLimits

_OVERHEAD_BYTES = 1024  # of a response beside what it says: its ids and the entries that find them


@dataclass(frozen=True, kw_only=True)
class KeptTurn:
    """One response that is to be kept."""

    id: str
    previous: str | None  # the response it goes on from
    body: dict[str, Any]  # as it was answered
    items: tuple[dict[str, Any], ...]  # its own input, in wire form, each with an id
    messages: tuple[Message, ...]  # the same with the reply, as values: the reply equals what was generated


class _Shown(msgspec.Struct, frozen=True):
    """What is shown of a response; its messages are apart, as a long conversation is gone on from by them alone."""

    body: dict[str, Any]
    items: tuple[dict[str, Any], ...]


@dataclass
class _Kept:
    previous: str | None
    shown: bytes  # JSON of _Shown
    messages: bytes  # JSON of tuple[Message, ...]
    item_ids: tuple[str, ...]
    used_s: float

    @property
    def num_bytes(self) -> int:
        return len(self.shown) + len(self.messages) + _OVERHEAD_BYTES


class _Shelf:
    """One tenant's responses, that used longest ago first."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, _Kept] = OrderedDict()
        self.of_item: dict[str, str] = {}  # item id → response id
        self.num_bytes = 0

    def put(self, response: str, kept: _Kept) -> None:
        self.remove(response)
        self.kept[response] = kept
        self.num_bytes += kept.num_bytes
        self.of_item.update(dict.fromkeys(kept.item_ids, response))

    def remove(self, response: str) -> bool:
        kept = self.kept.pop(response, None)
        if kept is None:
            return False
        self.num_bytes -= kept.num_bytes
        for item in kept.item_ids:
            if self.of_item.get(item) == response:  # a later one may have brought the same item back
                del self.of_item[item]
        return True


class ResponseStore:
    """Responses by tenant and id; one tenant never sees another's. In memory: a new process knows none."""

    def __init__(self, limits: StoreLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._shelves: dict[str, _Shelf] = {}

    @property
    def num_responses(self) -> int:
        return sum(len(shelf.kept) for shelf in self._shelves.values())

    @property
    def num_bytes(self) -> int:
        return sum(shelf.num_bytes for shelf in self._shelves.values())

    def put(self, tenant: str, turn: KeptTurn) -> None:
        """Keep a response; what is past the bounds goes, this one too if it alone is larger than all may be."""
        ids = tuple(dict.fromkeys(item["id"] for item in (*turn.items, *turn.body["output"])))
        shown = msgspec.json.encode(_Shown(turn.body, turn.items))
        kept = _Kept(turn.previous, shown, msgspec.json.encode(turn.messages), ids, self._clock.now())
        self._shelves.setdefault(tenant, _Shelf()).put(turn.id, kept)
        self._expire()
        self._bound()

    def body(self, tenant: str, response: str) -> dict[str, Any]:
        """A response as it was answered. Raises NotStored."""
        return self._shown(self._find(tenant, response, None)).body

    def history(self, tenant: str, response: str, param: str) -> tuple[Message, ...]:
        """The conversation up to and with a response, as values. Raises NotStored, about the request's field."""
        chain = self._chain(tenant, response, param)
        return tuple(one for kept in chain for one in msgspec.json.decode(kept.messages, type=tuple[Message, ...]))

    def first(self, tenant: str, response: str, param: str) -> str:
        """Id of the response with which a conversation began. Raises NotStored, about the request's field."""
        while (previous := self._find(tenant, response, param).previous) is not None:
            response = previous
        return response

    def input_items(self, tenant: str, response: str) -> list[dict[str, Any]]:
        """All that a response was given: the input and output of those it goes on from, then its own input. Raises
        NotStored."""
        *earlier, last = map(self._shown, self._chain(tenant, response, None))
        before = [item for shown in earlier for item in (*shown.items, *shown.body["output"])]
        return [*before, *last.items]

    def lookup(self, tenant: str) -> Callable[[str, str], dict[str, Any]]:
        """Finds items of kept responses, in wire form, for one request: it reads each response once.

        It is given an item's id and the field that names it, and raises NotStored.
        """
        read: dict[str, dict[str, dict[str, Any]]] = {}  # response id → its items by id

        def find(item: str, param: str) -> dict[str, Any]:
            self._expire()
            shelf = self._shelves.get(tenant)
            response = shelf.of_item.get(item) if shelf is not None else None
            if response is None:
                raise NotStored(f"{param}: no item {item!r} of a stored response; send the item itself", param)
            if response not in read:
                shown = self._shown(self._find(tenant, response, param))
                read[response] = {one["id"]: one for one in (*shown.items, *shown.body["output"])}
            return read[response][item]

        return find

    def delete(self, tenant: str, response: str) -> None:
        """Forget a response. Those that go on from it cannot be gone on from any more. Raises NotStored."""
        self._find(tenant, response, None)
        self._shelves[tenant].remove(response)
        self._drop_empty()

    def _find(self, tenant: str, response: str, param: str | None) -> _Kept:
        self._expire()
        shelf = self._shelves.get(tenant)
        kept = shelf.kept.get(response) if shelf is not None else None
        if shelf is None or kept is None:
            raise NotStored(
                f"no response {response[:200]!r} is stored: it never was (store=false), has expired or was deleted; "
                "send the whole conversation as input",
                param,
            )
        kept.used_s = self._clock.now()
        shelf.kept.move_to_end(response)
        return kept

    def _chain(self, tenant: str, response: str, param: str | None) -> list[_Kept]:
        """A response and all it goes on from, the first of the conversation first. Using it uses all of them.

        Raises NotStored, also where an earlier one is gone: half a history is none.
        """
        chain = [self._find(tenant, response, param)]
        while (previous := chain[-1].previous) is not None:
            chain.append(self._find(tenant, previous, param))
        return chain[::-1]

    @staticmethod
    def _shown(kept: _Kept) -> _Shown:
        return msgspec.json.decode(kept.shown, type=_Shown)

    def _expire(self) -> None:
        end_s = self._clock.now() - self._limits.ttl_s
        for shelf in self._shelves.values():
            while shelf.kept:
                oldest, kept = next(iter(shelf.kept.items()))
                if kept.used_s > end_s:
                    break
                shelf.remove(oldest)
        self._drop_empty()

    def _bound(self) -> None:
        while self.num_responses > self._limits.max_responses or self.num_bytes > self._limits.max_bytes:
            largest = max(self._shelves.values(), key=lambda shelf: shelf.num_bytes)
            largest.remove(next(iter(largest.kept)))
        self._drop_empty()

    def _drop_empty(self) -> None:
        for tenant in [tenant for tenant, shelf in self._shelves.items() if not shelf.kept]:
            del self._shelves[tenant]
