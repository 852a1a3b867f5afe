#include "instruction_set.h"

#if defined(TENUTO_HAS_NEON)
#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "target.h"
TENUTO_TARGET_NEON
#define TENUTO_NEON
#include "attention_int8_body.h"
#include "floats_body.h"

namespace tenuto {
const FloatKernels kNeonFloats{
    attend_float, attend_int8, 1, rms_norm_row, add_row, gated_row,
    add_tile,     gated_tile,  rotate_head,   quantise_head, quantise_query};
}
TENUTO_TARGET_NEON_END
#endif
