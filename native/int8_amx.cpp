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

constexpr int kTileInts = 256;

// Loads of tiles wait for each other, and with them for memory, unless what they read is in the cache before.
inline void fetch_chunk(const uint8_t* chunk) {
  for (int line = 0; line < kChunkBytes; line += 64) _mm_prefetch(chunk + line, _MM_HINT_T0);
}

// What a span's products add to y, some rows at a time, those of both panels.
template <int Panels>
class Sums {
 public:
  Sums(const Activations& x, int first, int rows, const PanelPair& pair, float* y)
      : spans_(x.inputs.spans), rows_(rows), y_(y) {
    const size_t at = static_cast<size_t>(first) * spans_;
    sums_ = x.sums + at, scales_ = x.scales + at;
    for (int p = 0; p < Panels; ++p) halves_[p] = panel_scales(pair.panels[p], x.inputs);
  }

  // dot: a tile for 16 rows of each panel; rows 16 on lie kTileInts * 2 after.
  void begin(int span, const int32_t* dot) {
    span_ = span, row_ = 0, dot_ = dot;
    for (int p = 0; p < Panels; ++p)
      weights_[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves_[p] + span * kPanel)));
  }

  // The next rows, up to `end`.
  void add(int end) {
    end = end < rows_ ? end : rows_;
    for (; row_ < end; ++row_) {
      const int32_t* dot = dot_ + row_ / 16 * 2 * kTileInts + row_ % 16 * 16;
      const size_t at = static_cast<size_t>(row_) * spans_ + span_;
      float* y = y_ + row_ * kTileWidth;
      for (int p = 0; p < Panels; ++p) {
        const __m512i whole = _mm512_add_epi32(_mm512_load_si512(dot + p * kTileInts), _mm512_set1_epi32(sums_[at]));
        const __m512 scale = _mm512_mul_ps(weights_[p], _mm512_set1_ps(scales_[at]));
        const __m512 before = span_ == 0 ? _mm512_setzero_ps() : _mm512_load_ps(y + p * kPanel);
        _mm512_store_ps(y + p * kPanel, _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, before));
      }
    }
  }

 private:
  const int32_t* sums_;
  const float* scales_;
  const uint16_t* halves_[Panels];
  __m512 weights_[Panels];
  const int spans_, rows_;
  int span_ = 0, row_ = 0;
  const int32_t* dot_ = nullptr;
  float* y_;
};

// Up to 16 rows, or with `Two` up to 32.
template <bool Two, int Panels>
void tile(const Activations& x, int first, int rows, const PanelPair& pair, float* y) {
  const Inputs& inputs = x.inputs;
  const size_t row_bytes = inputs.row_bytes();
  const int8_t* upper = x.values + first * row_bytes;
  const int8_t* lower = upper + 16 * row_bytes;
  const uint8_t *left = pair.panels[0], *right = pair.panels[Panels - 1];
  const uint8_t *next_left = pair.next[0], *next_right = pair.next[Panels - 1];
  // Products of a span are stored, and added chunk by chunk while those of the next are computed.
  alignas(64) int32_t dots[2][4 * kTileInts];
  Sums<Panels> sums(x, first, rows, pair, y);
  const int at_once = (rows + inputs.span - 1) / inputs.span;
  for (int s = 0; s < inputs.spans; ++s) {
    _tile_zero(0);
    if (Panels == 2) _tile_zero(1);
    if (Two) _tile_zero(2);
    if (Two && Panels == 2) _tile_zero(3);
    for (int c = 0; c < inputs.span; ++c) {
      if (next_left != nullptr) {
        fetch_chunk(next_left);
        if (Panels == 2) fetch_chunk(next_right);
        next_left += kChunkBytes, next_right += kChunkBytes;
      }
      _tile_loadd(4, upper, row_bytes);
      _tile_loadd(6, left, 64);
      if (Panels == 2) _tile_loadd(7, right, 64);
      if (Two) _tile_loadd(5, lower, row_bytes);
      _tile_dpbsud(0, 4, 6);
      if (Panels == 2) _tile_dpbsud(1, 4, 7);
      if (Two) _tile_dpbsud(2, 5, 6);
      if (Two && Panels == 2) _tile_dpbsud(3, 5, 7);
      upper += kChunk, lower += kChunk, left += kChunkBytes, right += kChunkBytes;
      if (s > 0) sums.add((c + 1) * at_once);
    }
    int32_t* dot = dots[s & 1];
    _tile_stored(0, dot, 64);
    if (Panels == 2) _tile_stored(1, dot + kTileInts, 64);
    if (Two) _tile_stored(2, dot + 2 * kTileInts, 64);
    if (Two && Panels == 2) _tile_stored(3, dot + 3 * kTileInts, 64);
    sums.begin(s, dot);
  }
  sums.add(rows);
}

void tile_any(const Activations& x, int first, int rows, const PanelPair& pair, float* y) {
  if (rows > 16) {
    if (pair.count == 2) return tile<true, 2>(x, first, rows, pair, y);
    return tile<true, 1>(x, first, rows, pair, y);
  }
  if (pair.count == 2) return tile<false, 2>(x, first, rows, pair, y);
  return tile<false, 1>(x, first, rows, pair, y);
}

}  // namespace

extern const TileKernel kAmxTile;
const TileKernel kAmxTile{32, tile_any, begin_tiles, end_tiles};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
