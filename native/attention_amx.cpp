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
constexpr int kTileTokens = 64;
constexpr int kFewHeads = 6;

struct TileProducts {
  template <int Heads>
  static void keys(const HeadRows& rows, int size, const uint8_t* const* blocks, int count, I16* dots) {
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
        _tile_loadd(6, blocks[1] + d * kBlockTokens, 64);
        _tile_dpbsud(1, 4, 6);
      }
      if (count > 2) {
        _tile_loadd(7, blocks[2] + d * kBlockTokens, 64);
        _tile_dpbsud(2, 4, 7);
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

  template <int Heads, typename Sink>
  static void values(const uint8_t* weights, int size, const int8_t* const* blocks, int count, Sink&& sink) {
    static_assert(Heads == kTileHeads, "a tile's rows");
    alignas(64) int8_t staged[4][kTileTokens * kLanes];  // of each panel, 64 values side by side
    alignas(64) I16 dots[4][kTileHeads];
    for (int panel = 0; panel < size / kLanes; panel += 4) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int first = 0; first < count; first += 4) {
        for (int b = 0; b < 4; ++b) {
          // Weights of blocks that there are not are 0.
          const int8_t* from = blocks[std::min(first + b, count - 1)] + panel * 256;
          for (int p = 0; p < 4; ++p)
            for (int line = 0; line < 256; line += 64)
              _mm512_store_si512(staged[p] + b * 256 + line, _mm512_loadu_si512(from + p * 256 + line));
        }
        _tile_loadd(4, weights + first * kBlockTokens, kSplit);
        _tile_loadd(5, staged[0], 64);
        _tile_dpbusd(0, 4, 5);
        _tile_loadd(6, staged[1], 64);
        _tile_dpbusd(1, 4, 6);
        _tile_loadd(7, staged[2], 64);
        _tile_dpbusd(2, 4, 7);
        _tile_loadd(5, staged[3], 64);
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
