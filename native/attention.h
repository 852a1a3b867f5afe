// One layer's keys and values, and the work on them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "instruction_set.h"
#include "kernels.h"

namespace tenuto {

constexpr int kBlockTokens = 16;
constexpr int kSplitBlocks = 16;  // keys are taken in splits of so many blocks, counted from position 0
constexpr int kSplit = kSplitBlocks * kBlockTokens;
constexpr int kMaxHeadSize = 1024;
constexpr int kMaxHeads = 16;  // query heads of a tile, which are computed together: K and V are read once for them
constexpr int kMaxTiles = 2;   // that are computed side by side: K and V are prepared once for them

// KV is float32 or INT8; INT8 has a brain float as scale for each token and head, and its own layouts:
//   float32: keys [head_size][16 tokens], values [16 tokens][head_size]: what is summed over is never across lanes;
//   INT8:    keys [head_size / 4][16 tokens][4], as unsigned k + 128, and values [head_size / 16][4][16 features][4
//            tokens], signed: the order in which dot-product instructions want them.
struct AttentionLayer {
  void* keys;              // [kv_heads][blocks][head_size * 16]
  void* values;            // [kv_heads][blocks][16 * head_size]
  uint16_t* key_scales;    // [kv_heads][blocks][16]
  uint16_t* value_scales;  // [kv_heads][blocks][16]
  int num_blocks;
  int kv_heads;
  int head_size;  // a multiple of 16
  int window;     // 0: none

  explicit AttentionLayer(const TenutoLayer& from)
      : keys(from.keys),
        values(from.values),
        key_scales(from.key_scales),
        value_scales(from.value_scales),
        num_blocks(from.num_blocks),
        kv_heads(from.kv_heads),
        head_size(from.head_size),
        window(from.window) {}

  bool quantised() const { return key_scales != nullptr; }
  size_t block_at(int64_t block, int kv_head) const { return static_cast<size_t>(kv_head) * num_blocks + block; }
  template <typename Number>
  Number* keys_of(int64_t block, int kv_head) const {
    return static_cast<Number*>(keys) + block_at(block, kv_head) * kBlockTokens * head_size;
  }
  template <typename Number>
  Number* values_of(int64_t block, int kv_head) const {
    return static_cast<Number*>(values) + block_at(block, kv_head) * kBlockTokens * head_size;
  }
  int first_key(int position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
};

// Some query heads of one KV head, and how far they are: the softmax over keys is computed split by split, with one
// rescaling of the running sum for each (online softmax; Milakov and Gimelshein, 2018).
struct HeadRows {
  int count = 0;
  int positions[kMaxHeads];   // ascending
  float highest[kMaxHeads];   // score so far
  float total[kMaxHeads];     // of exp(score - highest)
  float* out[kMaxHeads];      // [head_size], weighted values so far
  const float* q[kMaxHeads];  // [head_size], scaled; with float KV
  const int8_t* bytes;        // [heads, kMaxHeadSize]; with INT8 KV
  float scales[kMaxHeads];    // of bytes
  int32_t sums[kMaxHeads];    // of bytes, times -128; 0 where products are with k, not k + 128
};

// Take the keys of splits `first` to `end` - 1 into account, for `count` tiles of heads, one after the other in the
// sequence. `table`: the sequence's blocks.
using Attend = void (*)(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end,
                        HeadRows* tiles, int count);

// What an instruction set brings; see kernels.h for the operations.
struct FloatKernels {
  Attend attend;       // over float KV
  Attend attend_int8;  // over INT8 KV
  int int8_tiles;      // that it computes side by side at less cost; at most kMaxTiles
  void (*rms_norm)(const float* x, const float* weight, int size, float eps, float* out);
  void (*add)(const float* x, const float* y, int size, float* out);
  void (*gated)(const float* gate, const float* up, int size, int activation, float* out);
  // Of tiles [rows, kTileWidth], to rows that lie `stride` apart.
  void (*add_tile)(const float* tile, int rows, int width, float* out, size_t stride);
  void (*gated_tile)(const float* tile, int rows, int activation, float* out, size_t stride);  // gates, then ups
  void (*rotate)(const float* x, const float* cos, const float* sin, int size, float factor, float* out);
  uint16_t (*quantise_head)(const float* x, int size, int8_t* out);              // returns the scale
  float (*quantise_query)(const float* x, int size, int8_t* out, int32_t* sum);  // returns the scale
};

extern const FloatKernels kPortableFloats;
#if defined(__x86_64__)
extern const FloatKernels kAmxFloats, kAvx512Floats, kAvx2Floats;
#elif defined(TENUTO_HAS_NEON)
extern const FloatKernels kNeonFloats;
#endif
const FloatKernels& float_kernels();
void use_floats(InstructionSet set);

}  // namespace tenuto
