// Attention over a block table with INT8 KV. Included once for each instruction set, after attention_body.h.
//
// Scores are products of INT8 queries (a scale for each) and INT8 keys. The weights of a split's values, exp(score -
// highest) times the value's scale, are rounded to 255ths of the largest among them, so that their products with the
// values are products of integers too. Both are exact in any order.
#include "attention_body.h"
#include "attention_int8_products.h"

namespace tenuto {
namespace {

constexpr int kAhead = 4;  // blocks whose scores are computed together
const I16 kPlaces = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The blocks of a split, and those of the next one.
struct Blocks {
  int count;
  const uint8_t *keys[kSplitBlocks], *next_keys[kSplitBlocks];
  const int8_t *values[kSplitBlocks], *next_values[kSplitBlocks];
};

// Products by vectors: any number of heads and any head size.
struct VectorProducts {
  template <int Heads>
  static void keys(const HeadRows& rows, int size, const Blocks& blocks, int first, int count, bool, I16* dots) {
    constexpr int kTogether = Heads > 8 ? 1 : Heads > 4 ? 2 : 4;  // blocks; as many sums as there are registers
    int b = 0;
    for (; b + kTogether <= count; b += kTogether) {
      const int at = first + b;
      key_products<Heads, kTogether>(rows.bytes, size, blocks.keys + at, blocks.next_keys + at, dots + b * Heads);
    }
    for (; b < count; ++b) {
      const int at = first + b;
      key_products<Heads, 1>(rows.bytes, size, blocks.keys + at, blocks.next_keys + at, dots + b * Heads);
    }
  }

  // weigh(first, count): compute the weights of so many blocks. sink(head, panel, dots).
  template <int Heads, typename Weigh, typename Sink>
  static void values(const uint8_t* weights, int size, const Blocks& blocks, Weigh&& weigh, Sink&& sink) {
    constexpr int kAtOnce = Heads > 12 ? 1 : Heads > 4 ? 2 : 4;  // panels; as many sums as there are registers
    weigh(0, blocks.count);
    const int panels = size / kLanes;
    int panel = 0;
    for (; panel + kAtOnce <= panels; panel += kAtOnce) add<Heads, kAtOnce>(weights, panel, blocks, sink);
    for (; panel < panels; ++panel) add<Heads, 1>(weights, panel, blocks, sink);
  }

 private:
  template <int Heads, int Panels, typename Sink>
  static void add(const uint8_t* weights, int panel, const Blocks& blocks, Sink&& sink) {
    I16 dots[Heads * Panels] = {};
    for (int b = 0; b < blocks.count; ++b)
      value_products<Heads, Panels>(weights + b * kBlockTokens, blocks.values[b] + panel * 256,
                                    blocks.next_values[b] + panel * 256, dots);
#pragma GCC unroll 16
    for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) sink(h, panel + p, dots[h * Panels + p]);
  }
};

// What a split's heads are computed from: where its blocks are, and their scales.
struct Split {
  int begin;  // block of the sequence
  Blocks blocks;
  alignas(64) float key_scales[kSplit], value_scales[kSplit];

  // Blocks from `first` of split s up to that of token `last`; false if there are none. What lies after the last token
  // was left by others, and its scale may be no number: it counts as 0.
  bool find(const AttentionLayer& layer, int kv_head, const int64_t* table, int s, int first, int last) {
    begin = std::max(s * kSplitBlocks, first);
    const int end = std::min((s + 1) * kSplitBlocks, last / kBlockTokens + 1);
    if (begin >= end) return false;
    blocks.count = end - begin;
    for (int b = 0; b < blocks.count; ++b) {
      const int64_t block = table[begin + b], next = table[std::min(end + b, last / kBlockTokens)];
      const size_t at = layer.block_at(block, kv_head) * kBlockTokens;
      const size_t next_at = layer.block_at(next, kv_head) * kBlockTokens;
      blocks.keys[b] = layer.keys_of<uint8_t>(block, kv_head);
      blocks.values[b] = layer.values_of<int8_t>(block, kv_head);
      blocks.next_keys[b] = layer.keys_of<uint8_t>(next, kv_head);
      blocks.next_values[b] = layer.values_of<int8_t>(next, kv_head);
      fetch_line(layer.key_scales + next_at);
      fetch_line(layer.value_scales + next_at);
      store16(key_scales + b * kBlockTokens, load16(layer.key_scales + at));
      store16(value_scales + b * kBlockTokens, load16(layer.value_scales + at));
    }
    for (int t = last + 1 - begin * kBlockTokens; t < blocks.count * kBlockTokens; ++t) value_scales[t] = 0;
    return true;
  }
};

// What is of no more use when a split's weights are known.
template <int Heads>
struct Scores {
  alignas(64) float scores[Heads * kSplit];
  alignas(64) I16 dots[2][kAhead * Heads];
};

// The heads of a tile. `Products` brings the sums of integers, all else is the same for all.
template <int Heads, typename Products>
class AttendInt8 {
 public:
  AttendInt8(const AttentionLayer& layer, HeadRows& rows, const Split& split, Scores<Heads>& work)
      : layer(layer), rows(rows), split(split), blocks(split.blocks), scores(work.scores), dots(work.dots) {}

  static void call(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& rows) {
    Split split;
    Scores<Heads> scores;
    AttendInt8 tile(layer, rows, split, scores);
    for (int s = first; s < end; ++s) {
      if (!split.find(layer, kv_head, table, s, tile.first_block(), tile.last_key())) continue;
      tile.score();
      tile.add_values();
    }
  }

  int first_block() const { return layer.first_key(rows.positions[0]) / kBlockTokens; }
  int last_key() const { return rows.positions[Heads - 1]; }
  const uint8_t* weights_of_split() const { return weights; }

  // Products with the keys, times the keys' scales. While those of some blocks are scaled, a processor that has units
  // for products multiplies the next ones. `ahead`: the keys of the next split are fetched along.
  void score(bool ahead = true) {
    const int first = split.begin * kBlockTokens, end = first + blocks.count * kBlockTokens;
    const bool all_seen = end - 1 <= rows.positions[0] && layer.first_key(rows.positions[Heads - 1]) <= first;
    for (int h = 0; h < Heads; ++h) tops[h] = all(kNothing);
    const auto products = [&](int from, I16* to) {
      const int count = std::min(kAhead, blocks.count - from);
      if (count > 0) Products::template keys<Heads>(rows, layer.head_size, blocks, from, count, ahead, to);
    };
    products(0, dots[0]);
    for (int from = 0; from < blocks.count; from += kAhead) {
      const int which = from / kAhead & 1;
      products(from + kAhead, dots[1 - which]);
      all_seen ? scale<false>(from, dots[which]) : scale<true>(from, dots[which]);
    }
    soften();
  }

  // Weights of `count` blocks in bytes, and zeros up to kAhead blocks.
  void weigh(int first, int count) {
    for (int h = 0; h < Heads; ++h) {
      const float* score = scores + h * kSplit + first * kBlockTokens;
      uint8_t* weight = weights + h * kSplit + first * kBlockTokens;
      const V16 factor = all(steps_of[h]);
      int b = 0;
      for (; b + 4 <= count; b += 4) store_64_bytes(weight + b * kBlockTokens, score + b * kBlockTokens, factor);
      for (; b < count; ++b) store_bytes(weight + b * kBlockTokens, load16(score + b * kBlockTokens) * factor);
      if (b % kAhead != 0) std::memset(weight + b * kBlockTokens, 0, (kAhead - b % kAhead) * kBlockTokens);
    }
  }

  void add_values() {
    const float sound = soundness();
    Products::template values<Heads>(
        weights, layer.head_size, blocks, [&](int first, int count) { weigh(first, count); },
        [&](int h, int panel, I16 sums) { take(h, panel, sums, sound); });
  }

  // 0, or no number if a value's scale is none: 0 times it is none either.
  float soundness() const {
    V16 zeros = {};
    for (int t = 0; t < blocks.count * kBlockTokens; t += kLanes) zeros += load16(split.value_scales + t) * 0.0f;
    return sum16(zeros);
  }

  // Products of the weights with the values, for sixteen features.
  void take(int h, int panel, I16 sums, float sound) {
    float* to = rows.out[h] + panel * kLanes;
    const V16 more = __builtin_convertvector(sums, V16) * (units[h] + sound);
    store16(to, fma16(load16(to), all(shrinks[h]), more));
  }

 private:
  // Where a head must not look is minus infinity.
  template <bool Hide>
  void scale(int from, const I16* products) {
    const int count = std::min(kAhead, blocks.count - from);
    const int32_t* sums = rows.sums;
    V16 top[Heads];  // in registers
#pragma GCC unroll 16
    for (int h = 0; h < Heads; ++h) top[h] = tops[h];
    for (int b = 0; b < count; ++b) {
      const int token = (from + b) * kBlockTokens, position = split.begin * kBlockTokens + token;
      const V16 scales = load16(split.key_scales + token);
#pragma GCC unroll 16
      for (int h = 0; h < Heads; ++h) {
        V16 score = __builtin_convertvector(products[b * Heads + h] + sums[h], V16) * scales;
        if (Hide) {
          const I16 place = kPlaces + position;
          const auto seen = (place >= layer.first_key(rows.positions[h])) & (place <= rows.positions[h]);
          score = seen ? score : all(kNothing);
        }
        top[h] = max16(top[h], score);
        store16(scores + h * kSplit + token, score);
      }
    }
#pragma GCC unroll 16
    for (int h = 0; h < Heads; ++h) tops[h] = top[h];
  }

  // The softmax of each head, times the values' scales. Scores are logarithms to base 2. What a head needs once is
  // computed for all heads together, a lane for each.
  void soften() {
    const int count = blocks.count * kBlockTokens;
    const V16 scaled = load16(rows.scales) * kLog2e, smallest = all(std::numeric_limits<float>::min());
    const V16 unit = scaled < smallest ? smallest : scaled;  // 0 times infinity is none
    const V16 before = load16(rows.highest), here = largest_each16<Heads>(tops) * unit;
    const V16 now = before < here ? here : before;
    // A window that begins in a later split.
    const auto nothing = now == all(kNothing);
    const V16 shift = nothing ? V16{} : -now;

    V16 sums[kLanes], largest[kLanes];
    const float* value_scales = split.value_scales;  // where no store reaches
    for (int h = 0; h < Heads; ++h) {
      float* score = scores + h * kSplit;
      const V16 factor = all(unit[h]), offset = all(shift[h]);
      V16 sum = {}, most = {};
#pragma GCC unroll 2
      for (int t = 0; t < count; t += kLanes) {
        const V16 share = exp2_16(fma16(load16(score + t), factor, offset));
        const V16 weighed = share * load16(value_scales + t);
        sum += share;
        most = max16(most, weighed);
        store16(score + t, weighed);
      }
      sums[h] = sum, largest[h] = most;
    }
    const V16 most = largest_each16<Heads>(largest);
    const V16 shrink = nothing ? all(1.0f) : exp2_16(before - now);
    store16(shrinks, shrink);
    store16(steps_of, steps(255.0f, most));
    store16(units, most / 255.0f);
    store16(rows.total, load16(rows.total) * shrink + sum_each16<Heads>(sums));
    store16(rows.highest, now);
  }

  const AttentionLayer& layer;
  HeadRows& rows;
  const Split& split;
  const Blocks& blocks;
  float* scores;                // [Heads, kSplit]
  I16 (&dots)[2][kAhead * Heads];
  alignas(64) uint8_t weights[Heads * kSplit];
  V16 tops[kLanes];  // each head's largest scores of the split, lane by lane
  // What earlier sums, the weights, and the products of this split, are multiplied by.
  alignas(64) float shrinks[kLanes], steps_of[kLanes], units[kLanes];
};

template <int Heads>
using AttendByVectors = AttendInt8<Heads, VectorProducts>;

void attend_int8(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows* tiles,
                 int count) {
  for (int i = 0; i < count; ++i)
    for_heads<AttendByVectors>(tiles[i].count, layer, kv_head, table, first, end, tiles[i]);
}

}  // namespace
}  // namespace tenuto
