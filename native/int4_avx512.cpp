// INT4 with AVX-512: `vpermi2b` (VBMI) looks up 64 bytes in the 128 of all shapes' levels. For few rows they go
// straight into the products.
#include "int4.h"

#if defined(__x86_64__)
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,fma,f16c")

namespace tenuto {
namespace {

struct Lookup {
  __m512i low, high, nibble;

  // Written out: what the compiler would make itself would not have these instructions.
  Lookup() {
    low = _mm512_load_si512(kLevelBytes.at), high = _mm512_load_si512(kLevelBytes.at + 64);
    nibble = _mm512_set1_epi8(15);
  }

  // The shapes of 16 outputs, each four times.
  static __m512i shapes(const uint8_t* at) {
    const __m512i words = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm512_shuffle_epi8(words, _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0x00000000));
  }
  __m512i bytes(__m512i levels, __m512i shapes) const {
    const __m512i at = _mm512_ternarylogic_epi32(levels, nibble, shapes, 0xea);  // (levels & nibble) | shapes
    return _mm512_permutex2var_epi8(low, at, high);
  }
  __m512i first(__m512i both, __m512i shapes) const { return bytes(both, shapes); }
  __m512i second(__m512i both, __m512i shapes) const { return bytes(_mm512_srli_epi16(both, 4), shapes); }
};

void expand(const uint8_t* panel, const Inputs& inputs, uint8_t* bytes) {
  const Lookup lookup;
  const uint8_t* at = int4_shapes(panel, inputs);
  std::memcpy(bytes + static_cast<size_t>(inputs.chunks) * kChunkBytes, int4_scales(panel, inputs),
              static_cast<size_t>(inputs.spans) * kPanel * sizeof(uint16_t));
  for (int c = 0; c < inputs.chunks; ++c, at += kPanel) {
    const __m512i shapes = Lookup::shapes(at);
#pragma GCC unroll 8
    for (int pair = 0; pair < kChunk / 8; ++pair, panel += 64, bytes += 128) {
      const __m512i both = _mm512_load_si512(panel);
      _mm512_store_si512(bytes, lookup.first(both, shapes));
      _mm512_store_si512(bytes + 64, lookup.second(both, shapes));
    }
  }
}

inline __m512i four_bytes(const int8_t* at) {
  int32_t word;
  std::memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);
}

template <int Rows, int Panels>
void tile(const Activations& x, int first, const uint8_t* const* panels, float* y) {
  const Inputs& inputs = x.inputs;
  const Lookup lookup;
  const size_t row_bytes = inputs.row_bytes();
  const int spans = inputs.spans;
  const int8_t* values = x.values + first * row_bytes;
  const float* scales = x.scales + static_cast<size_t>(first) * spans;
  const int32_t* sums = x.sums + static_cast<size_t>(first) * spans;
  __m512 total[Rows][Panels];
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p] = _mm512_setzero_ps();
  const uint8_t *bytes[Panels], *at[Panels];
  for (int p = 0; p < Panels; ++p) bytes[p] = panels[p], at[p] = int4_shapes(panels[p], inputs);
  for (int s = 0; s < spans; ++s) {
    __m512i dot[Rows][Panels];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_set1_epi32(sums[r * spans + s]);
    for (int c = 0; c < inputs.span; ++c) {
      __m512i shapes[Panels];
      for (int p = 0; p < Panels; ++p) shapes[p] = Lookup::shapes(at[p] + (s * inputs.span + c) * kPanel);
      for (int pair = 0; pair < kChunk / 8; ++pair) {
        __m512i w[2][Panels];
#pragma GCC unroll 4
        for (int p = 0; p < Panels; ++p) {
          const __m512i both = _mm512_load_si512(bytes[p]);
          w[0][p] = lookup.first(both, shapes[p]), w[1][p] = lookup.second(both, shapes[p]);
          bytes[p] += 64;
        }
#pragma GCC unroll 2
        for (int step = 0; step < 2; ++step) {
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) {
            const __m512i four = four_bytes(values + r * row_bytes);
#pragma GCC unroll 4
            for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], w[step][p], four);
          }
          values += 4;
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      const auto* halves = int4_scales(panels[p], inputs) + s * kPanel;
      const __m512 ws = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const __m512 scale = _mm512_mul_ps(ws, _mm512_set1_ps(scales[r * spans + s]));
        total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][p]), scale, total[r][p]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) _mm512_store_ps(y + r * kTileWidth + p * kPanel, total[r][p]);
}

template <int Panels>
void rows_of(const Activations& x, int first, int rows, const uint8_t* const* panels, float* y) {
  switch (rows) {
    case 1: return tile<1, Panels>(x, first, panels, y);
    case 2: return tile<2, Panels>(x, first, panels, y);
    case 3: return tile<3, Panels>(x, first, panels, y);
    case 4: return tile<4, Panels>(x, first, panels, y);
    case 5: return tile<5, Panels>(x, first, panels, y);
    case 6: return tile<6, Panels>(x, first, panels, y);
    case 7: return tile<7, Panels>(x, first, panels, y);
    default: return tile<8, Panels>(x, first, panels, y);
  }
}

void tile_any(const Activations& x, int first, int rows, const uint8_t* const* panels, int num_panels, float* y) {
  if (num_panels == 1) return rows_of<1>(x, first, rows, panels, y);
  return rows_of<2>(x, first, rows, panels, y);
}

}  // namespace

const Int4Kernels kVbmiInt4{expand, 8, {8, tile_any, nothing, nothing}};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
