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
      const auto key = [&](int b) { return blocks[b] + d * kBlockTokens; };
      if (first == 0 || size > 64) _tile_loadd(4, rows.bytes + d, kMaxHeadSize);  // else it is still there
      _tile_loadd(5, key(0), 64);
      if (count > 1) _tile_loadd(6, key(1), 64);
      if (count > 2) _tile_loadd(7, key(2), 64);
      _tile_dpbsud(0, 4, 5);
      if (count > 3) _tile_loadd(5, key(3), 64);
      if (count > 1) _tile_dpbsud(1, 4, 6);
      if (count > 2) _tile_dpbsud(2, 4, 7);
      if (count > 3) _tile_dpbsud(3, 4, 5);
    }
    _tile_stored(0, dots, 64);
    if (count > 1) _tile_stored(1, dots + kTileHeads, 64);
    if (count > 2) _tile_stored(2, dots + 2 * kTileHeads, 64);
    if (count > 3) _tile_stored(3, dots + 3 * kTileHeads, 64);
  }

  // Of 64 tokens at a time: what four blocks have for four panels is gathered, so that it fills tiles.
  template <int Heads, typename Weigh, typename Sink>
  static void values(const uint8_t* weights, int size, const Blocks& blocks, Weigh&& weigh, Sink&& sink) {
    static_assert(Heads == kTileHeads, "a tile's rows");
    alignas(64) I16 dots[4][kTileHeads];
    alignas(64) int8_t gathered[2][4096];
    for (int panel = 0; panel < size / kLanes; panel += 4) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      const auto prepare = [&](int first) {
        const int count = std::min(kAhead, blocks.count - first);
        if (panel == 0 && count > 0) weigh(first, count);
        for (int b = first; b < first + count; ++b) gather(blocks, b, panel, gathered[first / kAhead & 1]);
      };
      // What was just written is not yet where tiles are loaded from: the next tokens are prepared first.
      prepare(0);
      for (int first = 0; first < blocks.count; first += kAhead) {
        prepare(first + kAhead);
        const int8_t* tiles = gathered[first / kAhead & 1];
        _tile_loadd(4, weights + first * kBlockTokens, kSplit);
        _tile_loadd(5, tiles, 64);
        _tile_loadd(6, tiles + 1024, 64);
        _tile_loadd(7, tiles + 2048, 64);
        _tile_dpbusd(0, 4, 5);
        _tile_loadd(5, tiles + 3072, 64);
        _tile_dpbusd(1, 4, 6);
        _tile_dpbusd(2, 4, 7);
        _tile_dpbusd(3, 4, 5);
      }
      _tile_stored(0, dots[0], 64);
      _tile_stored(1, dots[1], 64);
      _tile_stored(2, dots[2], 64);
      _tile_stored(3, dots[3], 64);
      for (int p = 0; p < 4; ++p)
        for (int h = 0; h < kTileHeads; ++h) sink(h, panel + p, dots[p][h]);
    }
  }

 private:
  // Four panels of block b: rows 4 (b mod 4) .. of four tiles. Weights of blocks that are not there are 0.
  static void gather(const Blocks& blocks, int b, int panel, int8_t* tiles) {
    const int8_t* from = blocks.values[b] + panel * 256;
    int8_t* to = tiles + b % kAhead * 256;
    fetch(blocks.next_values[b] + panel * 256, 1024);
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p)
#pragma GCC unroll 4
      for (int line = 0; line < 4; ++line)
        _mm512_store_si512(to + p * 1024 + line * 64, _mm512_loadu_si512(from + p * 256 + line * 64));
  }
};

void attend_tiles(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& rows) {
  if (rows.count <= kFewHeads || layer.head_size % 64 != 0)
    return attend_int8(layer, kv_head, table, first, end, rows);
  begin_tiles();
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
