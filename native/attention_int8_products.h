// Integer products of INT8 queries with blocks of keys, and of weights in bytes with blocks of values, by vectors.
// Included once for each instruction set, by attention_int8_body.h.
#pragma once
#include <cstring>

#include "attention.h"
#include "vector16.h"

namespace tenuto {
namespace {

// Blocks lie in runs at best, and a head's part of one is small: a processor's own prefetcher begins anew each time. So
// what the next split reads is fetched into the second cache while this one is computed with, line by line: a processor
// waits when it has asked for more than a dozen lines at once.
inline void fetch_line(const void* at) { __builtin_prefetch(at, 0, 2); }

inline void fetch(const void* at, int bytes) {
  for (int line = 0; line < bytes; line += 64) fetch_line(static_cast<const char*>(at) + line);
}

#if defined(TENUTO_AVX512)

inline __m512i four(const void* at) {
  int32_t word;
  std::memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);
}

// dots[b * Heads + h] = (key + 128) . bytes[h], for the sixteen keys of each block. `ahead`: blocks to be fetched
// meanwhile.
template <int Heads, int Blocks>
void key_products(const int8_t* bytes, int size, const uint8_t* const* keys, const uint8_t* const* ahead, I16* dots) {
  __m512i total[Blocks * Heads] = {};
  const uint8_t *key[Blocks], *next[Blocks];
  std::copy_n(keys, Blocks, key);
  std::copy_n(ahead, Blocks, next);
  // A line of keys is four features of each.
  for (int line = 0; line < size / 4; ++line) {
    __m512i k[Blocks];
#pragma GCC unroll 4
    for (int b = 0; b < Blocks; ++b) {
      fetch_line(next[b] + line * 64);
      k[b] = _mm512_loadu_si512(key[b] + line * 64);
    }
#pragma GCC unroll 16
    for (int h = 0; h < Heads; ++h) {
      const __m512i q = four(bytes + h * kMaxHeadSize + line * 4);
#pragma GCC unroll 4
      for (int b = 0; b < Blocks; ++b) total[b * Heads + h] = _mm512_dpbusd_epi32(total[b * Heads + h], k[b], q);
    }
  }
#pragma GCC unroll 64
  for (int i = 0; i < Blocks * Heads; ++i) dots[i] = (I16)total[i];
}

// dots[h * Panels + p] += weights[h] . values, for the features of some panels (16 each) and the tokens of a block.
template <int Heads, int Panels>
inline void value_products(const uint8_t* weights, const int8_t* values, const int8_t* ahead, I16* dots) {
#pragma GCC unroll 4
  for (int t = 0; t < kBlockTokens; t += 4) {
    __m512i v[Panels];
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      fetch_line(ahead + p * 256 + t * 16);
      v[p] = _mm512_loadu_si512(values + p * 256 + t * 16);
    }
#pragma GCC unroll 16
    for (int h = 0; h < Heads; ++h) {
      const __m512i w = four(weights + h * kSplit + t);
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p)
        dots[h * Panels + p] = (I16)_mm512_dpbusd_epi32((__m512i)dots[h * Panels + p], w, v[p]);
    }
  }
}

#elif defined(TENUTO_NEON)

// Bytes that stand for x + 128 become signed by turning their highest bit round.
inline int8x16_t lowered(const uint8_t* at) { return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at), vdupq_n_u8(128))); }

template <int Rows>
void key_products_of_rows(const int8_t* bytes, int size, const uint8_t* keys, int32_t* dots) {
  int32x4_t total[Rows][4];
  for (int h = 0; h < Rows; ++h)
    for (int q = 0; q < 4; ++q) total[h][q] = vdupq_n_s32(0);
  for (int d = 0; d < size; d += 16) {
    int8x16_t in[Rows];
    for (int h = 0; h < Rows; ++h) in[h] = vld1q_s8(bytes + h * kMaxHeadSize + d);
#define TENUTO_STEP(step)                                                                              \
  for (int q = 0; q < 4; ++q) {                                                                        \
    const int8x16_t k = lowered(keys + d * kBlockTokens + step * 64 + q * 16);                         \
    for (int h = 0; h < Rows; ++h) total[h][q] = vdotq_laneq_s32(total[h][q], k, in[h], step);         \
  }
    TENUTO_STEP(0) TENUTO_STEP(1) TENUTO_STEP(2) TENUTO_STEP(3)  // lanes are constants
#undef TENUTO_STEP
  }
  for (int h = 0; h < Rows; ++h)
    for (int q = 0; q < 4; ++q) vst1q_s32(dots + h * kLanes + q * 4, total[h][q]);
}

// Of signed keys: see `quantise_query`.
template <int Heads, int Blocks>
void key_products(const int8_t* bytes, int size, const uint8_t* const* keys, const uint8_t* const* ahead, I16* dots) {
  constexpr int kRows = Heads % 4 == 0 ? 4 : Heads % 3 == 0 ? 3 : Heads;  // so that the sums stay in registers
  int32_t found[Heads * kLanes];
  for (int b = 0; b < Blocks; ++b, dots += Heads) {
    fetch(ahead[b], size * kBlockTokens);
    for (int h = 0; h < Heads; h += kRows)
      key_products_of_rows<kRows>(bytes + h * kMaxHeadSize, size, keys[b], found + h * kLanes);
    std::memcpy(dots, found, sizeof found);
  }
}

// There is no product of unsigned with signed bytes here: w v = (w - 128) v + 128 v.
template <int Heads, int Panels>
inline void value_products(const uint8_t* weights, const int8_t* values, const int8_t* ahead, I16* dots) {
  fetch(ahead, Panels * 256);
  for (int p = 0; p < Panels; ++p, values += 256) {
    int8x16_t v[4][4];
    int32x4_t less[4];
    for (int q = 0; q < 4; ++q) less[q] = vdupq_n_s32(0);
    for (int t = 0; t < 4; ++t)
      for (int q = 0; q < 4; ++q) {
        v[t][q] = vld1q_s8(values + t * 64 + q * 16);
        less[q] = vdotq_s32(less[q], v[t][q], vdupq_n_s8(-128));
      }
    for (int h = 0; h < Heads; ++h) {
      const int8x16_t w = lowered(weights + h * kSplit);
      int32_t* sums = reinterpret_cast<int32_t*>(&dots[h * Panels + p]);
      for (int q = 0; q < 4; ++q) {
        int32x4_t sum = vsubq_s32(vld1q_s32(sums + q * 4), less[q]);
        sum = vdotq_laneq_s32(sum, v[0][q], w, 0);
        sum = vdotq_laneq_s32(sum, v[1][q], w, 1);
        sum = vdotq_laneq_s32(sum, v[2][q], w, 2);
        sum = vdotq_laneq_s32(sum, v[3][q], w, 3);
        vst1q_s32(sums + q * 4, sum);
      }
    }
  }
}

#else

template <int Heads, int Blocks>
void key_products(const int8_t* bytes, int size, const uint8_t* const* keys, const uint8_t* const* ahead, I16* dots) {
  for (int b = 0; b < Blocks; ++b) {
    fetch(ahead[b], size * kBlockTokens);
    for (int h = 0; h < Heads; ++h) {
      int32_t total[kLanes] = {};
      for (int d = 0; d < size; d += 4)
        for (int t = 0; t < kLanes; ++t)
          for (int k = 0; k < 4; ++k)
            total[t] += keys[b][d * kBlockTokens + t * 4 + k] * bytes[h * kMaxHeadSize + d + k];
      std::memcpy(&dots[b * Heads + h], total, sizeof total);
    }
  }
}

template <int Heads, int Panels>
inline void value_products(const uint8_t* weights, const int8_t* values, const int8_t* ahead, I16* dots) {
  fetch(ahead, Panels * 256);
  for (int h = 0; h < Heads; ++h) {
    for (int p = 0; p < Panels; ++p) {
      int32_t total[kLanes] = {};
      for (int t = 0; t < kBlockTokens; t += 4)
        for (int f = 0; f < kLanes; ++f)
          for (int k = 0; k < 4; ++k) total[f] += weights[h * kSplit + t + k] * values[p * 256 + t * 16 + f * 4 + k];
      I16 more;
      std::memcpy(&more, total, sizeof more);
      dots[h * Panels + p] += more;
    }
  }
}

#endif

}  // namespace
}  // namespace tenuto
