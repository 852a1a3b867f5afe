"""The native kernels against the definition of their precision, and with other company and instructions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu, silu

from tenuto.device import ReferenceDevice, int4, int8
from tenuto.device.cpu import CpuDevice, NativeLibrary, native_library
from tenuto.device.protocol import AttentionSpec, Precision
from tenuto.errors import UnsupportedModel

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")


@pytest.fixture(params=["amx", "avx512-vnni", "avx2", "neon-dotprod", "portable"])
def native(request: pytest.FixtureRequest) -> Iterator[NativeLibrary]:
    """With one of its instruction sets."""
    assert LIBRARY is not None
    own = LIBRARY.instruction_set
    if not LIBRARY.use_isa(request.param.encode()):
        pytest.skip(f"this machine has no {request.param}")
    yield LIBRARY
    assert LIBRARY.use_isa(own.encode())


@pytest.fixture
def device(native: NativeLibrary) -> CpuDevice:
    return CpuDevice(native, num_threads=3)


@pytest.fixture(params=["int8", "int4"])
def multiplier(native: NativeLibrary, request: pytest.FixtureRequest) -> CpuDevice:
    return CpuDevice(native, 3, precision=request.param)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    # Rows and columns of very different size, so that scales matter.
    return (draw.standard_normal(shape) * np.exp(draw.standard_normal((shape[0], 1)))).astype(np.float32)


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize(("num_out", "num_in"), [(1, 1), (16, 64), (33, 70), (96, 576), (5, 200)])
def test_packed_weights_are_those_of_the_definition(precision: Precision, num_out: int, num_in: int) -> None:
    library: NativeLibrary | None = LIBRARY
    assert library is not None
    matrix = random(num_out, num_in)
    matrix[0] = 0
    matrix[-1, num_in // 2 :] *= 1e-3  # chunks of other sizes in one span
    matrix[-2:, 0] *= 1e-6 if num_out > 1 else 1  # scales that half precision has only roughly
    device, definition = CpuDevice(library, 1, precision=precision), int4 if precision == "int4" else int8
    for exact in (False, True):
        weight = device.prepare_linear([matrix], exact=exact)
        wanted = (int8 if exact else definition).quantised_weights(torch.from_numpy(matrix)).numpy()
        found = np.empty_like(wanted)
        unpack = library.int8_unpack if weight.bits == 8 else library.int4_unpack
        unpack(weight.packed.data_ptr(), num_out, num_in, found.ctypes.data)
        assert np.array_equal(found, wanted)


def test_four_bits_hold_most_of_a_matrix() -> None:
    """A bound that uniform levels miss: for normal weights the best sixteen leave an error of 1.2 %, with a scale that
    fits all of a span; those that fit each chunk leave less."""
    draw = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))
    wanted = int8.rotated_spans(draw).flatten(1)
    error = (int4.quantised_weights(draw) - wanted).square().sum() / wanted.square().sum()
    assert error < 0.0085


def test_infinite_weights_are_packed_without_harm() -> None:
    """A broken file may hold them: the values are then meaningless, but memory is not."""
    assert LIBRARY is not None
    matrix = random(20, 130)
    matrix[3, 5], matrix[4, 6], matrix[5, 7] = np.inf, -np.inf, np.nan
    for precision in ("int8", "int4"):
        device = CpuDevice(LIBRARY, 1, precision=precision)
        assert device.linear(torch.ones(2, 130), device.prepare_linear([matrix])).shape == (2, 20)


def test_a_table_for_int4_is_half_as_wide() -> None:
    assert LIBRARY is not None
    values, ids = random(7, 30), torch.tensor([3, 0, 3])
    for device in (CpuDevice(LIBRARY, 1, precision="int4"), ReferenceDevice("int4")):
        table = device.upload(values)
        assert table.nbytes == values.nbytes // 2
        assert torch.equal(device.embed(table, ids), torch.from_numpy(values).bfloat16()[ids].float())


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 40])
@pytest.mark.parametrize(("num_out", "num_in"), [(33, 70), (96, 576), (16, 64), (900, 1536)])
def test_products_are_those_of_the_definition(multiplier: CpuDevice, rows: int, num_out: int, num_in: int) -> None:
    parts, bias = [random(num_out, num_in), random(7, num_in, seed=1)], [random(1, num_out + 7, seed=2)[0]]
    x = torch.from_numpy(random(rows, num_in, seed=3))
    reference = ReferenceDevice(multiplier.precision)
    wanted = reference.linear(x, reference.prepare_linear(parts, bias))
    found = multiplier.linear(x, multiplier.prepare_linear(parts, bias))
    torch.testing.assert_close(found, wanted, atol=1e-6 * float(wanted.abs().max()), rtol=1e-5)


def test_a_row_has_the_same_bits_in_any_company(multiplier: CpuDevice) -> None:
    device = multiplier
    weight = device.prepare_linear([random(900, 130)])  # several pairs of panels a task
    x = torch.from_numpy(random(45, 130, seed=1))
    whole = device.linear(x, weight)
    norm, gated = torch.ones(130), device.gated(x, "gelu_tanh")
    for rows in (1, 3, 8, 17):
        for first in (0, 5, 45 - rows):
            some = x[first : first + rows].contiguous()
            assert torch.equal(device.linear(some, weight), whole[first : first + rows])
            assert torch.equal(device.gated(some, "gelu_tanh"), gated[first : first + rows])
            assert torch.equal(device.rms_norm(some, norm, 1e-5), device.rms_norm(x, norm, 1e-5)[first : first + rows])


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("rows", [1, 3, 5, 9, 40])
def test_products_have_the_same_bits_with_any_instructions(precision: Precision, rows: int) -> None:
    assert LIBRARY is not None
    own, found = LIBRARY.instruction_set, []
    matrix, x = random(900, 200), torch.from_numpy(random(rows, 200, seed=1))
    for name in ("portable", "avx2", "avx512-vnni", "amx", "neon-dotprod"):
        if LIBRARY.use_isa(name.encode()):
            one = CpuDevice(LIBRARY, 1, precision=precision)
            found.append(one.linear(x, one.prepare_linear([matrix])))
    assert LIBRARY.use_isa(own.encode())
    assert all(torch.equal(result, found[0]) for result in found)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_threads_change_nothing(precision: Precision) -> None:
    assert LIBRARY is not None
    matrix, x = random(300, 200), torch.from_numpy(random(20, 200, seed=1))
    one, many = CpuDevice(LIBRARY, 1, precision=precision), CpuDevice(LIBRARY, 4, precision=precision)
    for _ in range(20):
        assert torch.equal(one.linear(x, one.prepare_linear([matrix])), many.linear(x, many.prepare_linear([matrix])))


@pytest.mark.parametrize("size", [16, 50, 576])
def test_norms_and_activations(device: CpuDevice, size: int) -> None:
    x, y = torch.from_numpy(random(9, 2 * size)), torch.from_numpy(random(9, 2 * size, seed=1))
    weight = torch.from_numpy(random(1, 2 * size, seed=2)[0])
    normed, total = device.add_rms_norm(x, y, weight, 1e-5)
    assert torch.equal(total, x + y)
    exact = total.double() / (total.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(normed.double(), exact, atol=1e-5, rtol=1e-5)
    gate, up = x.double().chunk(2, -1)
    for activation, of_gate in (("silu", silu(gate)), ("gelu_tanh", gelu(gate, approximate="tanh"))):
        torch.testing.assert_close(device.gated(x, activation).double(), of_gate * up, atol=1e-5, rtol=1e-5)


def test_activations_of_extreme_values(device: CpuDevice) -> None:
    x = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4, 1, 1, 1, 1, 1]])
    for activation in ("silu", "gelu_tanh"):
        assert device.gated(x, activation)[0].tolist() == pytest.approx([0, 0, 0, 100, 1e4], abs=1e-30)


def test_what_is_no_number_stays_none(multiplier: CpuDevice) -> None:
    """The engine fails a request whose logits are not finite: they must not be rounded into numbers here."""
    x = torch.ones(2, 64)
    x[0, 3] = float("nan")
    found = multiplier.linear(x, multiplier.prepare_linear([random(16, 64)]))
    assert not torch.isfinite(found[0]).any() and torch.isfinite(found[1]).all()


def test_head_sizes_without_a_kernel_are_refused(device: CpuDevice) -> None:
    with pytest.raises(UnsupportedModel, match="multiple of 16"):
        device.allocate_kv([AttentionSpec(2, 1, 10)], 4)
