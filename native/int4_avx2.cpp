// INT4 panels to INT8 ones with AVX2: levels by a shuffle, times the factors of their shapes as words.
#include "int4.h"

#if defined(__x86_64__)
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx2,fma,f16c")

namespace tenuto {
namespace {

// 32 bytes of levels, eight outputs of four inputs each, times the factors, plus 128.
inline __m256i scaled(__m256i levels, __m256i low_factors, __m256i high_factors) {
  const __m256i low = _mm256_mulhrs_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(levels)), low_factors);
  const __m256i high = _mm256_mulhrs_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(levels, 1)), high_factors);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
  return _mm256_xor_si256(packed, _mm256_set1_epi8(-128));
}

void expand(const uint8_t* panel, const Inputs& inputs, uint8_t* bytes) {
  const uint8_t* shapes = int4_shapes(panel, inputs);
  std::memcpy(bytes + static_cast<size_t>(inputs.chunks) * kChunkBytes, int4_scales(panel, inputs),
              static_cast<size_t>(inputs.spans) * kPanel * sizeof(uint16_t));
  const __m256i levels = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kLevel)));
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int c = 0; c < inputs.chunks; ++c, shapes += kPanel) {
    __m256i factors[4];  // of four outputs each
    for (int o = 0; o < kPanel; o += 4) {
      const auto four = [&](int at) { return _mm_set1_epi16(kFactor[shapes[o + at] / kLevels]); };
      factors[o / 4] = _mm256_set_m128i(_mm_unpacklo_epi64(four(2), four(3)), _mm_unpacklo_epi64(four(0), four(1)));
    }
    for (int pair = 0; pair < kChunk / 8; ++pair, panel += 64, bytes += 128) {
      for (int half = 0; half < 2; ++half) {
        const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel + half * 32));
        const __m256i first = _mm256_and_si256(both, nibble);
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        auto* to = reinterpret_cast<__m256i*>(bytes + half * 32);
        const __m256i low = factors[half * 2], high = factors[half * 2 + 1];
        _mm256_store_si256(to, scaled(_mm256_shuffle_epi8(levels, first), low, high));
        _mm256_store_si256(to + 2, scaled(_mm256_shuffle_epi8(levels, second), low, high));
      }
    }
  }
}

}  // namespace

const Int4Kernels kAvx2Int4{expand, 0, {}};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
