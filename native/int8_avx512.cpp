// Tile products with AVX-512 VNNI (`vpdpbusd`): 64 products and 16 sums in one instruction.
#include "int8.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")
#define TENUTO_AVX512
#include "quantise.h"

namespace tenuto {
namespace {

inline __m512i four_bytes(const int8_t* at) {
  int32_t word;
  std::memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);  // becomes the broadcast operand of the instruction
}

template <int Rows, int Panels>
void tile(const Activations& x, int first, const uint8_t* const* panels, float* y) {
  const Inputs& inputs = x.inputs;
  const size_t row_bytes = inputs.row_bytes();
  const int spans = inputs.spans, steps = inputs.span * (kChunk / 4);
  const int8_t* values = x.values + first * row_bytes;
  const float* scales = x.scales + static_cast<size_t>(first) * spans;
  const int32_t* sums = x.sums + static_cast<size_t>(first) * spans;
  __m512 total[Rows][Panels];
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p] = _mm512_setzero_ps();
  const uint8_t* bytes[Panels];
  for (int p = 0; p < Panels; ++p) bytes[p] = panels[p];
  for (int s = 0; s < spans; ++s) {
    __m512i dot[Rows][Panels];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_set1_epi32(sums[r * spans + s]);
    for (int step = 0; step < steps; ++step) {
      __m512i w[Panels];
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        w[p] = _mm512_load_si512(bytes[p]);
        bytes[p] += 64;
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const __m512i four = four_bytes(values + r * row_bytes);
#pragma GCC unroll 4
        for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], w[p], four);
      }
      values += 4;
    }
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      const auto* halves = panel_scales(panels[p], inputs) + s * kPanel;
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

constexpr TileKernel kTile{8, tile_any, nothing, nothing};

}  // namespace

const Int8Kernels kAvx512Vnni{kTile, kTile, rotate_floats, quantise_row};

// With AMX, which has its own tiles for many rows (int8_amx.cpp).
extern const TileKernel kAmxTile;
const Int8Kernels kAmxInt8{kTile, kAmxTile, rotate_floats, quantise_row};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
