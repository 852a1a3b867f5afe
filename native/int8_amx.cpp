// Tile products with AMX (`tdpbsud`): 16 rows, 16 outputs and 64 inputs in one instruction.
//
// A tile register holds 16 rows of 64 bytes: 16 rows of activations as they lie, or one chunk of a panel as it lies.
#include "int8.h"

#if defined(TENUTO_HAS_AMX)
#include <algorithm>
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c,amx-tile,amx-int8")
#include "tiles.h"

namespace tenuto {
namespace {

// Loads of tiles wait for each other, and with them for memory, unless what they read is in the cache before.
inline void fetch_chunk(const uint8_t* chunk) {
  for (int line = 0; line < kChunkBytes; line += 64) _mm_prefetch(chunk + line, _MM_HINT_T0);
}

// While tiles are multiplied there is time for the sums of those before.
template <bool First>
void add_rows(TileRest& rest, int count) {
  __m512 weights[kTilePanels];
  for (int p = 0; p < kTilePanels; ++p)
    weights[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(rest.weights[p])));
  const float* scales = rest.scales;
  const int32_t *sums = rest.sums, *dots = rest.dots;
  float* y = rest.y;
  for (int r = 0; r < count; ++r) {
    const __m512i sum = _mm512_set1_epi32(*sums);
    const __m512 scale = _mm512_set1_ps(*scales);
    for (int p = 0; p < kTileWidth; p += kPanel) {
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(dots + p), sum));
      const __m512 by = _mm512_mul_ps(weights[p / kPanel], scale);
      _mm512_store_ps(y + p, First ? _mm512_mul_ps(dot, by) : _mm512_fmadd_ps(dot, by, _mm512_load_ps(y + p)));
    }
    sums += rest.spans, scales += rest.spans, dots += kTileWidth, y += kTileWidth;
  }
  rest.rows -= count, rest.scales = scales, rest.sums = sums, rest.dots = dots, rest.y = y;
}

inline void add(TileRest& rest, int count) {
  count = std::min(count, rest.rows);
  if (count == 0) return;
  rest.first_span ? add_rows<true>(rest, count) : add_rows<false>(rest, count);
}

// Up to 16 rows, or with `Two` up to 32.
template <bool Two>
void tile(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest& rest) {
  const Inputs& inputs = x.inputs;
  const size_t row_bytes = inputs.row_bytes();
  const int8_t* upper = x.values + first * row_bytes;
  const int8_t* lower = upper + kTileRows * row_bytes;
  const uint8_t *left = pair.panels[0], *right = pair.panels[1];
  const uint8_t *next_left = pair.next[0], *next_right = pair.next[1];
  for (int s = 0; s < inputs.spans; ++s) {
    const int at_once = (rest.rows + inputs.span - 1) / inputs.span;
    _tile_zero(0);
    _tile_zero(1);
    if (Two) _tile_zero(2);
    if (Two) _tile_zero(3);
    for (int c = 0; c < inputs.span; ++c) {
      if (next_left != nullptr) {
        fetch_chunk(next_left);
        fetch_chunk(next_right);
        next_left += kChunkBytes, next_right += kChunkBytes;
      }
      _tile_loadd(4, upper, row_bytes);
      _tile_loadd(6, left, 64);
      _tile_dpbsud(0, 4, 6);
      _tile_loadd(7, right, 64);
      _tile_dpbsud(1, 4, 7);
      if (Two) _tile_loadd(5, lower, row_bytes);
      if (Two) _tile_dpbsud(2, 5, 6);
      if (Two) _tile_dpbsud(3, 5, 7);
      upper += kChunk, lower += kChunk, left += kChunkBytes, right += kChunkBytes;
      add(rest, at_once);
    }
    int32_t* dots = s == 0 ? reinterpret_cast<int32_t*>(y) : rest.memory;
    constexpr int kStride = kTileWidth * sizeof(int32_t);
    _tile_stored(0, dots, kStride);
    _tile_stored(1, dots + kPanel, kStride);
    if (Two) _tile_stored(2, dots + kTileRows * kTileWidth, kStride);
    if (Two) _tile_stored(3, dots + kTileRows * kTileWidth + kPanel, kStride);
    const size_t at = static_cast<size_t>(first) * inputs.spans + s;
    rest.rows = rows, rest.first_span = s == 0, rest.spans = inputs.spans;
    for (int p = 0; p < kTilePanels; ++p)
      std::memcpy(rest.weights[p], panel_scales(pair.panels[p], inputs) + s * kPanel, sizeof rest.weights[p]);
    rest.scales = x.scales + at, rest.sums = x.sums + at, rest.dots = dots, rest.y = y;
  }
}

void tile_any(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest& rest) {
  rows > kTileRows ? tile<true>(x, first, rows, pair, y, rest) : tile<false>(x, first, rows, pair, y, rest);
}

void end_products(TileRest& rest) {
  add(rest, rest.rows);
  end_tiles();
}

}  // namespace

extern const TileKernel kAmxTile;
const TileKernel kAmxTile{2 * kTileRows, tile_any, begin_tiles, end_products};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
