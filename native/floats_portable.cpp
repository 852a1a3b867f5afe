#include "attention_body.h"
#include "floats_body.h"

namespace tenuto {
const FloatKernels kPortableFloats{attend_any, rms_norm_row, add_row, gated_row, quantise_head, rotate_head};
}
