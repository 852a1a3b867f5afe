// Rotating and quantising rows of activations. Included by the file of each instruction set.
//
// A chunk of 64 inputs is multiplied by the orthonormal Hadamard matrix of size 64, weights and activations alike, which
// leaves their product as it is and spreads an outlier over the whole chunk: the scale then fits all of it (the idea is
// that of QuaRot; Ashkboos et al., 2024). Every instruction set adds in the same order: the bits are the same.
#pragma once
#include <cstring>

#include "int8.h"
#include "vector16.h"

namespace tenuto {
namespace {

// The fast Walsh-Hadamard transform, strides 32 to 1, times 1/8.
inline void rotate_chunk(V16* v) {
  V16 a = v[0] + v[2], b = v[1] + v[3], c = v[0] - v[2], d = v[1] - v[3];
  v[0] = a + b, v[1] = a - b, v[2] = c + d, v[3] = c - d;
  for (int i = 0; i < 4; ++i) {
    v[i] = butterfly<8>(v[i]);
    v[i] = butterfly<4>(v[i]);
    v[i] = butterfly<2>(v[i]);
    v[i] = butterfly<1>(v[i]) * 0.125f;
  }
}

inline void rotate_floats(const float* x, float* out) {
  V16 v[4];
  for (int i = 0; i < 4; ++i) v[i] = load16(x + i * kLanes);
  rotate_chunk(v);
  for (int i = 0; i < 4; ++i) store16(out + i * kLanes, v[i]);
}

inline void quantise_row(const float* x, const Inputs& inputs, int8_t* values, float* scales, int32_t* sums) {
  V16 rotated[kMaxSpan * 4];
  const int parts = inputs.span * 4;
  for (int s = 0; s < inputs.spans; ++s) {
    const float* from = x + s * inputs.span * kChunk;
    I16 highest = {};
    for (int c = 0; c < inputs.span; ++c) {
      V16* chunk = rotated + c * 4;
      const int left = inputs.size - (s * inputs.span + c) * kChunk;
      if (left >= kChunk) {
        for (int i = 0; i < 4; ++i) chunk[i] = load16(from + c * kChunk + i * kLanes);
      } else {
        float padded[kChunk] = {};
        if (left > 0) std::memcpy(padded, from + c * kChunk, left * sizeof(float));
        for (int i = 0; i < 4; ++i) chunk[i] = load16(padded + i * kLanes);
      }
      rotate_chunk(chunk);
      for (int i = 0; i < 4; ++i) highest = larger_bits(highest, chunk[i]);
    }
    const float top = largest_of_bits(highest), inverse = steps(127.0f, top);
    I16 sum = {};
    for (int i = 0; i < parts; ++i) sum += store_bytes(values + i * kLanes, rotated[i] * inverse);
    values += inputs.span * kChunk;
    sums[s] = -128 * sum16(sum);
    scales[s] = top / 127.0f;
  }
}

}  // namespace
}  // namespace tenuto
