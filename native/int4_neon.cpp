// INT4 panels to INT8 ones with NEON: levels by a look-up (`tbl`), times the factors of their shapes as words.
#include "int4.h"

#if defined(TENUTO_HAS_NEON)
#include <arm_neon.h>

#include <cstring>

namespace tenuto {
namespace {

// 16 bytes of levels, four outputs of four inputs each, times the factors, plus 128. `sqrdmulh` rounds as int4.h says.
inline uint8x16_t scaled(int8x16_t levels, const int16x8_t* factors) {
  const int16x8_t low = vqrdmulhq_s16(vmovl_s8(vget_low_s8(levels)), factors[0]);
  const int16x8_t high = vqrdmulhq_s16(vmovl_high_s8(levels), factors[1]);
  const int8x16_t bytes = vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
  return veorq_u8(vreinterpretq_u8_s8(bytes), vdupq_n_u8(128));
}

void expand(const uint8_t* panel, const Inputs& inputs, uint8_t* bytes) {
  const uint8_t* shapes = int4_shapes(panel, inputs);
  std::memcpy(bytes + static_cast<size_t>(inputs.chunks) * kChunkBytes, int4_scales(panel, inputs),
              static_cast<size_t>(inputs.spans) * kPanel * sizeof(uint16_t));
  const int8x16_t levels = vld1q_s8(kLevel);
  for (int c = 0; c < inputs.chunks; ++c, shapes += kPanel) {
    int16x8_t factors[kPanel / 2];  // of two outputs each
    for (int o = 0; o < kPanel; o += 2)
      factors[o / 2] = vcombine_s16(vdup_n_s16(kFactor[shapes[o] / kLevels]), vdup_n_s16(kFactor[shapes[o + 1] / kLevels]));
    for (int pair = 0; pair < kChunk / 8; ++pair, panel += 64, bytes += 128) {
      for (int q = 0; q < 4; ++q) {
        const uint8x16_t both = vld1q_u8(panel + q * 16);
        const uint8x16_t first = vandq_u8(both, vdupq_n_u8(15)), second = vshrq_n_u8(both, 4);
        vst1q_u8(bytes + q * 16, scaled(vqtbl1q_s8(levels, first), factors + q * 2));
        vst1q_u8(bytes + 64 + q * 16, scaled(vqtbl1q_s8(levels, second), factors + q * 2));
      }
    }
  }
}

}  // namespace

const Int4Kernels kNeonInt4{expand, 0, {}};

}  // namespace tenuto
#endif
