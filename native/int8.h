// The layout of packed INT8 matrices, and one tile product for each instruction set.
//
// Outputs come in panels of 16. A panel holds, for each group of 64 inputs, 16 steps of [16 outputs][4 inputs] bytes:
// the order in which the dot-product instructions of x86 and ARM want them. Bytes are w + 128, unsigned, since x86
// multiplies unsigned by signed; 128 times the sum of the activations is taken off again. After the bytes come the
// scales: for each group, 16 half-precision numbers.
#pragma once
#include <cstdint>

#include "instruction_set.h"
#include "kernels.h"

namespace tenuto {

constexpr int kTileRows = 8;
constexpr int kTilePanels = 2;

inline int groups_of(int in) { return (in + kGroup - 1) / kGroup; }
inline int panels_of(int out) { return (out + kPanel - 1) / kPanel; }

inline size_t panel_stride(int groups) {
  const size_t bytes = static_cast<size_t>(groups) * (kPanelBytes + kPanel * 2);
  return (bytes + 63) / 64 * 64;
}

inline const uint16_t* panel_scales(const uint8_t* panel, int groups) {
  return reinterpret_cast<const uint16_t*>(panel + static_cast<size_t>(groups) * kPanelBytes);
}

// Quantised rows of activations.
struct Activations {
  const int8_t* values;  // [rows, groups * 64]
  const float* scales;   // [rows, groups]
  const int32_t* sums;   // [rows, groups], of values, times -128
  int groups;
};

// y[r][p * 16 + o] for `rows` (1 .. 8) rows from `first` and `panels` (1 .. 2) panels: float sums over groups in order.
using TileProduct = void (*)(const Activations& x, int first, int rows, const uint8_t* panel, int panels, float* y);

using QuantiseRow = void (*)(const float* x, int in, int groups, int8_t* values, float* scales, int32_t* sums);

// What an instruction set brings.
struct Int8Kernels {
  TileProduct tile;
  QuantiseRow quantise;
};

#if defined(__x86_64__)
extern const Int8Kernels kAvx512Vnni, kAvx2Int8;
#endif
void use_int8(InstructionSet set);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

}  // namespace tenuto
