#include "int4.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "thread_pool.h"

namespace tenuto {
namespace {

void expand(const uint8_t* panel, const Inputs& inputs, uint8_t* bytes) {
  const uint8_t* shapes = int4_shapes(panel, inputs);
  std::memcpy(bytes + static_cast<size_t>(inputs.chunks) * kChunkBytes, int4_scales(panel, inputs),
              static_cast<size_t>(inputs.spans) * kPanel * sizeof(uint16_t));
  for (int c = 0; c < inputs.chunks; ++c, shapes += kPanel) {
    for (int pair = 0; pair < kChunk / 8; ++pair, panel += 64, bytes += 128) {
      for (int i = 0; i < 64; ++i) {
        bytes[i] = kLevelBytes.at[shapes[i / 4] | (panel[i] & 15)];
        bytes[64 + i] = kLevelBytes.at[shapes[i / 4] | panel[i] >> 4];
      }
    }
  }
}

const Int4Kernels* int4_kernels_of(InstructionSet set) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (set >= InstructionSet::avx512_vnni && __builtin_cpu_supports("avx512vbmi")) return &kVbmiInt4;
  if (set >= InstructionSet::avx2) return &kAvx2Int4;
#elif defined(TENUTO_HAS_NEON)
  if (set == InstructionSet::neon_dot) return &kNeonInt4;
#endif
  (void)set;
  return &kPortableInt4;
}

const Int4Kernels* chosen = int4_kernels_of(best_instruction_set());

}  // namespace

const Int4Kernels kPortableInt4{expand, 0, {}};
const Int4Kernels& int4_kernels() { return *chosen; }
void use_int4(InstructionSet set) { chosen = int4_kernels_of(set); }

namespace {

constexpr int kReach = 160;                          // a weight is at most so many units of its scale
constexpr float kFits[] = {0.85f, 0.95f, 1.05f};     // tried: the largest weight's share of the highest level

// For each shape and weight in units of the scale, rounded: the nearest level, the lower of two, and its squared error.
struct Nearest {
  uint8_t level[kShapes][2 * kReach + 1];
  int32_t error[kShapes][2 * kReach + 1];

  Nearest() {
    for (int s = 0; s < kShapes; ++s) {
      for (int unit = -kReach; unit <= kReach; ++unit) {
        int best = 0, best_error = 1 << 30;
        for (int l = 0; l < kLevels; ++l) {
          const int off = unit - (kLevelBytes.at[s * kLevels + l] - 128);
          if (off * off < best_error) best = l, best_error = off * off;
        }
        level[s][unit + kReach] = static_cast<uint8_t>(best);
        error[s][unit + kReach] = best_error;
      }
    }
  }
};

// A span of one output.
struct Span {
  uint16_t scale;
  int shapes[kMaxSpan];
  int units[kMaxSpan * kChunk];  // plus kReach
  float error;
};

Span span_with(const Nearest& nearest, const float* rotated, int chunks, float highest, float fit) {
  Span span;
  span.scale = float_to_half(highest * fit / 127.0f);
  const float scale = half_to_float(span.scale);
  int32_t total = 0;
  for (int c = 0; c < chunks; ++c) {
    int* units = span.units + c * kChunk;
    for (int i = 0; i < kChunk; ++i) {
      const float unit = scale > 0 ? std::nearbyintf(rotated[c * kChunk + i] / scale) : 0.0f;
      constexpr float reach = kReach;
      units[i] = static_cast<int>(std::max(-reach, std::min(reach, unit))) + kReach;
    }
    int32_t best = INT32_MAX;
    for (int s = 0; s < kShapes; ++s) {
      int32_t error = 0;
      for (int i = 0; i < kChunk; ++i) error += nearest.error[s][units[i]];
      if (error < best) best = error, span.shapes[c] = s;
    }
    total += best;
  }
  span.error = static_cast<float>(total) * (scale * scale);
  return span;
}

// One row [in] -> its part of a panel: output o.
void pack_row(const Nearest& nearest, const float* weights, const Inputs& inputs, int o, uint8_t* panel) {
  float rotated[kMaxSpan * kChunk];
  uint8_t* shapes = int4_shapes(panel, inputs);
  auto* scales = reinterpret_cast<uint16_t*>(shapes + static_cast<size_t>(inputs.chunks) * kPanel);
  const int width = inputs.span * kChunk;
  for (int s = 0; s < inputs.spans; ++s) {
    const float highest = rotate_span(weights, inputs, s, rotated);
    Span best = span_with(nearest, rotated, inputs.span, highest, kFits[0]);
    for (int f = 1; f < 3; ++f) {
      const Span other = span_with(nearest, rotated, inputs.span, highest, kFits[f]);
      if (other.error < best.error) best = other;
    }
    scales[s * kPanel + o] = best.scale;
    for (int c = 0; c < inputs.span; ++c) shapes[(s * inputs.span + c) * kPanel + o] = best.shapes[c] * kLevels;
    for (int i = 0; i < width; ++i) {
      const int at = s * width + i;
      uint8_t& both = panel[at / 8 * 64 + o * 4 + at % 4];
      both |= nearest.level[best.shapes[i / kChunk]][best.units[i]] << (at / 4 % 2 * 4);
    }
  }
}

}  // namespace
}  // namespace tenuto

using namespace tenuto;

TENUTO_API size_t tenuto_int4_packed_bytes(int out, int in) { return panels_of(out) * int4_panel_stride(Inputs(in)); }

TENUTO_API void tenuto_int4_pack(TenutoPool* pool, const float* weights, int out, int in, void* packed) {
  static const Nearest nearest;
  const Inputs inputs(in);
  const size_t stride = int4_panel_stride(inputs);
  pool->run(panels_of(out), [&](int panel) {
    uint8_t* to = static_cast<uint8_t*>(packed) + panel * stride;
    std::memset(to, 0, stride);  // outputs that there are not have scale 0
    for (int o = 0; o < std::min(kPanel, out - panel * kPanel); ++o)
      pack_row(nearest, weights + (static_cast<size_t>(panel) * kPanel + o) * in, inputs, o, to);
  });
}

TENUTO_API void tenuto_int4_unpack(const void* packed, int out, int in, float* weights) {
  const Inputs inputs(in);
  const int width = inputs.chunks * kChunk;
  for (int row = 0; row < out; ++row) {
    const uint8_t* panel = static_cast<const uint8_t*>(packed) + row / kPanel * int4_panel_stride(inputs);
    const int o = row % kPanel;
    for (int i = 0; i < width; ++i) {
      const uint16_t half = int4_scales(panel, inputs)[i / (inputs.span * kChunk) * kPanel + o];
      const int level = panel[i / 8 * 64 + o * 4 + i % 4] >> (i / 4 % 2 * 4) & 15;
      const int q = kLevelBytes.at[int4_shapes(panel, inputs)[i / kChunk * kPanel + o] | level] - 128;
      weights[static_cast<size_t>(row) * width + i] = static_cast<float>(q) * half_to_float(half);
    }
  }
}
