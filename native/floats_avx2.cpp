#if defined(__x86_64__)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include <immintrin.h>
#define TENUTO_AVX2
#include "attention_int8_body.h"
#include "floats_body.h"

namespace tenuto {
const FloatKernels kAvx2Floats{
    attend_float, attend_int8, rms_norm_row,  add_row,       gated_row,
    add_tile,     gated_tile,  rotate_head,   quantise_head, quantise_query};
}
#pragma GCC pop_options
#endif
