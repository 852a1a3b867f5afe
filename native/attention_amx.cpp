// INT8 attention of many heads with AMX: products of sixteen heads with sixteen keys, or with sixteen features of 64
// values, in one instruction. Few heads, and head sizes that are not whole chunks of 64, go by vectors.
#include "instruction_set.h"

#if defined(TENUTO_HAS_AMX)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,amx-tile,amx-int8")
#define TENUTO_AVX512
#include "attention_int8_body.h"
#include "floats_body.h"
#include "tiles.h"

namespace tenuto {
namespace {

constexpr int kTileHeads = 16;
constexpr int kFewHeads = 6;

// Registers: four of sums, one of queries and one of keys, one of the weights and one of the values of sixteen tokens.
alignas(64) const uint8_t kAttentionTiles[64] = {
    1,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0, 0,  0,                            // palette, first row
    64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 16, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0,    // bytes of a row
    0,  0, 0,  0, 0,  0, 0,  0, 16, 16, 16, 16, 16, 16, 16, 4, 0, 0, 0, 0, 0, 0, 0, 0};  // rows

struct TileProducts {
  template <int Heads>
  static void keys(const HeadRows& rows, int size, const Blocks& of, int first, int count, I16* dots) {
    const uint8_t* const* blocks = of.keys + first;
    for (int b = 0; b < count; ++b) fetch(of.next_keys[first + b], size * kBlockTokens);
    static_assert(Heads == kTileHeads, "a tile's rows");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int d = 0; d < size; d += 64) {
      _tile_loadd(4, rows.bytes + d, kMaxHeadSize);
      _tile_loadd(5, blocks[0] + d * kBlockTokens, 64);
      _tile_dpbsud(0, 4, 5);
      if (count > 1) {
        _tile_loadd(5, blocks[1] + d * kBlockTokens, 64);
        _tile_dpbsud(1, 4, 5);
      }
      if (count > 2) {
        _tile_loadd(5, blocks[2] + d * kBlockTokens, 64);
        _tile_dpbsud(2, 4, 5);
      }
      if (count > 3) {
        _tile_loadd(5, blocks[3] + d * kBlockTokens, 64);
        _tile_dpbsud(3, 4, 5);
      }
    }
    _tile_stored(0, dots, 64);
    if (count > 1) _tile_stored(1, dots + kTileHeads, 64);
    if (count > 2) _tile_stored(2, dots + 2 * kTileHeads, 64);
    if (count > 3) _tile_stored(3, dots + 3 * kTileHeads, 64);
  }

  // Sixteen tokens at a time, as they lie in a block: a quarter of what a tile can hold, but nothing is moved.
  template <int Heads, typename Sink>
  static void values(const uint8_t* weights, int size, const Blocks& blocks, Sink&& sink) {
    static_assert(Heads == kTileHeads, "a tile's rows");
    alignas(64) I16 dots[4][kTileHeads];
    for (int panel = 0; panel < size / kLanes; panel += 4) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int b = 0; b < blocks.count; ++b) {
        const int8_t* from = blocks.values[b] + panel * 256;
        fetch(blocks.next_values[b] + panel * 256, 1024);
        _tile_loadd(6, weights + b * kBlockTokens, kSplit);
        _tile_loadd(7, from, 64);
        _tile_dpbusd(0, 6, 7);
        _tile_loadd(7, from + 256, 64);
        _tile_dpbusd(1, 6, 7);
        _tile_loadd(7, from + 512, 64);
        _tile_dpbusd(2, 6, 7);
        _tile_loadd(7, from + 768, 64);
        _tile_dpbusd(3, 6, 7);
      }
      _tile_stored(0, dots[0], 64);
      _tile_stored(1, dots[1], 64);
      _tile_stored(2, dots[2], 64);
      _tile_stored(3, dots[3], 64);
      for (int p = 0; p < 4; ++p)
        for (int h = 0; h < kTileHeads; ++h) sink(h, panel + p, dots[p][h]);
    }
  }
};

void attend_tiles(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& rows) {
  if (rows.count <= kFewHeads || layer.head_size % 64 != 0)
    return attend_int8(layer, kv_head, table, first, end, rows);
  _tile_loadconfig(kAttentionTiles);
  AttendInt8<kTileHeads, TileProducts>::call(layer, kv_head, table, first, end, rows);
  end_tiles();
}

}  // namespace

extern const FloatKernels kAmxFloats;
const FloatKernels kAmxFloats{
    attend_float, attend_tiles, rms_norm_row,  add_row,       gated_row,
    add_tile,     gated_tile,   rotate_head,   quantise_head, quantise_query};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
