// The product of a tile with AVX-512 VNNI (`vpdpbusd`): 64 products and 16 sums in one instruction. Included by the files
// of the formats that weights are packed in.
//
// A format has the scales of a panel, `scales(panel, inputs)`, and a `Reader<Panels>`: after `chunk(c)` it gives that
// chunk's bytes, as INT8 matrices have them, two steps at a time.
#pragma once
#include <cstring>

#include "int8.h"

namespace tenuto {
namespace {

inline __m512i four_bytes(const void* at) {
  int32_t word;
  std::memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);  // becomes the broadcast operand of the instruction
}

template <typename Format, int Rows, int Panels>
void tile(const Activations& x, int first, const uint8_t* const* panels, float* y) {
  const Inputs& inputs = x.inputs;
  const size_t row_bytes = inputs.row_bytes();
  const int spans = inputs.spans;
  const int8_t* values = x.values + first * row_bytes;
  const float* scales = x.scales + static_cast<size_t>(first) * spans;
  const int32_t* sums = x.sums + static_cast<size_t>(first) * spans;
  __m512 total[Rows][Panels];
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p] = _mm512_setzero_ps();
  typename Format::template Reader<Panels> reader(panels, inputs);
  for (int s = 0; s < spans; ++s) {
    __m512i dot[Rows][Panels];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_set1_epi32(sums[r * spans + s]);
    for (int c = 0; c < inputs.span; ++c) {
      reader.chunk(s * inputs.span + c);
      for (int pair = 0; pair < kChunk / 8; ++pair) {
        __m512i w[2][Panels];
        reader.steps(w);
#pragma GCC unroll 2
        for (int step = 0; step < 2; ++step) {
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) {
            const __m512i four = four_bytes(values + r * row_bytes);
#pragma GCC unroll 4
            for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], w[step][p], four);
          }
          values += 4;
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      const auto* halves = Format::scales(panels[p], inputs) + s * kPanel;
      const __m512 ws = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const __m512 scale = _mm512_mul_ps(ws, _mm512_set1_ps(scales[r * spans + s]));
        total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][p]), scale, total[r][p]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) _mm512_store_ps(y + r * kTileWidth + p * kPanel, total[r][p]);
}

template <typename Format, int Panels>
void rows_of(const Activations& x, int first, int rows, const uint8_t* const* panels, float* y) {
  switch (rows) {
    case 1: return tile<Format, 1, Panels>(x, first, panels, y);
    case 2: return tile<Format, 2, Panels>(x, first, panels, y);
    case 3: return tile<Format, 3, Panels>(x, first, panels, y);
    case 4: return tile<Format, 4, Panels>(x, first, panels, y);
    case 5: return tile<Format, 5, Panels>(x, first, panels, y);
    case 6: return tile<Format, 6, Panels>(x, first, panels, y);
    case 7: return tile<Format, 7, Panels>(x, first, panels, y);
    default: return tile<Format, 8, Panels>(x, first, panels, y);
  }
}

template <typename Format>
void tile_any(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest&) {
  if (pair.count == 1) return rows_of<Format, 1>(x, first, rows, pair.panels, y);
  return rows_of<Format, 2>(x, first, rows, pair.panels, y);
}

template <typename Format>
constexpr TileKernel kVectorTile{8, tile_any<Format>, nothing_for, nothing};

}  // namespace
}  // namespace tenuto
