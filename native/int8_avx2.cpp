// Tile products with AVX2, which has no instruction for four products of bytes: bytes become words, whose products are
// added in pairs (`vpmaddwd`). Exact, unlike `vpmaddubsw`, which saturates.
#include "int8.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx2,fma,f16c")
#define TENUTO_AVX2
#include "quantise.h"

namespace tenuto {
namespace {

// One row and one panel. The 16 outputs of a step are four groups of four; each sum comes in two halves.
void tile_row(const Activations& x, int row, const uint8_t* panel, float* y) {
  const Inputs& inputs = x.inputs;
  const int8_t* in = x.values + row * inputs.row_bytes();
  const uint8_t* bytes = panel;
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (int s = 0; s < inputs.spans; ++s) {
    const size_t at = static_cast<size_t>(row) * inputs.spans + s;
    __m256i halves[4] = {};
    for (int step = 0; step < inputs.span * kChunk / 4; ++step) {
      int32_t word;
      std::memcpy(&word, in, 4);
      const __m256i four = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(word)));
      for (int q = 0; q < 4; ++q) {
        const __m128i w = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes + q * 16));
        halves[q] = _mm256_add_epi32(halves[q], _mm256_madd_epi16(_mm256_cvtepu8_epi16(w), four));
      }
      in += 4, bytes += 64;
    }
    // Horizontal sums leave the outputs as 0 1 4 5 | 2 3 6 7; the permutation puts them in order.
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    const __m256i less = _mm256_set1_epi32(x.sums[at]);
    const __m256i a = _mm256_permutevar8x32_epi32(_mm256_hadd_epi32(halves[0], halves[1]), order);
    const __m256i b = _mm256_permutevar8x32_epi32(_mm256_hadd_epi32(halves[2], halves[3]), order);
    const auto* scales = reinterpret_cast<const __m128i*>(panel_scales(panel, inputs) + s * kPanel);
    const __m256 xs = _mm256_set1_ps(x.scales[at]);
    low = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(a, less)),
                          _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128(scales)), xs), low);
    high = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(b, less)),
                           _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128(scales + 1)), xs), high);
  }
  _mm256_storeu_ps(y, low);
  _mm256_storeu_ps(y + 8, high);
}

void tile(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest&) {
  for (int p = 0; p < pair.count; ++p)
    for (int r = 0; r < rows; ++r) tile_row(x, first + r, pair.panels[p], y + r * kTileWidth + p * kPanel);
}

constexpr TileKernel kTile{8, tile, nothing_for, nothing};

}  // namespace

const Int8Kernels kAvx2Int8{kTile, kTile, rotate_floats, quantise_row};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
