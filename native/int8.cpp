#include "int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "matmul.h"

namespace tenuto {

// IEEE 754 binary16, by hand: compilers differ in what they call the type. Finite values only; rounds half to even.
float half_to_float(uint16_t half) {
  const uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(mantissa | 1024), static_cast<int>(exponent) - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

uint16_t float_to_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::min(std::fabs(value), 65504.0f);
  if (magnitude == 0) return sign;
  int exponent;
  std::frexp(magnitude, &exponent);                 // magnitude = f 2^exponent, f in [0.5, 1)
  const int unit = std::max(exponent - 11, -24);    // of the last place
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // A mantissa that rounds up to 2048 carries into the exponent by plain addition.
  return static_cast<uint16_t>(sign + (static_cast<uint32_t>(unit + 24) << 10) + steps);
}

namespace {

const Int8Kernels* int8_kernels_of(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
#if defined(TENUTO_HAS_AMX)
    case InstructionSet::amx: return &kAmxInt8;
#endif
    case InstructionSet::avx512_vnni: return &kAvx512Vnni;
    case InstructionSet::avx2: return &kAvx2Int8;
#elif defined(TENUTO_HAS_NEON)
    case InstructionSet::neon_dot: return &kNeonInt8;
#endif
    default: return &kPortableInt8;
  }
}

const Int8Kernels* chosen = int8_kernels_of(best_instruction_set());

}  // namespace

const Int8Kernels& int8_kernels() { return *chosen; }
void use_int8(InstructionSet set) { chosen = int8_kernels_of(set); }

float rotate_span(const float* row, const Inputs& inputs, int s, float* rotated) {
  const int width = inputs.span * kChunk, first = s * width, count = std::min(width, inputs.size - first);
  std::memset(rotated, 0, kMaxSpan * kChunk * sizeof(float));
  std::memcpy(rotated, row + first, count * sizeof(float));
  for (int c = 0; c < inputs.span; ++c) int8_kernels().rotate(rotated + c * kChunk, rotated + c * kChunk);
  float highest = 0;
  for (int i = 0; i < width; ++i) highest = std::max(highest, std::fabs(rotated[i]));
  return highest;
}

namespace {

// One row [in] -> its part of a panel: output o.
void pack_row(const float* weights, const Inputs& inputs, int o, uint8_t* panel) {
  float rotated[kMaxSpan * kChunk];
  auto* halves = reinterpret_cast<uint16_t*>(panel + static_cast<size_t>(inputs.chunks) * kChunkBytes);
  const int width = inputs.span * kChunk;
  for (int s = 0; s < inputs.spans; ++s) {
    const uint16_t half = float_to_half(rotate_span(weights, inputs, s, rotated) / 127.0f);
    const float scale = half_to_float(half);
    halves[s * kPanel + o] = half;
    for (int i = 0; i < width; ++i) {
      const float q = scale > 0 ? std::nearbyintf(rotated[i] / scale) : 0.0f;
      const auto clipped = static_cast<int32_t>(std::max(-127.0f, std::min(127.0f, q)));
      panel[(s * width + i) / 4 * 64 + o * 4 + i % 4] = static_cast<uint8_t>(clipped + 128);
    }
  }
}

}  // namespace
}  // namespace tenuto

using namespace tenuto;

TENUTO_API size_t tenuto_int8_packed_bytes(int out, int in) { return panels_of(out) * Inputs(in).panel_stride(); }

TENUTO_API void tenuto_int8_pack(TenutoPool* pool, const float* weights, int out, int in, void* packed) {
  const Inputs inputs(in);
  pool->run(panels_of(out), [&](int panel) {
    uint8_t* to = static_cast<uint8_t*>(packed) + panel * inputs.panel_stride();
    // Outputs that there are not have scale 0, and bytes that stand for 0.
    std::memset(to, 0, inputs.panel_stride());
    std::memset(to, 128, static_cast<size_t>(inputs.chunks) * kChunkBytes);
    for (int o = 0; o < std::min(kPanel, out - panel * kPanel); ++o)
      pack_row(weights + (static_cast<size_t>(panel) * kPanel + o) * in, inputs, o, to);
  });
}

TENUTO_API void tenuto_int8_unpack(const void* packed, int out, int in, float* weights) {
  const Inputs inputs(in);
  const int width = inputs.chunks * kChunk;
  for (int row = 0; row < out; ++row) {
    const uint8_t* panel = static_cast<const uint8_t*>(packed) + row / kPanel * inputs.panel_stride();
    const int o = row % kPanel;
    for (int i = 0; i < width; ++i) {
      const uint16_t half = panel_scales(panel, inputs)[i / (inputs.span * kChunk) * kPanel + o];
      const int q = panel[i / 4 * 64 + o * 4 + i % 4] - 128;
      weights[static_cast<size_t>(row) * width + i] = static_cast<float>(q) * half_to_float(half);
    }
  }
}

TENUTO_API size_t tenuto_linear_scratch_bytes(int rows, int in) { return Activations::bytes(in, rows); }

TENUTO_API void tenuto_linear(TenutoPool* pool, const float* x, int rows, const TenutoMatrix* matrix, float* y,
                              void* scratch) {
  const int in = matrix->in;
  const Activations activations(in, rows, scratch);
  each_row(pool, rows, x, in, [&](int r, const float* row) { quantise_row_into(activations, r, row); });
  multiply(pool, activations, rows, Matrix(*matrix), into(y, matrix->out));
}

TENUTO_API int tenuto_format_version() { return 3; }
