"""Whatever is done to a file of prepared weights: it is refused, or gives exactly what was written."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tenuto.device.packing import PackedLinear
from tenuto.model.packed_file import PackedFile, PackedFileError, write_packed

KEY = "0" * 64
TABLE, PACKED = torch.arange(24.0).view(4, 6), torch.arange(200, dtype=torch.uint8)
_PREFIX = struct.Struct("<8sII32s")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("packed") / "file"
    write_packed(path, KEY, "m", {"table": TABLE, "linear:a": PackedLinear("int8", 3, 5, PACKED, None)})
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated") / "file"


def opened(path: Path, content: bytes) -> PackedFile | None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    try:
        return PackedFile(path)
    except PackedFileError:
        return None


@given(data=st.data())
def test_changed_bytes(content: bytes, path: Path, data: st.DataObject) -> None:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.sampled_from([len(changed)] * 3 + [data.draw(st.integers(0, len(changed)))]))]
    file = opened(path, bytes(changed))
    if file is not None and file.payload_is_sound():
        assert torch.equal(file.table("table"), TABLE) and torch.equal(file.linear("linear:a").packed, PACKED)


NUMBERS = st.sampled_from([-1, 0, 1, 63, 64, 128, 2**31, 2**32, 2**47, 2**48, 2**63, 2**64, 10**30])


@given(data=st.data())
def test_headers_that_claim_other_places(content: bytes, path: Path, data: st.DataObject) -> None:
    """Of a header whose digest is right: no claim leads outside the file, or to memory that is not there."""
    magic, version, length, _ = _PREFIX.unpack_from(content)
    header = msgspec.json.decode(content[_PREFIX.size : _PREFIX.size + length])
    place = data.draw(st.sampled_from(["payload", "offset", "shape", "packed", "kind"]))
    number = data.draw(NUMBERS)
    match place:
        case "payload":
            header["payload_bytes"] = number
        case "offset":
            header["entries"]["table"]["values"][0] = number
        case "shape":
            header["entries"]["table"]["values"][2] = data.draw(st.lists(NUMBERS, max_size=6))
        case "packed":
            header["entries"]["linear:a"]["packed"][0] = number
        case "kind":
            header["entries"]["table"]["values"][1] = data.draw(st.sampled_from(["float64", "", "bfloat16", "int8"]))
    changed = msgspec.json.encode(header)
    start = -(-(_PREFIX.size + len(changed)) // 4096) * 4096
    prefix = _PREFIX.pack(magic, version, len(changed), hashlib.sha256(changed).digest())
    file = opened(path, (prefix + changed).ljust(start, b"\0") + content[4096:])
    if file is not None:
        table, packed = file.table("table"), file.linear("linear:a").packed
        assert table.nbytes <= len(content) and packed.nbytes == 200
        table.sum(), packed.sum()  # all of it is there to read
