// Tile products with AMX (`tdpbsud`): 16 rows, 16 outputs and 64 inputs in one instruction.
//
// A tile register holds 16 rows of 64 bytes: 16 rows of activations as they lie, or one chunk of a panel as it lies.
#include "int8.h"

#if defined(TENUTO_HAS_AMX)
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,amx-tile,amx-int8")
#include "tiles.h"

namespace tenuto {
namespace {

// Add a tile's products, times their scales, to y.
inline void add_scaled(const int32_t* dot, int rows, const int32_t* sums, const float* scales, int stride,
                       const uint16_t* halves, float* y) {
  const __m512 ws = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  for (int r = 0; r < rows; ++r) {
    const __m512i whole = _mm512_add_epi32(_mm512_load_si512(dot + r * 16), _mm512_set1_epi32(sums[r * stride]));
    const __m512 scale = _mm512_mul_ps(ws, _mm512_set1_ps(scales[r * stride]));
    float* to = y + r * kTileWidth;
    _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, _mm512_load_ps(to)));
  }
}

// Up to 16 rows, or with `Two` up to 32.
template <bool Two, int Panels>
void tile(const Activations& x, int first, int rows, const uint8_t* const* panels, float* y) {
  const Inputs& inputs = x.inputs;
  const size_t row_bytes = inputs.row_bytes();
  const int spans = inputs.spans;
  const int8_t* upper = x.values + first * row_bytes;
  const int8_t* lower = upper + 16 * row_bytes;
  const uint8_t *left = panels[0], *right = panels[Panels - 1];
  // Products of a span are stored and added while those of the next are computed.
  alignas(64) int32_t dot[2][4][256];
  std::memset(y, 0, static_cast<size_t>(rows) * kTileWidth * sizeof(float));
  auto add = [&](int s) {
    for (int half = 0; half < (Two ? 2 : 1); ++half) {
      const size_t row = static_cast<size_t>(first) + half * 16;
      const int count = half == 0 && Two ? 16 : rows - half * 16;
      for (int p = 0; p < Panels; ++p)
        add_scaled(dot[s & 1][half * 2 + p], count, x.sums + row * spans + s, x.scales + row * spans + s, spans,
                   panel_scales(panels[p], inputs) + s * kPanel, y + half * 16 * kTileWidth + p * kPanel);
    }
  };
  for (int s = 0; s < spans; ++s) {
    _tile_zero(0);
    if (Panels == 2) _tile_zero(1);
    if (Two) _tile_zero(2);
    if (Two && Panels == 2) _tile_zero(3);
    for (int c = 0; c < inputs.span; ++c) {
      _tile_loadd(4, upper, row_bytes);
      _tile_loadd(6, left, 64);
      _tile_dpbsud(0, 4, 6);
      if (Panels == 2) {
        _tile_loadd(7, right, 64);
        _tile_dpbsud(1, 4, 7);
      }
      if (Two) {
        _tile_loadd(5, lower, row_bytes);
        _tile_dpbsud(2, 5, 6);
        if (Panels == 2) _tile_dpbsud(3, 5, 7);
      }
      upper += kChunk, lower += kChunk, left += kChunkBytes, right += kChunkBytes;
    }
    if (s > 0) add(s - 1);
    _tile_stored(0, dot[s & 1][0], 64);
    if (Panels == 2) _tile_stored(1, dot[s & 1][1], 64);
    if (Two) _tile_stored(2, dot[s & 1][2], 64);
    if (Two && Panels == 2) _tile_stored(3, dot[s & 1][3], 64);
  }
  add(spans - 1);
}

void tile_any(const Activations& x, int first, int rows, const uint8_t* const* panels, int num_panels, float* y) {
  if (rows > 16) {
    if (num_panels == 2) return tile<true, 2>(x, first, rows, panels, y);
    return tile<true, 1>(x, first, rows, panels, y);
  }
  if (num_panels == 2) return tile<false, 2>(x, first, rows, panels, y);
  return tile<false, 1>(x, first, rows, panels, y);
}

}  // namespace

extern const TileKernel kAmxTile;
const TileKernel kAmxTile{32, tile_any, begin_tiles, end_tiles};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
