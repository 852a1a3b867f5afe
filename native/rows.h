// What is done to one row between products.
#pragma once
#include <cstring>

#include "attention.h"
#include "int8.h"

namespace tenuto {

// See `tenuto_rotate_and_write`.
struct HeadWork {
  int heads;
  const float* cos_sin;
  const float *q_norm, *k_norm;
  float eps, q_scale;
  const int64_t* slots;
};

// Keys and values of one token and KV head to their slot.
inline void write_kv(const AttentionLayer& kv, int kv_head, int64_t slot, const float* key, const float* value) {
  const FloatKernels& k = float_kernels();
  const int64_t block = slot / kBlockTokens;
  const int token = static_cast<int>(slot % kBlockTokens), size = kv.head_size;
  if (!kv.quantised()) {
    auto* keys = kv.keys_of<float>(block, kv_head);
    for (int d = 0; d < size; ++d) keys[d * kBlockTokens + token] = key[d];
    std::memcpy(kv.values_of<float>(block, kv_head) + token * size, value, size * sizeof(float));
    return;
  }
  int8_t bytes[kMaxHeadSize];
  const size_t at = kv.block_at(block, kv_head) * kBlockTokens + token;
  kv.key_scales[at] = k.quantise_head(key, size, bytes);
  auto* keys = kv.keys_of<uint8_t>(block, kv_head) + token * 4;
  for (int d = 0; d < size; d += 4) {
    uint32_t word;
    std::memcpy(&word, bytes + d, 4);
    word ^= 0x80808080u;  // k + 128
    std::memcpy(keys + d * kBlockTokens, &word, 4);
  }
  kv.value_scales[at] = k.quantise_head(value, size, bytes);
  auto* values = kv.values_of<int8_t>(block, kv_head) + token / 4 * 64 + token % 4;
  for (int panel = 0; panel < size; panel += 16)
    for (int f = 0; f < 16; ++f) values[panel * kBlockTokens + f * 4] = bytes[panel + f];
}

// Row r, [heads + 2 kv_heads, head_size]: rotated Q to q [rows, heads, head_size], K and V to their slot.
// Where Q and K will be INT8, each chunk of them is multiplied by the Hadamard matrix too, for the reason that it is in
// quantise.h; heads that are not whole chunks stay as they are.
inline void rotate_and_write_row(const HeadWork& work, const AttentionLayer& kv, int r, const float* row, float* q) {
  const FloatKernels& k = float_kernels();
  const int size = kv.head_size, heads = work.heads;
  const float* cos = work.cos_sin == nullptr ? nullptr : work.cos_sin + static_cast<size_t>(r) * size;
  const int chunks = kv.quantised() && size % kChunk == 0 ? size / kChunk : 0;
  float normed[kMaxHeadSize], turned[kMaxHeadSize];
  auto transform = [&](const float* head, const float* norm, float factor, float* out) {
    if (norm != nullptr) {
      k.rms_norm(head, norm, size, work.eps, normed);
      head = normed;
    }
    if (cos != nullptr) {
      k.rotate(head, cos, cos + size / 2, size, factor, out);
    } else {
      for (int d = 0; d < size; ++d) out[d] = head[d] * factor;
    }
    for (int c = 0; c < chunks; ++c) int8_kernels().rotate(out + c * kChunk, out + c * kChunk);
  };
  for (int h = 0; h < heads; ++h)
    transform(row + h * size, work.q_norm, work.q_scale, q + (static_cast<size_t>(r) * heads + h) * size);
  for (int g = 0; g < kv.kv_heads; ++g) {
    transform(row + (heads + g) * size, work.k_norm, 1.0f, turned);
    write_kv(kv, g, work.slots[r], turned, row + (heads + kv.kv_heads + g) * size);
  }
}

}  // namespace tenuto
