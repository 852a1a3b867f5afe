// Tile products with ARM's dot products of signed bytes (`sdot`): 16 products and 4 sums in one instruction.
//
// The weights' bytes, w + 128, become signed again by turning their highest bit round, so nothing is to be taken off.
#include "int8.h"

#if defined(TENUTO_HAS_NEON)
#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "target.h"
TENUTO_TARGET_NEON
#define TENUTO_NEON
#include "quantise.h"

namespace tenuto {
namespace {

constexpr int kQuads = kPanel / 4;  // vectors of a panel's outputs

// The sums of 16 registers fit beside what they are made of.
constexpr int kRowsAtOnce = 4;

// Sixteen inputs of each row meet four steps of the panels.
template <int Rows, int Panels>
inline void sixteen_inputs(const int8_t* values, size_t row_bytes, const uint8_t* const* bytes,
                           int32x4_t (&dot)[Rows][Panels][kQuads]) {
  int8x16_t in[Rows];
  for (int r = 0; r < Rows; ++r) in[r] = vld1q_s8(values + r * row_bytes);
  const uint8x16_t top = vdupq_n_u8(128);
#define TENUTO_STEP(step)                                                                             \
  for (int p = 0; p < Panels; ++p)                                                                    \
    for (int q = 0; q < kQuads; ++q) {                                                                \
      const uint8x16_t raised = vld1q_u8(bytes[p] + step * 64 + q * 16);                              \
      const int8x16_t w = vreinterpretq_s8_u8(veorq_u8(raised, top));                                 \
      for (int r = 0; r < Rows; ++r) dot[r][p][q] = vdotq_laneq_s32(dot[r][p][q], w, in[r], step);    \
    }
  TENUTO_STEP(0) TENUTO_STEP(1) TENUTO_STEP(2) TENUTO_STEP(3)  // lanes are constants
#undef TENUTO_STEP
}

template <int Rows, int Panels>
void tile(const Activations& x, int first, const uint8_t* const* panels, float* y) {
  const Inputs& inputs = x.inputs;
  const size_t row_bytes = inputs.row_bytes();
  const int spans = inputs.spans, width = inputs.span * kChunk;
  const int8_t* values = x.values + first * row_bytes;
  const float* scales = x.scales + static_cast<size_t>(first) * spans;
  float32x4_t total[Rows][Panels][kQuads];
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p)
      for (int q = 0; q < kQuads; ++q) total[r][p][q] = vdupq_n_f32(0);
  const uint8_t* bytes[Panels];
  for (int p = 0; p < Panels; ++p) bytes[p] = panels[p];
  for (int s = 0; s < spans; ++s) {
    int32x4_t dot[Rows][Panels][kQuads];
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p)
        for (int q = 0; q < kQuads; ++q) dot[r][p][q] = vdupq_n_s32(0);
    for (int i = 0; i < width; i += 16) {
      sixteen_inputs<Rows, Panels>(values, row_bytes, bytes, dot);
      values += 16;
      for (int p = 0; p < Panels; ++p) bytes[p] += 16 * kPanel;
    }
    for (int p = 0; p < Panels; ++p) {
      const uint16_t* halves = panel_scales(panels[p], inputs) + s * kPanel;
      for (int q = 0; q < kQuads; ++q) {
        const float32x4_t ws = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + q * 4)));
        for (int r = 0; r < Rows; ++r) {
          const float32x4_t scale = vmulq_n_f32(ws, scales[r * spans + s]);
          total[r][p][q] = vfmaq_f32(total[r][p][q], vcvtq_f32_s32(dot[r][p][q]), scale);
        }
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p)
      for (int q = 0; q < kQuads; ++q) vst1q_f32(y + r * kTileWidth + p * kPanel + q * 4, total[r][p][q]);
}

// One or two rows take both panels at once, so that no sum waits for the one before it.
template <int Rows>
void rows_of(const Activations& x, int first, const PanelPair& pair, float* y) {
  if (Rows <= 2 && pair.count == 2) return tile<std::min(Rows, 2), 2>(x, first, pair.panels, y);
  for (int p = 0; p < pair.count; ++p) tile<Rows, 1>(x, first, pair.panels + p, y + p * kPanel);
}

void tile_any(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest&) {
  for (int row = 0; row < rows; row += kRowsAtOnce) {
    float* to = y + row * kTileWidth;
    switch (std::min(kRowsAtOnce, rows - row)) {
      case 1: rows_of<1>(x, first + row, pair, to); break;
      case 2: rows_of<2>(x, first + row, pair, to); break;
      case 3: rows_of<3>(x, first + row, pair, to); break;
      default: rows_of<4>(x, first + row, pair, to);
    }
  }
}

constexpr TileKernel kTile{32, tile_any, nothing_for, nothing};  // panels stay in the cache for so many rows

}  // namespace

const Int8Kernels kNeonInt8{kTile, kTile, rotate_floats, quantise_row};

}  // namespace tenuto
TENUTO_TARGET_NEON_END
#endif
