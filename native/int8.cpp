#include "int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantise.h"
#include "thread_pool.h"

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

void tile_portable(const Activations& x, int first, int rows, const uint8_t* panel, int panels, float* y) {
  const size_t stride = panel_stride(x.groups);
  for (int r = 0; r < rows; ++r) {
    const size_t row = static_cast<size_t>(first) + r;
    for (int p = 0; p < panels; ++p) {
      float total[kPanel] = {};
      for (int g = 0; g < x.groups; ++g) {
        int32_t dot[kPanel];
        for (int o = 0; o < kPanel; ++o) dot[o] = x.sums[row * x.groups + g];
        const uint8_t* bytes = panel + p * stride + static_cast<size_t>(g) * kPanelBytes;
        const int8_t* in = x.values + (row * x.groups + g) * kGroup;
        for (int step = 0; step < kGroup / 4; ++step)
          for (int o = 0; o < kPanel; ++o)
            for (int k = 0; k < 4; ++k) dot[o] += bytes[step * 64 + o * 4 + k] * in[step * 4 + k];
        const uint16_t* halves = panel_scales(panel + p * stride, x.groups) + g * kPanel;
        const float scale = x.scales[row * x.groups + g];
        for (int o = 0; o < kPanel; ++o)
          total[o] = std::fma(static_cast<float>(dot[o]), half_to_float(halves[o]) * scale, total[o]);
      }
      std::memcpy(y + (r * panels + p) * kPanel, total, sizeof total);
    }
  }
}

void quantise_portable(const float* x, int in, int groups, int8_t* values, float* scales, int32_t* sums) {
  quantise_row(x, in, groups, values, scales, sums);
}

namespace {

constexpr Int8Kernels kPortable{tile_portable, quantise_portable};

const Int8Kernels* int8_kernels(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::avx512_vnni: return &kAvx512Vnni;
    case InstructionSet::avx2: return &kAvx2Int8;
#endif
    default: return &kPortable;
  }
}

const Int8Kernels* kernels = int8_kernels(best_instruction_set());

}  // namespace
}  // namespace tenuto

using namespace tenuto;

void tenuto::use_int8(InstructionSet set) { kernels = int8_kernels(set); }

TENUTO_API size_t tenuto_int8_packed_bytes(int out, int in) { return panels_of(out) * panel_stride(groups_of(in)); }

TENUTO_API void tenuto_int8_pack(const float* weights, int out, int in, void* packed) {
  const int groups = groups_of(in);
  const size_t stride = panel_stride(groups);
  auto* bytes = static_cast<uint8_t*>(packed);
  std::memset(bytes, 0, panels_of(out) * stride);
  for (int row = 0; row < panels_of(out) * kPanel; ++row) {
    uint8_t* panel = bytes + row / kPanel * stride;
    auto* halves = reinterpret_cast<uint16_t*>(panel + static_cast<size_t>(groups) * kPanelBytes);
    const int o = row % kPanel;
    for (int g = 0; g < groups; ++g) {
      const int count = row < out ? std::min(kGroup, in - g * kGroup) : 0;
      const float* from = weights + static_cast<size_t>(row) * in + g * kGroup;
      float highest = 0;
      for (int i = 0; i < count; ++i) highest = std::max(highest, std::fabs(from[i]));
      const uint16_t half = float_to_half(highest / 127.0f);
      const float scale = half_to_float(half);
      halves[g * kPanel + o] = half;
      for (int i = 0; i < kGroup; ++i) {
        const float q = i < count && scale > 0 ? std::nearbyintf(from[i] / scale) : 0.0f;
        const auto clipped = static_cast<int32_t>(std::max(-127.0f, std::min(127.0f, q)));
        panel[g * kPanelBytes + i / 4 * 64 + o * 4 + i % 4] = static_cast<uint8_t>(clipped + 128);
      }
    }
  }
}

TENUTO_API void tenuto_int8_unpack(const void* packed, int out, int in, float* weights) {
  const int groups = groups_of(in);
  const size_t stride = panel_stride(groups);
  for (int row = 0; row < out; ++row) {
    const uint8_t* panel = static_cast<const uint8_t*>(packed) + row / kPanel * stride;
    const uint16_t* halves = panel_scales(panel, groups);
    const int o = row % kPanel;
    for (int i = 0; i < in; ++i) {
      const int g = i / kGroup, k = i % kGroup;
      const int q = panel[g * kPanelBytes + k / 4 * 64 + o * 4 + k % 4] - 128;
      weights[static_cast<size_t>(row) * in + i] = static_cast<float>(q) * half_to_float(halves[g * kPanel + o]);
    }
  }
}

TENUTO_API size_t tenuto_int8_scratch_bytes(int rows, int in) {
  const size_t groups = groups_of(in);
  return rows * groups * (kGroup + sizeof(float) + sizeof(int32_t));
}

TENUTO_API void tenuto_int8_linear(TenutoPool* pool, const float* x, int rows, int in, const void* packed, int out,
                                   const float* bias, float* y, void* scratch) {
  const int groups = groups_of(in), panels = panels_of(out);
  const size_t stride = panel_stride(groups);
  auto* values = static_cast<int8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(values + static_cast<size_t>(rows) * groups * kGroup);
  auto* sums = reinterpret_cast<int32_t*>(scales + static_cast<size_t>(rows) * groups);

  constexpr int kRowsAtOnce = 16;
  const int row_tasks = rows <= kRowsAtOnce ? 1 : (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  pool->run(row_tasks, [&](int task) {
    const int begin = task * kRowsAtOnce, end = row_tasks == 1 ? rows : std::min(rows, begin + kRowsAtOnce);
    for (int r = begin; r < end; ++r) {
      const size_t at = static_cast<size_t>(r) * groups;
      kernels->quantise(x + static_cast<size_t>(r) * in, in, groups, values + at * kGroup, scales + at, sums + at);
    }
  });

  const Activations activations{values, scales, sums, groups};
  const int pairs = (panels + kTilePanels - 1) / kTilePanels;
  // A few tasks for each thread, so that a thread that is held up does not hold up the rest.
  const int tasks = std::min(pairs, pool->num_threads() * 4);
  pool->run(tasks, [&](int task) {
    float tile[kTileRows * kTilePanels * kPanel];
    const int begin = static_cast<int>(static_cast<int64_t>(pairs) * task / tasks);
    const int end = static_cast<int>(static_cast<int64_t>(pairs) * (task + 1) / tasks);
    for (int pair = begin; pair < end; ++pair) {
      const int first_panel = pair * kTilePanels, count = std::min(kTilePanels, panels - first_panel);
      const uint8_t* panel = static_cast<const uint8_t*>(packed) + first_panel * stride;
      const int column = first_panel * kPanel, width = std::min(count * kPanel, out - column);
      for (int row = 0; row < rows; row += kTileRows) {
        const int height = std::min(kTileRows, rows - row);
        kernels->tile(activations, row, height, panel, count, tile);
        for (int r = 0; r < height; ++r) {
          float* to = y + static_cast<size_t>(row + r) * out + column;
          const float* from = tile + r * count * kPanel;
          if (bias == nullptr) {
            std::memcpy(to, from, width * sizeof(float));
          } else {
            for (int i = 0; i < width; ++i) to[i] = from[i] + bias[column + i];
          }
        }
      }
    }
  });
}
