#include "attention_int8_body.h"
#include "floats_body.h"

namespace tenuto {
const FloatKernels kPortableFloats{
    attend_float, attend_int8, 1, rms_norm_row, add_row, gated_row,
    add_tile,     gated_tile,  rotate_head,   quantise_head, quantise_query};
}
