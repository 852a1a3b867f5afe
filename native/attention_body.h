// Attention over a block table with float KV. Included once for each instruction set.
//
// A query's result depends on its own position and keys alone: what it may not see weighs exactly nothing.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.h"
#include "vector16.h"

namespace tenuto {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Call f with the number of heads as a constant: rounded up to the next that there is; the extra ones are copies.
template <template <int> class Function, typename... Arguments>
void for_heads(int heads, Arguments&&... arguments) {
  if (heads <= 1) return Function<1>::call(arguments...);
  if (heads <= 2) return Function<2>::call(arguments...);
  if (heads <= 3) return Function<3>::call(arguments...);
  if (heads <= 4) return Function<4>::call(arguments...);
  if (heads <= 6) return Function<6>::call(arguments...);
  if (heads <= 8) return Function<8>::call(arguments...);
  if (heads <= 12) return Function<12>::call(arguments...);
  return Function<16>::call(arguments...);
}

// Put minus infinity where a head must not look. scores: [Heads, kSplit], of blocks `begin` to `stop` - 1.
template <int Heads>
void hide(const AttentionLayer& layer, const int* positions, int begin, int stop, float* scores) {
  const int first = layer.first_key(positions[Heads - 1]);
  for (int block = begin; block < stop; ++block, scores += kBlockTokens) {
    const int base = block * kBlockTokens;
    if (base >= first && base + kBlockTokens - 1 <= positions[0]) continue;
    for (int h = 0; h < Heads; ++h) {
      const int from = layer.first_key(positions[h]);
      for (int t = 0; t < kBlockTokens; ++t)
        if (base + t < from || base + t > positions[h]) scores[h * kSplit + t] = kNothing;
    }
  }
}

inline float largest_of(const float* scores, int count) {
  V16 top = load16(scores);
  for (int t = kLanes; t < count; t += kLanes) top = max16(top, load16(scores + t));
  return largest16(top);
}

// The softmax of a split: scores [count] become exp(score - highest); returns what earlier sums are multiplied by.
inline float soften(float* scores, int count, float& highest, float& total) {
  const float now = std::max(highest, largest_of(scores, count));
  if (now == kNothing) {  // a window that begins in a later split
    std::fill(scores, scores + count, 0.0f);
    return 1;
  }
  const float shrink = exp16(all(highest - now))[0];
  V16 sum = {};
  for (int t = 0; t < count; t += kLanes) {
    const V16 weight = exp16(load16(scores + t) - now);
    store16(scores + t, weight);
    sum += weight;
  }
  total = total * shrink + sum16(sum);
  highest = now;
  return shrink;
}

template <int Heads>
struct AttendFloat {
  // scores: [Heads, kSplit].
  static void score_block(const float* const* q, int size, const float* keys, float* scores) {
    V16 total[Heads] = {};
    for (int d = 0; d < size; ++d) {
      const V16 k = load16(keys + d * kBlockTokens);
#pragma GCC unroll 16
      for (int h = 0; h < Heads; ++h) total[h] = fma16(k, all(q[h][d]), total[h]);
    }
#pragma GCC unroll 16
    for (int h = 0; h < Heads; ++h) store16(scores + h * kSplit, total[h]);
  }

  // Of `tokens` values: what lies after the last token was left by others and may be no number.
  static void add_values(const float* weights, int tokens, int size, const float* values, float* const* out) {
    for (int d = 0; d < size; d += kLanes) {
      V16 total[Heads];
#pragma GCC unroll 16
      for (int h = 0; h < Heads; ++h) total[h] = load16(out[h] + d);
      for (int t = 0; t < tokens; ++t) {
        const V16 v = load16(values + t * size + d);
#pragma GCC unroll 16
        for (int h = 0; h < Heads; ++h) total[h] = fma16(v, all(weights[h * kSplit + t]), total[h]);
      }
#pragma GCC unroll 16
      for (int h = 0; h < Heads; ++h) store16(out[h] + d, total[h]);
    }
  }

  static void call(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& rows) {
    const int size = layer.head_size, last = rows.positions[Heads - 1];
    alignas(64) float scores[Heads * kSplit];
    for (int split = first; split < end; ++split) {
      const int begin = std::max(split * kSplitBlocks, layer.first_key(rows.positions[0]) / kBlockTokens);
      const int stop = std::min((split + 1) * kSplitBlocks, last / kBlockTokens + 1);
      if (begin >= stop) continue;
      for (int block = begin; block < stop; ++block)
        score_block(rows.q, size, layer.keys_of<float>(table[block], kv_head), scores + (block - begin) * kBlockTokens);
      hide<Heads>(layer, rows.positions, begin, stop, scores);
      const int count = (stop - begin) * kBlockTokens;
      for (int h = 0; h < Heads; ++h) {
        const float shrink = soften(scores + h * kSplit, count, rows.highest[h], rows.total[h]);
        if (shrink != 1)
          for (int d = 0; d < size; ++d) rows.out[h][d] *= shrink;
      }
      for (int block = begin; block < stop; ++block) {
        const int tokens = std::min(kBlockTokens, last + 1 - block * kBlockTokens);
        add_values(scores + (block - begin) * kBlockTokens, tokens, size, layer.values_of<float>(table[block], kv_head),
                   rows.out);
      }
    }
  }
};

void attend_float(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows* tiles,
                  int count) {
  for (int i = 0; i < count; ++i)
    for_heads<AttendFloat>(tiles[i].count, layer, kv_head, table, first, end, tiles[i]);
}

}  // namespace
}  // namespace tenuto
