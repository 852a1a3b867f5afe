// One layer's keys and values, and the work on them.
#pragma once
#include <cstdint>

#include "instruction_set.h"
#include "kernels.h"

namespace tenuto {

constexpr int kBlockTokens = 16;

// KV is float32, or INT8 with a brain float as scale for each token and head: then the scales are not null.
struct AttentionLayer {
  void* keys;              // [kv_heads][blocks][head_size][16]
  void* values;            // [kv_heads][blocks][16][head_size]
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
};

constexpr int kMaxHeads = 8;  // query heads computed together, so that K and V are read once for them

// See attention_body.h; positions ascend.
using Attend = void (*)(const AttentionLayer& layer, const float* q, const int64_t* table, int kv_head, int heads,
                        const int* positions, float* out);

// What an instruction set brings; see kernels.h for the operations.
struct FloatKernels {
  Attend attend;
  void (*rms_norm)(const float* x, const float* weight, int size, float eps, float* out);
  void (*add)(const float* x, const float* y, int size, float* out);
  void (*gated)(const float* gate, const float* up, int size, int activation, float* out);
  uint16_t (*quantise_head)(const float* x, int size, int8_t* out);  // returns the scale
  void (*rotate)(const float* x, const float* cos, const float* sin, int size, float factor, float* out);
};

extern const FloatKernels kPortableFloats;
#if defined(__x86_64__)
extern const FloatKernels kAvx512Floats, kAvx2Floats;
#endif
const FloatKernels& float_kernels();
void use_floats(InstructionSet set);

}  // namespace tenuto
