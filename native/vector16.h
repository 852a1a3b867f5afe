// Sixteen floats at a time, by the compiler's own vector types: one source for every instruction set.
#pragma once
#include <cstdint>
#include <cstring>

namespace tenuto {
namespace {

typedef float V16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef int8_t B16 __attribute__((vector_size(16)));
typedef uint16_t H16 __attribute__((vector_size(32)));
typedef uint32_t U16 __attribute__((vector_size(64)));
constexpr int kLanes = 16;

inline V16 load16(const float* at) {
  V16 v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline V16 load16(const int8_t* at) {
  B16 bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  return __builtin_convertvector(bytes, V16);
}
// Brain floats: the upper halves of floats.
inline V16 load16(const uint16_t* at) {
  H16 halves;
  std::memcpy(&halves, at, sizeof halves);
  const U16 bits = __builtin_convertvector(halves, U16) << 16;
  V16 v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
inline void store16(float* at, V16 v) { std::memcpy(at, &v, sizeof v); }
inline V16 all(float x) { return V16{} + x; }

inline V16 max16(V16 a, V16 b) { return a > b ? a : b; }

// The order of additions is fixed: halves onto halves.
inline float sum16(V16 v) {
  float x[kLanes];
  std::memcpy(x, &v, sizeof x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}
inline float largest16(V16 v) {
  float x[kLanes];
  std::memcpy(x, &v, sizeof x);
  float highest = x[0];
  for (int i = 1; i < kLanes; ++i) highest = x[i] > highest ? x[i] : highest;
  return highest;
}

// e^x to about 1 unit in the last place, for x <= 88; very negative x, -inf included, give 0.
// Cody and Waite's reduction: x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor polynomial of degree 7 in r.
inline V16 exp16(V16 x) {
  const V16 lowest = all(-87.0f);
  const auto underflow = x < lowest;
  x = underflow ? lowest : x;
  const V16 rounder = all(12582912.0f);
  const V16 shifted = x * 1.44269504f + rounder;
  const V16 n = shifted - rounder;
  V16 r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  V16 p = all(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I16 bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000;  // 2^n: the low bits of `shifted` are n
  V16 scale;
  std::memcpy(&scale, &bits, sizeof scale);
  const V16 result = p * scale;
  return underflow ? V16{} : result;
}

}  // namespace
}  // namespace tenuto
