"""Whether a model has room here: told from its config before any weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tenuto.checkpoint import Checkpoint
from tenuto.checkpoint.encoders import EncoderCheckpoint, EncoderConfig
from tenuto.device.protocol import INTEGERS, KVType, Precision
from tenuto.errors import NeverFits, UnsupportedModel
from tenuto.field.measure import Unread, held_bytes, measuring_device
from tenuto.field.report import PrecisionFit
from tenuto.model import load_encoder, load_model
from tenuto.model.load import expected_shapes
from tenuto.model.load_encoder import expected_encoder_shapes


@dataclass(frozen=True, kw_only=True)
class Room:
    """What there is to fit into, and what is to fit beside the weights."""

    kv_tokens: int  # size of the KV pool
    available_bytes: int | None  # free memory; None: not known
    kv_type: KVType = "float"  # of precisions int8 and int4; others have their own


def decoder_fit(
    checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]], precision: Precision, room: Room
) -> PrecisionFit:
    """Args:
    shapes: of the weights the model's config asks for (`expected_shapes`).
    """
    unread = Unread(checkpoint.path, checkpoint.config, dict(shapes))
    kv_type: KVType = room.kv_type if precision in INTEGERS else "float"
    device = measuring_device(precision, kv_type)
    decoder = load_model(unread, device)  # type: ignore[arg-type]
    fit = sized_fit(precision, held_bytes(decoder), decoder.kv_bytes_per_token(), room, kv_type)
    try:
        decoder.allocate_kv(1)  # one block: a device says here what it cannot hold
    except UnsupportedModel as error:
        return msgspec.structs.replace(fit, fits=False, problem=str(error))
    return fit


def encoder_fit(path: Path, config: EncoderConfig, precision: Precision, room: Room) -> PrecisionFit:
    unread = Unread(path, config, expected_encoder_shapes(config))
    encoder = load_encoder(unread, measuring_device(precision))  # type: ignore[arg-type]
    return sized_fit(precision, held_bytes(encoder), 0, room)


def sized_fit(
    precision: str, weight_bytes: int, kv_bytes_per_token: int, room: Room, kv_type: KVType = "float"
) -> PrecisionFit:
    kv_bytes = kv_bytes_per_token * room.kv_tokens
    total, available = weight_bytes + kv_bytes, room.available_bytes
    return PrecisionFit(
        precision=precision,
        kv_type=kv_type,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes_per_token,
        kv_bytes=kv_bytes,
        total_bytes=total,
        fits=None if available is None else total <= available,
    )


def require_room(checkpoint: Checkpoint, precision: Precision, room: Room) -> None:
    """Refuse a model that cannot run at once, instead of after minutes of reading it, or never.

    Files that lack tensors are left to the loader.

    Raises:
        UnsupportedModel: the device of this precision cannot hold the model, however much memory there is.
        NeverFits: weights and KV need more memory than is free.
    """
    shapes = expected_shapes(checkpoint.config)
    if not _has(checkpoint, shapes):
        return
    fit = decoder_fit(checkpoint, shapes, precision, room)
    if fit.problem:
        raise UnsupportedModel(f"{checkpoint.path}: {fit.problem}")
    if fit.fits is False:
        raise NeverFits(
            f"{checkpoint.path}: {needed(fit, room)}; another precision or a smaller kv_tokens takes less "
            "(`tenuto models check` says how much), and check_memory=false lets it try all the same"
        )


def require_encoder_room(checkpoint: EncoderCheckpoint, precision: Precision, available_bytes: int | None) -> None:
    """The same of an encoder, which has no KV. Raises NeverFits."""
    if not _has(checkpoint, expected_encoder_shapes(checkpoint.config)):
        return
    room = Room(kv_tokens=0, available_bytes=available_bytes)
    fit = encoder_fit(checkpoint.path, checkpoint.config, precision, room)
    if fit.fits is False:
        raise NeverFits(
            f"{checkpoint.path}: {needed(fit, room)}; another precision takes less (`tenuto models check` says how "
            "much), and check_memory=false lets it try all the same"
        )


def _has(checkpoint: Checkpoint | EncoderCheckpoint, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the files hold what the config asks for. What is missing or misshapen the loader names, and sizes that
    nobody has are not worth measuring."""
    stored = {name: checkpoint.shape(name) for name in checkpoint.tensor_names()}
    return all(stored.get(name) == shape for name, shape in shapes.items())


def needed(fit: PrecisionFit, room: Room) -> str:
    """What a model that does not fit needs, and what there is."""
    assert room.available_bytes is not None
    return (
        f"{fit.name} needs {fit.total_bytes / 1e9:.2f} GB of memory (weights {fit.weight_bytes / 1e9:.2f}, "
        f"KV {fit.kv_bytes / 1e9:.2f}), but {room.available_bytes / 1e9:.2f} GB are free"
    )
