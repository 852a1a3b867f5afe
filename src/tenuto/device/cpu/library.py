"""The compiled kernels (native/), if this installation has them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import structlog

import tenuto


class LayerStruct(ctypes.Structure):
    """`TenutoLayer` of kernels.h."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),
        ("value_scales", c_void_p),
        ("num_blocks", c_int32),
        ("kv_heads", c_int32),
        ("head_size", c_int32),
        ("window", c_int32),
    )


class MatrixStruct(ctypes.Structure):
    """`TenutoMatrix` of kernels.h."""

    _fields_ = (
        ("packed", c_void_p),
        ("bias", c_void_p),
        ("num_in", c_int32),
        ("num_out", c_int32),
        ("bits", c_int32),
    )


class DecoderLayerStruct(ctypes.Structure):
    """`TenutoDecoderLayer` of kernels.h."""

    _fields_ = (
        ("attention_norm", c_void_p),
        ("attention_post_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("mlp_post_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("qkv", MatrixStruct),
        ("output", MatrixStruct),
        ("gate_up", MatrixStruct),
        ("down", MatrixStruct),
        ("heads", c_int32),
        ("rotary", c_int32),
        ("activation", c_int32),
        ("eps", c_float),
        ("head_eps", c_float),
        ("q_scale", c_float),
    )


class StepStruct(ctypes.Structure):
    """`TenutoStep` of kernels.h."""

    _fields_ = (
        ("rows", c_int32),
        ("sequences", c_int32),
        ("table_width", c_int32),
        ("query_starts", c_void_p),
        ("kv_lens", c_void_p),
        ("tables", c_void_p),
        ("slots", c_void_p),
        ("angles", POINTER(c_void_p)),
    )


_LAYER = POINTER(LayerStruct)
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "tenuto_isa": (c_char_p, ()),
    "tenuto_use_isa": (c_int, (c_char_p,)),
    "tenuto_pool_new": (c_void_p, (c_int,)),
    "tenuto_pool_free": (None, (c_void_p,)),
    "tenuto_format_version": (c_int, ()),
    "tenuto_int8_packed_bytes": (c_size_t, (c_int, c_int)),
    "tenuto_int8_pack": (None, (c_void_p, c_void_p, c_int, c_int, c_void_p)),
    "tenuto_int8_unpack": (None, (c_void_p, c_int, c_int, c_void_p)),
    "tenuto_int4_packed_bytes": (c_size_t, (c_int, c_int)),
    "tenuto_int4_pack": (None, (c_void_p, c_void_p, c_int, c_int, c_void_p)),
    "tenuto_int4_unpack": (None, (c_void_p, c_int, c_int, c_void_p)),
    "tenuto_linear_scratch_bytes": (c_size_t, (c_int, c_int)),
    "tenuto_linear": (None, (c_void_p, c_void_p, c_int, POINTER(MatrixStruct), c_void_p, c_void_p)),
    "tenuto_rms_norm": (
        None,
        (c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_float, c_void_p, c_void_p),
    ),
    "tenuto_gated": (None, (c_void_p, c_void_p, c_int, c_int, c_int, c_void_p)),
    "tenuto_rotate_and_write": (
        None,
        (c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_float, c_float, c_void_p, _LAYER, c_void_p),
    ),
    "tenuto_attention": (
        None,
        (c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_int, c_int, _LAYER, c_void_p),
    ),
    "tenuto_probe_read": (c_uint64, (c_void_p, c_size_t, c_int, c_int)),
    "tenuto_probe_multiply": (c_int64, (c_char_p, c_int64, c_int)),
    "tenuto_decoder_scratch_bytes": (c_size_t, (POINTER(DecoderLayerStruct), c_int, c_int)),
    "tenuto_decoder_layers": (
        None,
        (c_void_p, POINTER(DecoderLayerStruct), _LAYER, c_int, POINTER(StepStruct), c_void_p, c_void_p),
    ),
}


class NativeLibrary:
    """The kernels' C functions, typed. Calls release the interpreter's lock."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        status = path.stat()
        self.build = f"{status.st_size} {status.st_mtime_ns}"  # another one may pack otherwise, though it should say so
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("tenuto_"), function)

    def __getattr__(self, name: str) -> ctypes._NamedFuncPointer:  # for type checkers: set above
        raise AttributeError(name)

    @property
    def instruction_set(self) -> str:
        name: bytes = self.isa()
        return name.decode()


@lru_cache(maxsize=1)
def native_library() -> NativeLibrary | None:
    """The kernels of this installation, or None."""
    return library_in(Path(tenuto.__file__).parent)


def library_in(folder: Path) -> NativeLibrary | None:
    """The kernels in a folder, or None: without a compiler, Tenuto is installed without them.

    What cannot be loaded counts as absent, with a warning: built for another machine, cut short, or older than the code
    around it.
    """
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_native{suffix}"
        if not path.is_file():
            continue
        try:
            return NativeLibrary(path)
        except (OSError, AttributeError) as error:
            structlog.get_logger("tenuto.device").warning(
                "the native kernels cannot be loaded", reason=str(error), fix="install Tenuto again"
            )
    return None
