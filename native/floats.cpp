// The operations on floats: which rows go to which thread.
#include <algorithm>
#include <cstring>

#include "attention.h"
#include "matmul.h"
#include "rows.h"

namespace tenuto {

namespace {
const FloatKernels* float_kernels_of(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
#if defined(TENUTO_HAS_AMX)
    case InstructionSet::amx: return &kAmxFloats;
#endif
    case InstructionSet::avx512_vnni: return &kAvx512Floats;
    case InstructionSet::avx2: return &kAvx2Floats;
#elif defined(TENUTO_HAS_NEON)
    case InstructionSet::neon_dot: return &kNeonFloats;
#endif
    default: return &kPortableFloats;
  }
}

const FloatKernels* chosen = float_kernels_of(best_instruction_set());
}  // namespace

const FloatKernels& float_kernels() { return *chosen; }
void use_floats(InstructionSet set) { chosen = float_kernels_of(set); }

}  // namespace tenuto

using namespace tenuto;

TENUTO_API void tenuto_rms_norm(TenutoPool* pool, const float* x, const float* residual, const float* weight, int rows,
                                int size, float eps, float* out, float* total) {
  const FloatKernels& k = float_kernels();
  each_row(pool, rows, x, size, [&](int r, const float* row) {
    const size_t at = static_cast<size_t>(r) * size;
    if (residual != nullptr) {
      k.add(row, residual + at, size, total + at);
      row = total + at;
    }
    k.rms_norm(row, weight, size, eps, out + at);
  });
}

TENUTO_API void tenuto_gated(TenutoPool* pool, const float* gate_up, int rows, int size, int activation, float* out) {
  const FloatKernels& k = float_kernels();
  each_row(pool, rows, gate_up, 2 * size, [&](int r, const float* row) {
    k.gated(row, row + size, size, activation, out + static_cast<size_t>(r) * size);
  });
}

TENUTO_API void tenuto_rotate_and_write(TenutoPool* pool, const float* qkv, int rows, int heads, const float* cos_sin,
                                        const float* q_norm, const float* k_norm, float eps, float q_scale,
                                        const int64_t* slots, const TenutoLayer* layer, float* q) {
  const AttentionLayer kv(*layer);
  const HeadWork work{heads, cos_sin, q_norm, k_norm, eps, q_scale, slots};
  each_row(pool, rows, qkv, (heads + 2 * kv.kv_heads) * kv.head_size,
           [&](int r, const float* row) { rotate_and_write_row(work, kv, r, row, q); });
}
