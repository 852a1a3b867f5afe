// Sixteen floats at a time, by the compiler's own vector types: one source for every instruction set.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace tenuto {
namespace {

typedef float V16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
constexpr int kLanes = 16;

inline V16 load16(const float* at) {
  V16 v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
// Widening is written out where the compiler would take sixteen bytes one by one. The including file says which
// instructions it may use.
#if defined(TENUTO_AVX512)
inline V16 load16(const int8_t* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return (V16)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
inline V16 load16(const uint16_t* at) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return (V16)_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
#elif defined(TENUTO_AVX2)
inline V16 join(__m256 low, __m256 high) {
  V16 v;
  std::memcpy(&v, &low, sizeof low);
  std::memcpy(reinterpret_cast<char*>(&v) + sizeof low, &high, sizeof high);
  return v;
}
inline __m256 load8(const int8_t* at) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}
inline __m256 load8(const uint16_t* at) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline V16 load16(const int8_t* at) { return join(load8(at), load8(at + 8)); }
inline V16 load16(const uint16_t* at) { return join(load8(at), load8(at + 8)); }
#elif defined(TENUTO_NEON)
struct Quads {
  float32x4_t of[4];
  float32x4_t& operator[](int i) { return of[i]; }
  const float32x4_t& operator[](int i) const { return of[i]; }
};
inline Quads quads(V16 v) {
  Quads q;
  std::memcpy(&q, &v, sizeof q);
  return q;
}
inline V16 join(const Quads& q) {
  V16 v;
  std::memcpy(&v, &q, sizeof v);
  return v;
}
inline V16 load16(const int8_t* at) {
  const int8x16_t bytes = vld1q_s8(at);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return join({{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}});
}
inline V16 load16(const uint16_t* at) {
  const auto widened = [](uint16x4_t halves) { return vreinterpretq_f32_u32(vshll_n_u16(halves, 16)); };
  const uint16x8_t low = vld1q_u16(at), high = vld1q_u16(at + 8);
  return join({{widened(vget_low_u16(low)), widened(vget_high_u16(low)), widened(vget_low_u16(high)),
                widened(vget_high_u16(high))}});
}
#else
inline V16 load16(const int8_t* at) {
  V16 v;
  for (int i = 0; i < kLanes; ++i) v[i] = at[i];
  return v;
}
inline V16 load16(const uint16_t* at) {
  I16 bits;
  for (int i = 0; i < kLanes; ++i) bits[i] = static_cast<int32_t>(static_cast<uint32_t>(at[i]) << 16);
  V16 v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
#endif
inline void store16(float* at, V16 v) { std::memcpy(at, &v, sizeof v); }
inline V16 all(float x) { return V16{} + x; }

// What takes numbers up to `top` to integers up to `most`. Finite, however small `top` is: machines differ in which
// integer infinity becomes.
inline float steps(float most, float top) {
  const float wanted = top > 0 ? most / top : 0.0f;
  return wanted < 3e38f ? wanted : 3e38f;
}

inline V16 steps(float most, V16 top) {
  const V16 wanted = top > V16{} ? all(most) / top : V16{};
  return wanted < all(3e38f) ? wanted : all(3e38f);
}

inline int32_t nearest(float x) {
#if defined(__clang__)
  return static_cast<int32_t>(__builtin_rintf(x));
#else
  return __builtin_irintf(x);
#endif
}

// Round to integers, half to even, and store the low byte of each; returns the integers.
inline I16 store_bytes(void* at, V16 v) {
#if defined(TENUTO_AVX512)
  const __m512i whole = _mm512_cvtps_epi32((__m512)v);
  _mm_storeu_si128(static_cast<__m128i*>(at), _mm512_cvtepi32_epi8(whole));
  return (I16)whole;
#elif defined(TENUTO_NEON)
  const Quads q = quads(v);
  const int32x4_t whole[4] = {vcvtnq_s32_f32(q[0]), vcvtnq_s32_f32(q[1]), vcvtnq_s32_f32(q[2]), vcvtnq_s32_f32(q[3])};
  const int16x8_t low = vcombine_s16(vmovn_s32(whole[0]), vmovn_s32(whole[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(whole[2]), vmovn_s32(whole[3]));
  vst1q_s8(static_cast<int8_t*>(at), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  I16 result;
  std::memcpy(&result, whole, sizeof result);
  return result;
#else
  I16 whole;
  for (int i = 0; i < kLanes; ++i) whole[i] = nearest(v[i]);
  auto* bytes = static_cast<uint8_t*>(at);
  for (int i = 0; i < kLanes; ++i) bytes[i] = static_cast<uint8_t>(whole[i]);
  return whole;
#endif
}

// store_bytes of from[0 .. 63] times a factor: numbers from 0 to 255.
inline void store_64_bytes(uint8_t* at, const float* from, V16 factor) {
#if defined(TENUTO_AVX512)
  __m512i whole[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) whole[i] = _mm512_cvtps_epi32((__m512)(load16(from + i * kLanes) * factor));
  const __m512i low = _mm512_packus_epi32(whole[0], whole[1]), high = _mm512_packus_epi32(whole[2], whole[3]);
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(at, _mm512_permutexvar_epi32(places, _mm512_packus_epi16(low, high)));
#else
  for (int i = 0; i < 4; ++i) store_bytes(at + i * kLanes, load16(from + i * kLanes) * factor);
#endif
}

// a * b + c, rounded once where the machine can. The compiler may not join products and sums by itself
// (-ffp-contract=off): it would do so differently for different numbers of rows, and a row's bits would change.
inline V16 fma16(V16 a, V16 b, V16 c) {
#if defined(TENUTO_AVX512)
  return (V16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(TENUTO_AVX2)
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof a);
  std::memcpy(y, &b, sizeof b);
  std::memcpy(z, &c, sizeof c);
  return join(_mm256_fmadd_ps(x[0], y[0], z[0]), _mm256_fmadd_ps(x[1], y[1], z[1]));
#elif defined(TENUTO_NEON)
  const Quads x = quads(a), y = quads(b), z = quads(c);
  return join({{vfmaq_f32(z[0], x[0], y[0]), vfmaq_f32(z[1], x[1], y[1]), vfmaq_f32(z[2], x[2], y[2]),
                vfmaq_f32(z[3], x[3], y[3])}});
#else
  return a * b + c;
#endif
}

// Lane i and its partner, i with one bit flipped: their sum in the lower place, their difference in the upper one.
template <int Bit>
inline V16 butterfly(V16 v) {
#if defined(TENUTO_NEON)
  Quads q = quads(v);
  if (Bit >= 4) {
    constexpr int kApart = Bit / 4 % 4;
    return kApart == 2 ? join({{q[0] + q[2], q[1] + q[3], q[0] - q[2], q[1] - q[3]}})
                       : join({{q[0] + q[1], q[0] - q[1], q[2] + q[3], q[2] - q[3]}});
  }
  for (int i = 0; i < 4; ++i) {
    const float32x4_t other = Bit == 2 ? vextq_f32(q[i], q[i], 2) : vrev64q_f32(q[i]);
    const float32x4_t sign = Bit == 2 ? float32x4_t{1, 1, -1, -1} : float32x4_t{1, -1, 1, -1};
    q[i] = vfmaq_f32(other, q[i], sign);  // the product is exact
  }
  return join(q);
#else
  I16 partner;
  V16 sign;
  for (int i = 0; i < kLanes; ++i) partner[i] = i ^ Bit, sign[i] = (i & Bit) != 0 ? -1.0f : 1.0f;
#if defined(__clang__)
  V16 other;
  for (int i = 0; i < kLanes; ++i) other[i] = v[i ^ Bit];
#else
  const V16 other = __builtin_shuffle(v, partner);
#endif
  return fma16(v, sign, other);  // the product is exact
#endif
}

inline V16 max16(V16 a, V16 b) { return a > b ? a : b; }

// The largest magnitude so far, by its bits: floats without sign are ordered like them, and integers have no NaN to mind.
inline I16 larger_bits(I16 bits, V16 v) {
  const I16 other = (I16)v & 0x7fffffff;
  return other > bits ? other : bits;
}
inline float largest_of_bits(I16 bits) {
#if defined(TENUTO_AVX512)
  const int32_t top_bits = _mm512_reduce_max_epi32((__m512i)bits);
#else
  int32_t lanes[kLanes];
  std::memcpy(lanes, &bits, sizeof lanes);
  int32_t top_bits = 0;
  for (int i = 0; i < kLanes; ++i) top_bits = lanes[i] > top_bits ? lanes[i] : top_bits;
#endif
  float top;
  std::memcpy(&top, &top_bits, sizeof top);
  return top;
}
inline int32_t sum16(I16 v) {
#if defined(TENUTO_AVX512)
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  int32_t lanes[kLanes], total = 0;
  std::memcpy(lanes, &v, sizeof lanes);
  for (int i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
#endif
}

#if defined(TENUTO_AVX512)
// Halves onto halves, with `join` of two vectors.
template <typename Join>
inline float fold16(V16 v, Join join) {
  const __m256 eight = join(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
  const __m128 four = _mm256_castps256_ps128(join(eight, _mm256_permute2f128_ps(eight, eight, 1)));
  const __m128 two = _mm_movehl_ps(four, four), pair = _mm256_castps256_ps128(
      join(_mm256_castps128_ps256(four), _mm256_castps128_ps256(two)));
  const __m128 other = _mm_movehdup_ps(pair);
  return _mm_cvtss_f32(
      _mm256_castps256_ps128(join(_mm256_castps128_ps256(pair), _mm256_castps128_ps256(other))));
}
inline float sum16(V16 v) {
  return fold16(v, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); });
}
inline float largest16(V16 v) {
  return fold16(v, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); });
}

// Two quarters of a, two of b.
template <int Which>
inline __m512 quarters(__m512 a, __m512 b) {
  return _mm512_shuffle_f32x4(a, b, Which);
}

// fold16 of sixteen vectors, lane i of the result that of v[i]; in the same order.
template <typename Join>
inline V16 fold_each16(const V16* v, Join join) {
  __m512 of[16];
  for (int i = 0; i < 16; ++i) of[i] = (__m512)v[i];
  for (int i = 0; i < 8; ++i)
    of[i] = join(quarters<0x44>(of[2 * i], of[2 * i + 1]), quarters<0xee>(of[2 * i], of[2 * i + 1]));
  for (int i = 0; i < 4; ++i)
    of[i] = join(quarters<0x88>(of[2 * i], of[2 * i + 1]), quarters<0xdd>(of[2 * i], of[2 * i + 1]));
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(of[2 * i]), b = _mm512_castps_pd(of[2 * i + 1]);
    of[i] = join(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const __m512 last = join(_mm512_shuffle_ps(of[0], of[1], 0x88), _mm512_shuffle_ps(of[0], of[1], 0xdd));
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (V16)_mm512_permutexvar_ps(places, last);
}
#else
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
#endif

// sum16 and largest16 of up to sixteen vectors, that of v[i] in lane i. Other lanes hold something.
template <int Count>
inline V16 sum_each16(const V16* v) {
#if defined(TENUTO_AVX512)
  if (Count == kLanes) return fold_each16(v, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
#endif
  V16 sums = {};
  for (int i = 0; i < Count; ++i) sums[i] = sum16(v[i]);
  return sums;
}
template <int Count>
inline V16 largest_each16(const V16* v) {
#if defined(TENUTO_AVX512)
  if (Count == kLanes) return fold_each16(v, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
#endif
  V16 tops = {};
  for (int i = 0; i < Count; ++i) tops[i] = largest16(v[i]);
  return tops;
}

constexpr float kLog2e = 1.44269504f;
constexpr float kRounder = 12582912.0f;  // x + kRounder is a whole number, in its low bits

// 2^n, for whole n from -126 to 127, given n + kRounder.
inline V16 power_of_two(V16 shifted) {
  const I16 bits = ((I16)shifted << 23) + 0x3f800000;
  return (V16)bits;
}

// e^x to about 1 unit in the last place, for x <= 88; very negative x, -inf included, give 0.
// Cody and Waite's reduction: x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor polynomial of degree 7 in r.
inline V16 exp16(V16 x) {
  const V16 lowest = all(-87.0f);
  const auto underflow = x < lowest;
  x = underflow ? lowest : x;
  const V16 rounder = all(kRounder);
  const V16 shifted = fma16(x, all(kLog2e), rounder);
  const V16 n = shifted - rounder;
  V16 r = fma16(n, all(-0.693359375f), x);
  r = fma16(n, all(2.12194440e-4f), r);
  V16 p = all(1.0f / 5040);
  for (float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = fma16(p, r, all(term));
  const V16 result = p * power_of_two(shifted);
  return underflow ? V16{} : result;
}

// 2^x to about 2e-7 of it, for x <= 127; far below -126 it is 0, and what is no number stays none.
// x = n + f with 0 <= f < 1, then a polynomial of degree 5 in f, fitted for the least largest relative error, and exact
// for whole numbers.
inline V16 exp2_16(V16 x) {
#if defined(TENUTO_AVX512)
  const V16 f = (V16)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // of an infinity 0
#else
  const V16 rounder = all(kRounder);
  const V16 nearest = (x + rounder) - rounder, n = nearest > x ? nearest - 1.0f : nearest;
  const V16 f = x - n;
#endif
  V16 p = all(0.0018671302f);
  for (float term : {0.00901703f, 0.055799913f, 0.24016444f, 0.6931513f, 1.0f}) p = fma16(p, f, all(term));
#if defined(TENUTO_AVX512)
  return (V16)_mm512_scalef_ps((__m512)p, (__m512)x);  // by 2^n: it rounds x down itself
#else
  return x < all(-126.0f) ? V16{} : p * power_of_two(n + rounder);
#endif
}

}  // namespace
}  // namespace tenuto
