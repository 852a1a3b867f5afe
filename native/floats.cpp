// The operations on floats: which rows go to which thread.
#include <algorithm>
#include <cstring>

#include "attention.h"
#include "thread_pool.h"

namespace tenuto {

namespace {
const FloatKernels* float_kernels_of(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::avx512_vnni: return &kAvx512Floats;
    case InstructionSet::avx2: return &kAvx2Floats;
#endif
    default: return &kPortableFloats;
  }
}

const FloatKernels* chosen = float_kernels_of(best_instruction_set());
}  // namespace

const FloatKernels& float_kernels() { return *chosen; }
void use_floats(InstructionSet set) { chosen = float_kernels_of(set); }

namespace {

// Rows by the thread: few enough tasks that a decode step wakes nobody for a few microseconds of work.
template <typename Row>
void each_row(TenutoPool* pool, int rows, int bytes_per_row, Row row) {
  const int at_once = std::max(1, (1 << 16) / std::max(1, bytes_per_row));
  pool->run((rows + at_once - 1) / at_once, [&](int task) {
    for (int r = task * at_once; r < std::min(rows, (task + 1) * at_once); ++r) row(r);
  });
}

}  // namespace
}  // namespace tenuto

using namespace tenuto;

TENUTO_API void tenuto_rms_norm(TenutoPool* pool, const float* x, const float* residual, const float* weight, int rows,
                                int size, float eps, float* out, float* total) {
  const FloatKernels& k = float_kernels();
  each_row(pool, rows, size * 16, [&](int r) {
    const size_t at = static_cast<size_t>(r) * size;
    const float* row = x + at;
    if (residual != nullptr) {
      k.add(row, residual + at, size, total + at);
      row = total + at;
    }
    k.rms_norm(row, weight, size, eps, out + at);
  });
}

TENUTO_API void tenuto_gated(TenutoPool* pool, const float* gate_up, int rows, int size, int activation, float* out) {
  const FloatKernels& k = float_kernels();
  each_row(pool, rows, size * 24, [&](int r) {
    const float* row = gate_up + static_cast<size_t>(r) * 2 * size;
    k.gated(row, row + size, size, activation, out + static_cast<size_t>(r) * size);
  });
}

TENUTO_API void tenuto_rotate_and_write(TenutoPool* pool, const float* qkv, int rows, int heads, const float* cos_sin,
                                        const float* q_norm, const float* k_norm, float eps, float q_scale,
                                        const int64_t* slots, const TenutoLayer* layer, float* q) {
  const FloatKernels& k = float_kernels();
  const AttentionLayer kv(*layer);
  const int size = kv.head_size, stride = (heads + 2 * kv.kv_heads) * size;
  each_row(pool, rows, stride * 12, [&](int r) {
    const float* row = qkv + static_cast<size_t>(r) * stride;
    const float* cos = cos_sin == nullptr ? nullptr : cos_sin + static_cast<size_t>(r) * size;
    float normed[1024], turned[1024];
    auto transform = [&](const float* head, const float* norm, float factor, float* out) {
      if (norm != nullptr) {
        k.rms_norm(head, norm, size, eps, normed);
        head = normed;
      }
      if (cos != nullptr) {
        k.rotate(head, cos, cos + size / 2, size, factor, out);
      } else {
        for (int d = 0; d < size; ++d) out[d] = head[d] * factor;
      }
    };
    for (int h = 0; h < heads; ++h)
      transform(row + h * size, q_norm, q_scale, q + (static_cast<size_t>(r) * heads + h) * size);
    const int64_t block = slots[r] / kBlockTokens;
    const int token = static_cast<int>(slots[r] % kBlockTokens);
    for (int g = 0; g < kv.kv_heads; ++g) {
      transform(row + (heads + g) * size, k_norm, 1.0f, turned);
      const float* value = row + (heads + kv.kv_heads + g) * size;
      if (kv.quantised()) {
        int8_t bytes[1024];
        const size_t at = kv.block_at(block, g) * kBlockTokens + token;
        kv.key_scales[at] = k.quantise_head(turned, size, bytes);
        auto* keys = kv.keys_of<int8_t>(block, g);
        for (int d = 0; d < size; ++d) keys[d * kBlockTokens + token] = bytes[d];
        kv.value_scales[at] = k.quantise_head(value, size, kv.values_of<int8_t>(block, g) + token * size);
      } else {
        auto* keys = kv.keys_of<float>(block, g);
        for (int d = 0; d < size; ++d) keys[d * kBlockTokens + token] = turned[d];
        std::memcpy(kv.values_of<float>(block, g) + token * size, value, size * sizeof(float));
      }
    }
  });
}

TENUTO_API void tenuto_attention(TenutoPool* pool, const float* q, int heads, const int32_t* query_starts,
                                 const int32_t* kv_lens, const int64_t* tables, int table_width, int sequences,
                                 const TenutoLayer* layer, float* out) {
  const FloatKernels& k = float_kernels();
  const AttentionLayer kv(*layer);
  const int share = heads / kv.kv_heads, size = kv.head_size;
  const int together = std::max(1, kMaxHeads / share);  // rows of a sequence whose heads are computed together
  int tiles = 0;
  for (int s = 0; s < sequences; ++s) tiles += (query_starts[s + 1] - query_starts[s] + together - 1) / together;
  // Tasks are (tile of rows, KV head). They differ in length; taken one by one, they even out.
  pool->run(tiles * kv.kv_heads, [&](int task) {
    int tile = task / kv.kv_heads, s = 0;
    for (;; ++s) {
      const int count = (query_starts[s + 1] - query_starts[s] + together - 1) / together;
      if (tile < count) break;
      tile -= count;
    }
    const int kv_head = task % kv.kv_heads, first = query_starts[s] + tile * together;
    const int rows = std::min(together, query_starts[s + 1] - first);
    const int position = kv_lens[s] - query_starts[s + 1] + first;
    float in[kMaxHeads * 1024], result[kMaxHeads * 1024];
    int positions[kMaxHeads];
    const int64_t* table = tables + static_cast<size_t>(s) * table_width;
    auto place = [&](int row, int head) {
      return (static_cast<size_t>(first + row) * heads + kv_head * share + head) * size;
    };
    // The heads of a group that is larger than a tile are taken in parts.
    for (int part = 0; part < share; part += kMaxHeads) {
      const int width = std::min(share - part, kMaxHeads);
      for (int r = 0; r < rows; ++r) {
        std::memcpy(in + r * width * size, q + place(r, part), width * size * sizeof(float));
        std::fill(positions + r * width, positions + (r + 1) * width, position + r);
      }
      k.attend(kv, in, table, kv_head, rows * width, positions, result);
      for (int r = 0; r < rows; ++r)
        std::memcpy(out + place(r, part), result + r * width * size, width * size * sizeof(float));
    }
  });
}
