// Tile products for any machine.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantise.h"

namespace tenuto {
namespace {

void tile(const Activations& x, int first, int rows, const PanelPair& pair, float* y, TileRest&) {
  const Inputs& inputs = x.inputs;
  for (int r = 0; r < rows; ++r) {
    const size_t row = static_cast<size_t>(first) + r;
    for (int p = 0; p < pair.count; ++p) {
      float total[kPanel] = {};
      const uint8_t* bytes = pair.panels[p];
      const int8_t* in = x.values + row * inputs.row_bytes();
      for (int s = 0; s < inputs.spans; ++s) {
        int32_t dot[kPanel];
        for (int o = 0; o < kPanel; ++o) dot[o] = x.sums[row * inputs.spans + s];
        for (int step = 0; step < inputs.span * kChunk / 4; ++step) {
          for (int o = 0; o < kPanel; ++o)
            for (int k = 0; k < 4; ++k) dot[o] += bytes[o * 4 + k] * in[k];
          in += 4, bytes += 64;
        }
        const uint16_t* halves = panel_scales(pair.panels[p], inputs) + s * kPanel;
        const float scale = x.scales[row * inputs.spans + s];
        for (int o = 0; o < kPanel; ++o)
          total[o] = std::fma(static_cast<float>(dot[o]), half_to_float(halves[o]) * scale, total[o]);
      }
      std::memcpy(y + r * kTileWidth + p * kPanel, total, sizeof total);
    }
  }
}

constexpr TileKernel kTile{8, tile, nothing_for, nothing};

}  // namespace

const Int8Kernels kPortableInt8{kTile, kTile, rotate_floats, quantise_row};

}  // namespace tenuto
