"""Sessions to bytes and back, beside the steps.

KV is read and written between steps. An export reads from a fork, whose blocks nobody writes; an import
builds a session under a name nobody knows, which gets its own when the last byte was right. Both sessions are idle, so
the scheduler may take their KV like that of any other: then what is left of it is not transferred, only the tokens.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from tenuto.clock import Clock
from tenuto.engine.batch import Executor
from tenuto.engine.door import check_append
from tenuto.engine.engine import Engine
from tenuto.engine.session_file import SessionHeader, SessionReader, SessionWriter, tokens_per_group
from tenuto.errors import SessionFileError
from tenuto.ids import SessionId
from tenuto.protocol.engine import EngineInfo
from tenuto.protocol.hints import RunHints

T = TypeVar("T")


Slots: TypeAlias = list[int]


class StepLoop(Protocol):
    """Who drives the core."""

    def beside_steps(self, choose: Callable[[], Slots | None], act: Callable[[Slots], T]) -> Awaitable[T | None]:
        """While no step is in flight, choose slots; then, before the next step begins, act on the executor.

        None if none were chosen. Raises EngineClosed once the engine has stopped.
        """
        ...


@dataclass(frozen=True)
class SessionTransfer:
    """Implements `export` and `import_` of `EngineClient`."""

    engine: Engine
    executor: Executor
    clock: Clock
    info: EngineInfo
    loop: StepLoop

    @property
    def _kv_form(self) -> str:
        """Equal forms of the same model: equal meaning of the bytes."""
        return f"{self.engine.config.kv_type}; {self.executor.kv_form.name}"

    async def export(self, session: SessionId, serial: int) -> AsyncGenerator[bytes, None]:
        """
        Args:
            serial: tells apart what is under way at one time.
        """
        engine = self.engine
        copy = SessionId(f"\0export-{serial}")  # a name that no caller's session has
        engine.open(copy, self.clock.now(), parent=session)
        try:
            tokens = engine.tokens(copy)
            token_bytes = self.executor.kv_form.token_bytes
            header = SessionHeader(
                model=self.info.model,
                fingerprint=self.info.fingerprint,
                kv_form=self._kv_form,
                token_bytes=token_bytes,
                tokens_per_group=tokens_per_group(token_bytes, engine.config.block_size),
                num_tokens=len(tokens),
                num_computed=engine.stats(copy, self.clock.now()).num_computed,
            )
            writer = SessionWriter()
            for piece in writer.begin(header, list(tokens)):
                yield piece
            for first, end in header.groups:
                data = await self._read(copy, first, end)
                if data is None:
                    break
                for piece in writer.group(data):
                    yield piece
            yield writer.end()
        finally:
            engine.close(copy, self.clock.now())

    async def _read(self, session: SessionId, first: int, end: int) -> bytes | None:
        """The KV of some tokens; None if the session lost it."""
        return await self.loop.beside_steps(lambda: self.engine.kv_slots(session, first, end), self.executor.read_kv)

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints, serial: int) -> None:
        """See `export` for the serial number."""
        engine = self.engine
        engine.check_new(session)
        reader = SessionReader(pieces)
        header = await reader.header()
        self._check(header)
        tokens = await reader.ids(header)
        hidden = SessionId(f"\0import-{serial}")
        engine.open_imported(hidden, tokens, self.clock.now(), hints)
        is_kept = False
        try:
            await self._read_kv(reader, header, hidden)
            await reader.finish()
            engine.rename(hidden, session, self.clock.now())
            is_kept = True
        finally:
            if not is_kept:
                engine.close(hidden, self.clock.now())

    def _check(self, header: SessionHeader) -> None:
        ours = self.info.fingerprint
        if header.fingerprint != ours:
            raise SessionFileError(
                f"the session was exported from {header.model[:100]!r} with the fingerprint "
                f"{header.fingerprint[:100]!r}; this is {self.info.model!r} with {ours!r}. Sessions move only between "
                "equal weights and tokenizers"
            )
        token_bytes = self.executor.kv_form.token_bytes
        if header.kv_form == self._kv_form and header.token_bytes != token_bytes:
            raise SessionFileError(f"the KV has {header.token_bytes} bytes a token, but its form {token_bytes}")
        check_append(0, header.num_tokens, self.engine.config)

    async def _read_kv(self, reader: SessionReader, header: SessionHeader, session: SessionId) -> None:
        """Keep the KV that comes, as long as it is of use and there is room; read past the rest."""
        is_kept = header.kv_form == self._kv_form
        for first, end in header.groups:
            data = await reader.group((end - first) * header.token_bytes)
            if data is None:
                return
            is_kept = is_kept and await self._write(session, (first, end), data)

    async def _write(self, session: SessionId, place: tuple[int, int], data: bytes) -> bool:
        """Whether there was room for the KV of the tokens of a place."""

        def write(slots: Slots) -> bool:
            self.executor.write_kv(slots, data)
            return True

        return bool(await self.loop.beside_steps(lambda: self.engine.add_kv(session, *place, self.clock.now()), write))
