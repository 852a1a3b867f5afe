"""What crosses the boundary between an engine and those who call it, as typed values; see `frames` for the bytes.

A caller sends an `Ask` with a number of its own choice. The host answers every ask exactly once, with `Answer` or
`Failed`, unless it was cancelled; before that come its deltas, pieces and credits.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tenuto.engine.boundary.errors import ErrorMessage
from tenuto.errors import EngineClosed, InvalidRequest
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineInfo, GenerateParams, GenerateUsage, PooledStates, Pooling, TokenDelta
from tenuto.protocol.hints import ExpectedWait, RunHints

PIECE_BYTES = 256 * 1024  # of an exported session: small enough that tokens behind a piece hardly wait
WINDOW_PIECES = 4  # under way at once for one call; the receiver grants more as it takes them


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


# What may be asked: the calls of `EngineClient`.


class Open(_Message, frozen=True):
    session: SessionId
    parent: SessionId | None
    hints: RunHints


class Append(_Message, frozen=True):
    session: SessionId
    ids: list[TokenId]
    hints: RunHints


class Generate(_Message, frozen=True):
    """Answered by deltas, then by an `Answer` without value."""

    session: SessionId
    ids: list[TokenId]
    params: GenerateParams
    opening: RunHints | None


class Embed(_Message, frozen=True):
    ids: list[TokenId]
    pooling: Pooling
    hints: RunHints


class Suspend(_Message, frozen=True):
    session: SessionId
    wait: ExpectedWait


class Truncate(_Message, frozen=True):
    session: SessionId
    num_tokens: int


class Close(_Message, frozen=True):
    session: SessionId


class Release(_Message, frozen=True):
    ids: list[TokenId]
    num_kept: int
    hints: RunHints


class Stats(_Message, frozen=True):
    session: SessionId


class Tokens(_Message, frozen=True):
    session: SessionId


class Counters(_Message, frozen=True):
    pass


class Export(_Message, frozen=True):
    """The host sends pieces, a window at a time."""

    session: SessionId


class Import(_Message, frozen=True):
    """The caller sends pieces, a window at a time; the last one is empty."""

    session: SessionId
    hints: RunHints


Question: TypeAlias = (
    Open
    | Append
    | Generate
    | Embed
    | Suspend
    | Truncate
    | Close
    | Release
    | Stats
    | Tokens
    | Counters
    | Export
    | Import
)


# To the host


class Load(_Message, frozen=True):
    """The first message: settings of the engine to start, by name."""

    settings: dict[str, Any]


class Ask(_Message, frozen=True):
    call: int
    question: msgspec.Raw  # a `Question`; read by itself, so that one that makes no sense fails this call alone


class Cancel(_Message, frozen=True):
    """The call is given up: it ends at once, before anything that is asked later begins. Nothing answers."""

    call: int


# Both ways


class Piece(_Message, frozen=True):
    call: int
    data: bytes


class Credit(_Message, frozen=True):
    """So many pieces more may be sent."""

    call: int
    num_pieces: int


# From the host


class Ready(_Message, frozen=True):
    """The engine runs."""

    info: EngineInfo


class NotReady(_Message, frozen=True):
    """It could not be started; or it ran, and has stopped. Nothing follows."""

    error: ErrorMessage


class Heartbeat(_Message, frozen=True):
    """The host is there, though it has nothing to say."""


class Answer(_Message, frozen=True):
    call: int
    value: msgspec.Raw  # of the type that the question has as its answer


class Failed(_Message, frozen=True):
    call: int
    error: ErrorMessage


class Deltas(_Message, frozen=True):
    """New tokens of one step, of all calls that got any."""

    items: list[tuple[int, TokenDelta]]


class Pooled(_Message, frozen=True):
    """`PooledStates` as plain data."""

    vector: bytes  # float32, little-endian
    usage: GenerateUsage


ToHost: TypeAlias = Load | Ask | Cancel | Piece | Credit
FromHost: TypeAlias = Ready | NotReady | Heartbeat | Answer | Failed | Deltas | Piece | Credit


def _as_plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # callers may count with numpy
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot cross a process")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_plain)
_QUESTION = msgspec.msgpack.Decoder(Question)
_TO_HOST = msgspec.msgpack.Decoder(ToHost)
_FROM_HOST = msgspec.msgpack.Decoder(FromHost)
NOTHING = msgspec.Raw(_ENCODER.encode(None))


def encode(message: ToHost | FromHost) -> bytes:
    return _ENCODER.encode(message)


def raw(value: Any) -> msgspec.Raw:
    """The question of an `Ask`, or the value of an `Answer`. Raises TypeError, OverflowError, UnicodeEncodeError."""
    return msgspec.Raw(_ENCODER.encode(value))


def decode_to_host(payload: bytes) -> ToHost:
    """Raises EngineClosed for what is no message."""
    message: ToHost = _decode(_TO_HOST, payload)
    return message


def decode_question(ask: Ask) -> Question:
    """Raises InvalidRequest for one that no engine understands."""
    try:
        question: Question = _QUESTION.decode(ask.question)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the call holds a value that no engine accepts ({error})") from error
    return question


def decode_from_host(payload: bytes) -> FromHost:
    """Raises EngineClosed for what is no message."""
    message: FromHost = _decode(_FROM_HOST, payload)
    return message


def _decode(decoder: msgspec.msgpack.Decoder[Any], payload: bytes) -> Any:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise EngineClosed(f"the boundary to the engine is broken: a message that cannot be read ({error})") from error


def pack_pooled(states: PooledStates) -> Pooled:
    return Pooled(np.ascontiguousarray(states.vector, dtype="<f4").tobytes(), states.usage)


def unpack_pooled(pooled: Pooled) -> PooledStates:
    vector: NDArray[np.float32] = np.frombuffer(pooled.vector, dtype="<f4").astype(np.float32)
    return PooledStates(vector=vector, usage=pooled.usage)
