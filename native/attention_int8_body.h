// Attention over a block table with INT8 KV. Included once for each instruction set, after attention_body.h.
//
// Scores are products of INT8 queries (a scale for each) and INT8 keys. The weights of a split's values, exp(score -
// highest) times the value's scale, are rounded to 255ths of the largest among them, so that their products with the
// values are products of integers too. Both are exact in any order.
#include "attention_body.h"

namespace tenuto {
namespace {

// Blocks lie anywhere: no prefetcher guesses the next one.
inline void fetch(const void* at, int bytes) {
  for (int line = 0; line < bytes; line += 64) __builtin_prefetch(static_cast<const char*>(at) + line);
}

#if defined(TENUTO_AVX512)

inline __m512i four(const void* at) {
  int32_t word;
  std::memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);
}

// dots[h] = sums[h] + key . bytes[h], for the sixteen keys of a block.
template <int Heads>
void key_products(const int8_t* bytes, const int32_t* sums, int size, const uint8_t* keys, I16* dots) {
  __m512i total[Heads];
#pragma GCC unroll 12
  for (int h = 0; h < Heads; ++h) total[h] = _mm512_set1_epi32(sums[h]);
  for (int d = 0; d < size; d += 4) {
    const __m512i k = _mm512_loadu_si512(keys + d * kBlockTokens);
#pragma GCC unroll 12
    for (int h = 0; h < Heads; ++h) total[h] = _mm512_dpbusd_epi32(total[h], k, four(bytes + h * kMaxHeadSize + d));
  }
#pragma GCC unroll 12
  for (int h = 0; h < Heads; ++h) dots[h] = (I16)total[h];
}

// dots[h * 2 + p] += weights[h] . values, for the features of two panels (16 each) and the tokens of a block.
template <int Heads, int Panels>
inline void value_products(const uint8_t* weights, const int8_t* values, I16* dots) {
#pragma GCC unroll 4
  for (int t = 0; t < kBlockTokens; t += 4) {
    __m512i v[Panels];
#pragma GCC unroll 2
    for (int p = 0; p < Panels; ++p) v[p] = _mm512_loadu_si512(values + p * 256 + t * 16);
#pragma GCC unroll 12
    for (int h = 0; h < Heads; ++h) {
      const __m512i w = four(weights + h * kSplit + t);
#pragma GCC unroll 2
      for (int p = 0; p < Panels; ++p)
        dots[h * Panels + p] = (I16)_mm512_dpbusd_epi32((__m512i)dots[h * Panels + p], w, v[p]);
    }
  }
}

#else

template <int Heads>
void key_products(const int8_t* bytes, const int32_t* sums, int size, const uint8_t* keys, I16* dots) {
  for (int h = 0; h < Heads; ++h) {
    int32_t total[kLanes];
    for (int t = 0; t < kLanes; ++t) total[t] = sums[h];
    for (int d = 0; d < size; d += 4)
      for (int t = 0; t < kLanes; ++t)
        for (int k = 0; k < 4; ++k) total[t] += keys[d * kBlockTokens + t * 4 + k] * bytes[h * kMaxHeadSize + d + k];
    std::memcpy(&dots[h], total, sizeof total);
  }
}

template <int Heads, int Panels>
inline void value_products(const uint8_t* weights, const int8_t* values, I16* dots) {
  for (int h = 0; h < Heads; ++h) {
    for (int p = 0; p < Panels; ++p) {
      int32_t total[kLanes] = {};
      for (int t = 0; t < kBlockTokens; t += 4)
        for (int f = 0; f < kLanes; ++f)
          for (int k = 0; k < 4; ++k) total[f] += weights[h * kSplit + t + k] * values[p * 256 + t * 16 + f * 4 + k];
      I16 more;
      std::memcpy(&more, total, sizeof more);
      dots[h * Panels + p] += more;
    }
  }
}

#endif

template <int Heads>
struct AttendInt8 {
  struct Split {
    int begin, stop;                    // blocks
    alignas(64) float scores[Heads * kSplit];
    alignas(64) uint8_t weights[Heads * kSplit];
    float shrinks[Heads], units[Heads];  // what earlier sums, and the products of this split, are multiplied by
  };

  static void score(const AttentionLayer& layer, int kv_head, const int64_t* table, HeadRows& rows, Split& split) {
    V16 top[Heads];
    for (int h = 0; h < Heads; ++h) top[h] = all(kNothing);
    const int bytes = layer.head_size * kBlockTokens;
    for (int block = split.begin; block < split.stop; ++block) {
      if (block + 2 < split.stop) fetch(layer.keys_of<uint8_t>(table[block + 2], kv_head), bytes);
      fetch(layer.values_of<int8_t>(table[block], kv_head), bytes);
      I16 dots[Heads];
      key_products<Heads>(rows.bytes, rows.sums, layer.head_size, layer.keys_of<uint8_t>(table[block], kv_head), dots);
      const V16 scales = load16(layer.key_scales + layer.block_at(table[block], kv_head) * kBlockTokens);
      V16 found[Heads];
#pragma GCC unroll 12
      for (int h = 0; h < Heads; ++h) found[h] = __builtin_convertvector(dots[h], V16) * (scales * rows.scales[h]);
      hide<Heads>(layer, rows.positions, block * kBlockTokens, found);
#pragma GCC unroll 12
      for (int h = 0; h < Heads; ++h) {
        top[h] = max16(top[h], found[h]);
        store16(split.scores + h * kSplit + (block - split.begin) * kBlockTokens, found[h]);
      }
    }
    const int count = (split.stop - split.begin) * kBlockTokens;
    for (int h = 0; h < Heads; ++h)
      split.shrinks[h] =
          soften(split.scores + h * kSplit, count, largest16(top[h]), rows.highest[h], rows.total[h]);
  }

  // Weights with the values' scales, rounded to bytes.
  static void round(const AttentionLayer& layer, int kv_head, const int64_t* table, Split& split) {
    const int blocks = split.stop - split.begin;
    for (int h = 0; h < Heads; ++h) {
      float* scores = split.scores + h * kSplit;
      V16 top = {}, zeros = {};
      for (int b = 0; b < blocks; ++b) {
        const int64_t block = table[split.begin + b];
        const V16 weight = load16(scores + b * kBlockTokens);
        const V16 scaled = weight * load16(layer.value_scales + layer.block_at(block, kv_head) * kBlockTokens);
        // The scale of a token that is not seen was left by others, and may be no number.
        const V16 seen = weight > V16{} ? scaled : V16{};
        top = max16(top, seen);
        zeros += seen * 0.0f;
        store16(scores + b * kBlockTokens, seen);
      }
      const float largest = largest16(top), inverse = largest > 0 ? 255.0f / largest : 0.0f;
      for (int b = 0; b < blocks; ++b)
        store_bytes(split.weights + h * kSplit + b * kBlockTokens, load16(scores + b * kBlockTokens) * inverse);
      split.units[h] = largest / 255.0f + sum16(zeros);  // what is no number stays none
    }
  }

  template <int Panels>
  static void add_panels(const AttentionLayer& layer, int kv_head, const int64_t* table, int panel, const Split& split,
                         HeadRows& rows) {
    I16 dots[Heads * Panels] = {};
    for (int block = split.begin; block < split.stop; ++block)
      value_products<Heads, Panels>(split.weights + (block - split.begin) * kBlockTokens,
                                    layer.values_of<int8_t>(table[block], kv_head) + panel * 256, dots);
#pragma GCC unroll 12
    for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 2
      for (int p = 0; p < Panels; ++p) {
        float* to = rows.out[h] + (panel + p) * kLanes;
        const V16 more = __builtin_convertvector(dots[h * Panels + p], V16) * split.units[h];
        store16(to, load16(to) * split.shrinks[h] + more);
      }
  }

  static void call(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& rows) {
    const int last = rows.positions[Heads - 1], panels = layer.head_size / kLanes;
    Split split;
    for (int s = first; s < end; ++s) {
      split.begin = std::max(s * kSplitBlocks, layer.first_key(rows.positions[0]) / kBlockTokens);
      split.stop = std::min((s + 1) * kSplitBlocks, last / kBlockTokens + 1);
      if (split.begin >= split.stop) continue;
      score(layer, kv_head, table, rows, split);
      round(layer, kv_head, table, split);
      int panel = 0;
      for (; panel + 2 <= panels; panel += 2) add_panels<2>(layer, kv_head, table, panel, split, rows);
      if (panel < panels) add_panels<1>(layer, kv_head, table, panel, split, rows);
    }
  }
};

void attend_int8(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& rows) {
  for_heads<AttendInt8>(rows.count, layer, kv_head, table, first, end, rows);
}

}  // namespace
}  // namespace tenuto
