// One layer's keys and values, and the work on them.
#pragma once
#include <cstdint>

#include "instruction_set.h"
#include "kernels.h"

namespace tenuto {

constexpr int kBlockTokens = 16;

struct AttentionLayer {
  float* keys;    // [kv_heads][blocks][head_size][16]
  float* values;  // [kv_heads][blocks][16][head_size]
  int num_blocks;
  int kv_heads;
  int head_size;  // a multiple of 16
  int window;     // 0: none

  float* keys_of(int64_t block, int kv_head) const { return keys + at(block, kv_head); }
  float* values_of(int64_t block, int kv_head) const { return values + at(block, kv_head); }

 private:
  size_t at(int64_t block, int kv_head) const {
    return (static_cast<size_t>(kv_head) * num_blocks + block) * kBlockTokens * head_size;
  }
};

using Attend = void (*)(const AttentionLayer& layer, const float* q, const int64_t* table, int kv_head, int heads,
                        int position, float* out);

// What an instruction set brings; see kernels.h for the operations.
struct FloatKernels {
  Attend attend;
  void (*rms_norm)(const float* x, const float* weight, int size, float eps, float* out);
  void (*add)(const float* x, const float* y, int size, float* out);
  void (*gated)(const float* gate, const float* up, int size, int activation, float* out);
  void (*rotate)(const float* x, const float* cos, const float* sin, int size, float factor, float* out);
};

extern const FloatKernels kPortableFloats;
#if defined(__x86_64__)
extern const FloatKernels kAvx512Floats, kAvx2Floats;
#endif
const FloatKernels& float_kernels();
void use_floats(InstructionSet set);

}  // namespace tenuto
