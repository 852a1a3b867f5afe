#if defined(__x86_64__)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx2,fma")
#define TENUTO_AVX2
#include "attention_int8_body.h"
#include "floats_body.h"

namespace tenuto {
const FloatKernels kAvx2Floats{
    attend_float, attend_int8, 1, rms_norm_row, add_row, gated_row,
    add_tile,     gated_tile,  rotate_head,   quantise_head, quantise_query};
}
TENUTO_TARGET_END
#endif
