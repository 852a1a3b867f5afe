// Attention over block tables. Included once for each instruction set.
//
// K of a block lies as [head size][16 tokens], V as [16 tokens][head size]: scores are then computed for sixteen
// tokens at a time and outputs for sixteen features, without a sum across lanes.
//
// Keys are taken in splits of 256 tokens counted from position 0, each with one rescaling of the running sum (online
// softmax; Milakov and Gimelshein, 2018). A query's result depends on its own position and keys alone.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.h"
#include "vector16.h"

namespace tenuto {
namespace {

constexpr int kSplitBlocks = 16;

template <int Heads, typename Number>
void scores_of_block(const float* q, int size, const Number* keys, V16* out) {
  V16 total[Heads] = {};
  for (int d = 0; d < size; ++d) {
    const V16 k = load16(keys + d * kBlockTokens);
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) total[h] += k * q[h * size + d];
  }
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h) out[h] = total[h];
}

template <int Heads, typename Number>
void add_values(const float* weights, int stride, int size, const Number* values, float* out) {
  for (int d = 0; d < size; d += kLanes) {
    V16 total[Heads];
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) total[h] = load16(out + h * size + d);
#pragma GCC unroll 4
    for (int t = 0; t < kBlockTokens; ++t) {
      const V16 v = load16(values + t * size + d);
#pragma GCC unroll 8
      for (int h = 0; h < Heads; ++h) total[h] += v * weights[h * stride + t];
    }
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) store16(out + h * size + d, total[h]);
  }
}

// `Heads` query heads of one KV head, each with its own position: the heads of one token, or of several in a row. q is
// scaled already; q and out: [Heads, size]. What a head may not see weighs exactly nothing, so company changes no bit.
template <int Heads, typename Number>
void attend(const AttentionLayer& layer, const float* q, const int64_t* table, int kv_head, const int* positions,
            float* out) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  constexpr int kSplit = kSplitBlocks * kBlockTokens;
  const int size = layer.head_size, last = positions[Heads - 1];
  int firsts[Heads];
  float highest[Heads], total[Heads];
  for (int h = 0; h < Heads; ++h) {
    firsts[h] = layer.window > 0 ? std::max(0, positions[h] - layer.window + 1) : 0;
    highest[h] = kNothing;
    total[h] = 0;
  }
  std::fill(out, out + Heads * size, 0.0f);
  alignas(64) float scores[Heads * kSplit];
  for (int split = firsts[0] / kSplit; split * kSplit <= last; ++split) {
    const int begin = std::max(split * kSplitBlocks, firsts[0] / kBlockTokens);
    const int end = std::min((split + 1) * kSplitBlocks, last / kBlockTokens + 1);
    V16 top[Heads];
    for (int h = 0; h < Heads; ++h) top[h] = all(kNothing);
    for (int block = begin; block < end; ++block) {
      V16 found[Heads];
      scores_of_block<Heads>(q, size, layer.keys_of<Number>(table[block], kv_head), found);
      if (layer.quantised()) {
        const V16 scales = load16(layer.key_scales + layer.block_at(table[block], kv_head) * kBlockTokens);
        for (int h = 0; h < Heads; ++h) found[h] *= scales;
      }
      const int base = block * kBlockTokens;
      const bool whole = base >= firsts[Heads - 1] && base + kBlockTokens - 1 <= positions[0];
      for (int h = 0; h < Heads; ++h) {
        if (!whole)
          for (int t = 0; t < kBlockTokens; ++t)
            if (base + t < firsts[h] || base + t > positions[h]) found[h][t] = kNothing;
        top[h] = max16(top[h], found[h]);
        store16(scores + h * kSplit + (block - begin) * kBlockTokens, found[h]);
      }
    }
    const int count = (end - begin) * kBlockTokens;
    for (int h = 0; h < Heads; ++h) {
      const float now = std::max(highest[h], largest16(top[h]));
      if (now == kNothing) {  // a window that begins in a later split
        std::fill(scores + h * kSplit, scores + h * kSplit + count, 0.0f);
        continue;
      }
      const float shrink = exp16(all(highest[h] - now))[0];
      V16 sum = {};
      for (int t = 0; t < count; t += kLanes) {
        const V16 weight = exp16(load16(scores + h * kSplit + t) - now);
        store16(scores + h * kSplit + t, weight);
        sum += weight;
      }
      total[h] = total[h] * shrink + sum16(sum);
      if (shrink != 1)
        for (int d = 0; d < size; ++d) out[h * size + d] *= shrink;
      highest[h] = now;
    }
    for (int block = begin; block < end; ++block) {
      float* weights = scores + (block - begin) * kBlockTokens;
      if (layer.quantised()) {
        const V16 scales = load16(layer.value_scales + layer.block_at(table[block], kv_head) * kBlockTokens);
        for (int h = 0; h < Heads; ++h) store16(weights + h * kSplit, load16(weights + h * kSplit) * scales);
      }
      add_values<Heads>(weights, kSplit, size, layer.values_of<Number>(table[block], kv_head), out);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int d = 0; d < size; ++d) out[h * size + d] /= total[h];
}

template <int Heads>
void attend_heads(const AttentionLayer& layer, const float* q, const int64_t* table, int kv_head, const int* positions,
                  float* out) {
  if (layer.quantised()) return attend<Heads, int8_t>(layer, q, table, kv_head, positions, out);
  return attend<Heads, float>(layer, q, table, kv_head, positions, out);
}

void attend_any(const AttentionLayer& layer, const float* q, const int64_t* table, int kv_head, int heads,
                const int* positions, float* out) {
  switch (heads) {
    case 1: return attend_heads<1>(layer, q, table, kv_head, positions, out);
    case 2: return attend_heads<2>(layer, q, table, kv_head, positions, out);
    case 3: return attend_heads<3>(layer, q, table, kv_head, positions, out);
    case 4: return attend_heads<4>(layer, q, table, kv_head, positions, out);
    case 5: return attend_heads<5>(layer, q, table, kv_head, positions, out);
    case 6: return attend_heads<6>(layer, q, table, kv_head, positions, out);
    case 7: return attend_heads<7>(layer, q, table, kv_head, positions, out);
    default: return attend_heads<8>(layer, q, table, kv_head, positions, out);
  }
}

}  // namespace
}  // namespace tenuto
