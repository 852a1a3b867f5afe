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

constexpr int kTileHeads = kTileRows;
constexpr int kFewHeads = 6;

// The first four registers are sums.
inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

struct TileProducts {
  template <int Heads>
  static void keys(const HeadRows& rows, int size, const Blocks& of, int first, int count, bool ahead, I16* dots) {
    const uint8_t* const* blocks = of.keys + first;
    for (int b = 0; ahead && b < count; ++b) fetch(of.next_keys[first + b], size * kBlockTokens);
    static_assert(Heads == kTileHeads, "a tile's rows");
    zero_sums();
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

  template <int Heads, typename Weigh, typename Sink>
  static void values(const uint8_t* weights, int size, const Blocks& blocks, Weigh&& weigh, Sink&& sink) {
    static_assert(Heads == kTileHeads, "a tile's rows");
    const uint8_t* const tiles[] = {weights};
    values_of<1>(tiles, size, blocks, weigh, [&](int, int h, int panel, I16 dots) { sink(h, panel, dots); });
  }

  // The same for the heads of one or two tiles; sink(tile, head, panel, dots).
  //
  // Of 64 tokens at a time: what four blocks have for some panels is gathered, so that it fills tiles.
  template <int Tiles, typename Weigh, typename Sink>
  static void values_of(const uint8_t* const (&weights)[Tiles], int size, const Blocks& blocks, Weigh&& weigh,
                        Sink&& sink) {
    constexpr int kPanels = 4 / Tiles;
    alignas(64) I16 dots[4][kTileHeads];
    Gathered<kPanels> gathered(blocks);
    for (int panel = 0; panel < size / kLanes; panel += kPanels) {
      zero_sums();
      const auto prepare = [&](int first) {
        if (panel == 0 && first < blocks.count) weigh(first, std::min(kAhead, blocks.count - first));
        gathered.fill(first, panel);
      };
      // What was just written is not yet where tiles are loaded from: the next tokens are prepared first.
      prepare(0);
      for (int first = 0; first < blocks.count; first += kAhead) {
        prepare(first + kAhead);
        const int8_t* tiles = gathered.at(first);
        _tile_loadd(4, weights[0] + first * kBlockTokens, kSplit);
        if constexpr (Tiles == 1) {
          _tile_loadd(5, tiles, 64);
          _tile_loadd(6, tiles + 1024, 64);
          _tile_loadd(7, tiles + 2048, 64);
          _tile_dpbusd(0, 4, 5);
          _tile_loadd(5, tiles + 3072, 64);
          _tile_dpbusd(1, 4, 6);
          _tile_dpbusd(2, 4, 7);
          _tile_dpbusd(3, 4, 5);
        } else {
          _tile_loadd(6, tiles, 64);
          _tile_loadd(7, tiles + 1024, 64);
          _tile_loadd(5, weights[1] + first * kBlockTokens, kSplit);
          _tile_dpbusd(0, 4, 6);
          _tile_dpbusd(1, 4, 7);
          _tile_dpbusd(2, 5, 6);
          _tile_dpbusd(3, 5, 7);
        }
      }
      _tile_stored(0, dots[0], 64);
      _tile_stored(1, dots[1], 64);
      _tile_stored(2, dots[2], 64);
      _tile_stored(3, dots[3], 64);
      for (int i = 0; i < 4; ++i)
        for (int h = 0; h < kTileHeads; ++h) sink(i / kPanels, h, panel + i % kPanels, dots[i][h]);
    }
  }

 private:
  // Values of four blocks for some panels as tiles: rows 4 (b mod 4) .. of each are block b's. Weights of blocks that
  // are not there are 0.
  template <int Panels>
  class Gathered {
   public:
    explicit Gathered(const Blocks& blocks) : blocks_(blocks) {}

    const int8_t* at(int first) const { return tiles_[first / kAhead & 1]; }

    void fill(int first, int panel) {
      const int end = std::min(first + kAhead, blocks_.count);
      for (int b = first; b < end; ++b) {
        const int8_t* from = blocks_.values[b] + panel * 256;
        int8_t* to = tiles_[first / kAhead & 1] + b % kAhead * 256;
        fetch(blocks_.next_values[b] + panel * 256, Panels * 256);
#pragma GCC unroll 4
        for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 4
          for (int line = 0; line < 4; ++line)
            _mm512_store_si512(to + p * 1024 + line * 64, _mm512_loadu_si512(from + p * 256 + line * 64));
      }
    }

   private:
    const Blocks& blocks_;
    alignas(64) int8_t tiles_[2][Panels * 1024];
  };
};

using Tile = AttendInt8<kTileHeads, TileProducts>;

// Two tiles, the lower one's heads later in the sequence: blocks are found, fetched and gathered once for both.
void attend_two(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows* tiles) {
  Split split;
  Scores<kTileHeads> scores;
  Tile upper(layer, tiles[0], split, scores), lower(layer, tiles[1], split, scores);
  for (int s = first; s < end; ++s) {
    if (!split.find(layer, kv_head, table, s, upper.first_block(), lower.last_key())) continue;
    if (split.begin * kBlockTokens > upper.last_key()) {
      lower.score();
      lower.add_values();
      continue;
    }
    upper.score();
    upper.weigh(0, split.blocks.count);
    lower.score(false);
    lower.weigh(0, split.blocks.count);
    const float sound = upper.soundness();
    const uint8_t* const weights[] = {upper.weights_of_split(), lower.weights_of_split()};
    TileProducts::values_of<2>(
        weights, layer.head_size, split.blocks, [](int, int) {},  // they are known
        [&](int tile, int h, int panel, I16 sums) { (tile == 0 ? upper : lower).take(h, panel, sums, sound); });
  }
}

void attend_tiles(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows* tiles,
                  int count) {
  if (tiles[0].count <= kFewHeads || layer.head_size % 64 != 0)
    return attend_int8(layer, kv_head, table, first, end, tiles, count);
  begin_tiles(kTileHeads);
  if (count == 2 && tiles[1].count > kFewHeads) {
    attend_two(layer, kv_head, table, first, end, tiles);
  } else {
    Tile::call(layer, kv_head, table, first, end, tiles[0]);
  }
  end_tiles();
  if (count == 2 && tiles[1].count <= kFewHeads)
    attend_int8(layer, kv_head, table, first, end, tiles + 1, 1);
}

}  // namespace

extern const FloatKernels kAmxFloats;
const FloatKernels kAmxFloats{
    attend_float, attend_tiles, kMaxTiles, rms_norm_row, add_row, gated_row,
    add_tile,     gated_tile,   rotate_head,   quantise_head, quantise_query};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
