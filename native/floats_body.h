// Norms, activations and rotation of one row. Included once for each instruction set.
#include <cmath>

#include "attention.h"
#include "int8.h"
#include "vector16.h"

namespace tenuto {
namespace {

void rms_norm_row(const float* x, const float* weight, int size, float eps, float* out) {
  V16 squares = {};
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const V16 v = load16(x + i);
    squares = fma16(v, v, squares);
  }
  float total = sum16(squares);
  for (; i < size; ++i) total += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(total / static_cast<float>(size) + eps);
  for (i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

void add_row(const float* x, const float* y, int size, float* out) {
  for (int i = 0; i < size; ++i) out[i] = x[i] + y[i];
}

// gate / (1 + exp(-gate)) for silu (0), gate / (1 + exp(-2 u)) for gelu in its tanh form (1), times up.
inline V16 activate(V16 gate, int activation) {
  constexpr float kTwice = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  const V16 argument =
      activation == 0 ? gate * -kLog2e : (gate * gate * gate * 0.044715f + gate) * (-kTwice * kLog2e);
  const V16 capped = argument > all(126.0f) ? all(126.0f) : argument;
  return gate / (exp2_16(capped) + 1.0f);
}

void gated_row(const float* gate, const float* up, int size, int activation, float* out) {
  int i = 0;
  for (; i + kLanes <= size; i += kLanes)
    store16(out + i, activate(load16(gate + i), activation) * load16(up + i));
  if (i < size) {  // the rest takes the same path, so that a feature's place does not matter
    float padded[2][kLanes] = {}, result[kLanes];
    for (int j = i; j < size; ++j) padded[0][j - i] = gate[j], padded[1][j - i] = up[j];
    store16(result, activate(load16(padded[0]), activation) * load16(padded[1]));
    for (int j = i; j < size; ++j) out[j] = result[j - i];
  }
}

// INT8 with one scale, max |x| / 127 rounded up to a brain float, so that nothing exceeds 127.
uint16_t quantise_head(const float* x, int size, int8_t* out) {
  V16 top = {}, zeros = {};
  for (int i = 0; i < size; i += kLanes) {
    const V16 v = load16(x + i);
    top = max16(top, max16(v, -v));
    zeros += v * 0.0f;
  }
  const bool sound = sum16(zeros) == 0.0f;  // 0 times what is no number is none either
  const float wanted = largest16(top) / 127.0f;
  uint32_t bits;
  std::memcpy(&bits, &wanted, 4);
  const auto scale = static_cast<uint16_t>((bits + 0xffff) >> 16);
  const uint32_t whole = static_cast<uint32_t>(scale) << 16;
  float exact;
  std::memcpy(&exact, &whole, 4);
  for (int i = 0; i < size; i += kLanes) store_bytes(out + i, exact > 0 ? load16(x + i) / exact : V16{});
  return sound ? scale : 0x7fc0;  // not a number: whoever reads the head finds out
}

void add_tile(const float* tile, int rows, int width, float* out, size_t stride) {
  for (int r = 0; r < rows; ++r, tile += kTileWidth, out += stride) {
    if (width == kTileWidth) {
      store16(out, load16(out) + load16(tile));
      store16(out + kLanes, load16(out + kLanes) + load16(tile + kLanes));
    } else {
      for (int i = 0; i < width; ++i) out[i] += tile[i];
    }
  }
}

void gated_tile(const float* tile, int rows, int activation, float* out, size_t stride) {
  for (int r = 0; r < rows; ++r, tile += kTileWidth, out += stride)
    store16(out, activate(load16(tile), activation) * load16(tile + kLanes));
}

// INT8 with one scale, max |x| / 127; `sum` is that of the integers, times -128.
float quantise_query(const float* x, int size, int8_t* out, int32_t* sum) {
  I16 highest = {};
  for (int i = 0; i < size; i += kLanes) highest = larger_bits(highest, load16(x + i));
  const float top = largest_of_bits(highest), inverse = steps(127.0f, top);
  I16 total = {};
  for (int i = 0; i < size; i += kLanes) total += store_bytes(out + i, load16(x + i) * inverse);
#if defined(TENUTO_NEON)
  constexpr int kRaised = 0;  // its products are with k, not with k + 128
#else
  constexpr int kRaised = 128;
#endif
  *sum = -kRaised * sum16(total);
  return top / 127.0f;
}

// Pairs (j, j + size / 2); the result is multiplied by `factor`.
void rotate_head(const float* x, const float* cos, const float* sin, int size, float factor, float* out) {
  const int half = size / 2;
  for (int j = 0; j < half; ++j) {
    const float first = x[j], second = x[j + half];
    out[j] = (first * cos[j] - second * sin[j]) * factor;
    out[j + half] = (second * cos[j] + first * sin[j]) * factor;
  }
}

}  // namespace
}  // namespace tenuto
