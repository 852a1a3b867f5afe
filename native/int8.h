// The layout of packed INT8 matrices and of quantised activations, and what an instruction set brings to their product.
//
// Inputs come in chunks of 64, which are rotated by a Hadamard matrix before they are quantised (see quantise.h), and
// one to twelve chunks, a span, share a scale. Outputs come in panels of 16. A panel holds, for each chunk, 16 steps of
// [16 outputs][4 inputs] bytes: the order in which the dot-product instructions of x86 and ARM want them. Bytes are
// w + 128, unsigned, since x86 multiplies unsigned by signed; 128 times the sum of the activations is taken off again.
// After the bytes come the scales: for each span, 16 half-precision numbers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "instruction_set.h"
#include "kernels.h"

namespace tenuto {

constexpr int kChunk = 64;
constexpr int kPanel = 16;
constexpr int kChunkBytes = kChunk * kPanel;  // of one chunk of a panel
constexpr int kMaxSpan = 12;
constexpr int kTilePanels = 2;
constexpr int kTileWidth = kTilePanels * kPanel;

// How the inputs of a matrix are cut.
struct Inputs {
  int size, chunks, span, spans;

  explicit Inputs(int in) : size(in), chunks((in + kChunk - 1) / kChunk), span(kMaxSpan) {
    while (chunks % span != 0) --span;
    spans = chunks / span;
  }
  size_t row_bytes() const { return static_cast<size_t>(chunks) * kChunk; }
  size_t panel_stride() const {
    const size_t bytes = static_cast<size_t>(chunks) * kChunkBytes + static_cast<size_t>(spans) * kPanel * 2;
    return (bytes + 63) / 64 * 64;
  }
};

inline int panels_of(int out) { return (out + kPanel - 1) / kPanel; }

inline const uint16_t* panel_scales(const uint8_t* panel, const Inputs& inputs) {
  return reinterpret_cast<const uint16_t*>(panel + static_cast<size_t>(inputs.chunks) * kChunkBytes);
}

// Quantised rows of activations. There is memory for a multiple of 16 rows.
struct Activations {
  Inputs inputs;
  int8_t* values;  // [rows, chunks * 64]
  float* scales;   // [rows, spans]
  int32_t* sums;   // [rows, spans], of values, times -128

  Activations(int in, int rows, void* memory) : inputs(in) {
    const size_t padded = padded_rows(rows);
    values = static_cast<int8_t*>(memory);
    scales = reinterpret_cast<float*>(values + padded * inputs.row_bytes());
    sums = reinterpret_cast<int32_t*>(scales + padded * inputs.spans);
  }
  static size_t padded_rows(int rows) { return (static_cast<size_t>(rows) + 15) / 16 * 16; }
  static size_t bytes(int in, int rows) {
    const Inputs inputs(in);
    return padded_rows(rows) * (inputs.row_bytes() + static_cast<size_t>(inputs.spans) * 8);
  }
};

// What a tile is computed from: one panel (twice) or two, and those that come next, to be fetched meanwhile (null: none).
struct PanelPair {
  const uint8_t* panels[kTilePanels];
  int count;
  const uint8_t* next[kTilePanels];
};

constexpr int kMaxTileRows = 32;

// A tile in the making: sums of integers that are still to be scaled and added.
struct TileRest {
  int rows = 0;  // that are left
  bool first_span;
  int spans;
  alignas(64) uint16_t weights[kTilePanels][kPanel];  // scales: the panels themselves may be gone
  const float* scales;
  const int32_t *sums, *dots;
  float* y;
  alignas(64) int32_t memory[kMaxTileRows * kTileWidth];
};

// y[r][p * 16 + o] for `rows` rows from `first` and one or two panels: float sums over spans in order.
// y: [rows, kTileWidth]. A kernel may leave some of it as `rest`, for its next call or `end` to do.
using TileProduct = void (*)(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest& rest);

// A way to compute tiles. A thread calls begin before its tiles and end after them.
struct TileKernel {
  int max_rows;
  TileProduct tile;
  void (*begin)(int rows);  // of the product
  void (*end)(TileRest& rest);
};

// What an instruction set brings.
struct Int8Kernels {
  TileKernel few;   // rows
  TileKernel many;  // from kManyRows on
  void (*rotate)(const float* x, float* out);  // a chunk; may be in place
  void (*quantise)(const float* x, const Inputs& inputs, int8_t* values, float* scales, int32_t* sums);
};

constexpr int kManyRows = 5;

inline void nothing(TileRest&) {}
inline void nothing_for(int) {}

extern const Int8Kernels kPortableInt8;
#if defined(__x86_64__)
extern const Int8Kernels kAvx512Vnni, kAvx2Int8, kAmxInt8;
#elif defined(TENUTO_HAS_NEON)
extern const Int8Kernels kNeonInt8;
#endif
const Int8Kernels& int8_kernels();
void use_int8(InstructionSet set);

// Span s of a row of weights, rotated, with zeros after its end: [kMaxSpan * kChunk]. Returns the largest magnitude.
float rotate_span(const float* row, const Inputs& inputs, int s, float* rotated);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

}  // namespace tenuto
