// Quantising a row of activations. Included by the file of each instruction set, so that the compiler can use it.
#pragma once
#include <algorithm>
#include <cstring>

#include "int8.h"

namespace tenuto {
namespace {

inline float largest_magnitude(const float* x, int count) {
  uint32_t highest = 0;  // floats without sign are ordered like their bits, and integers have no NaN to mind
  for (int i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    highest = std::max(highest, bits & 0x7fffffffu);
  }
  float value;
  std::memcpy(&value, &highest, 4);
  return value;
}

inline int32_t quantise_group(const float* x, int count, float inverse, int8_t* values) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const int q = __builtin_irintf(x[i] * inverse);  // half to even
    values[i] = static_cast<int8_t>(q);
    sum += q;
  }
  return sum;
}

inline void quantise_row(const float* x, int in, int groups, int8_t* values, float* scales, int32_t* sums) {
  for (int g = 0; g < groups; ++g) {
    const float* from = x + g * kGroup;
    int8_t* to = values + g * kGroup;
    const int count = std::min(kGroup, in - g * kGroup);
    const bool whole = count == kGroup;  // a constant count, in the usual case, is what the compiler unrolls
    const float highest = whole ? largest_magnitude(from, kGroup) : largest_magnitude(from, count);
    const float inverse = highest > 0 ? 127.0f / highest : 0.0f;
    if (!whole) std::memset(to, 0, kGroup);
    sums[g] = -128 * (whole ? quantise_group(from, kGroup, inverse, to) : quantise_group(from, count, inverse, to));
    scales[g] = highest / 127.0f;
  }
}

}  // namespace
}  // namespace tenuto
