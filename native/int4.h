// The layout of packed INT4 matrices: INT8 ones in half the room.
//
// A weight is four bits, the place of one of sixteen levels; levels lie closer where weights of a rotated chunk are
// many (those that Lloyd and Max found for the normal distribution). Each output and chunk has a shape, which makes all
// levels smaller by one of eight factors, so that a level is a byte of `kLevelBytes`, and what comes out is a packed
// INT8 matrix: the products are those of INT8, and so are their bits.
//
// A panel holds, for each chunk, 8 times 64 bytes: of two steps of INT8 (see int8.h), the first in the lower four bits.
// Then, for each chunk, come 16 bytes, 16 times the shape; and the scales, as with INT8.
#pragma once
#include "int8.h"

namespace tenuto {

constexpr int kLevels = 16;
constexpr int kShapes = 8;
constexpr int kHalfChunkBytes = kChunkBytes / 2;

inline size_t int4_panel_stride(const Inputs& inputs) {
  const size_t bytes =
      static_cast<size_t>(inputs.chunks) * (kHalfChunkBytes + kPanel) + static_cast<size_t>(inputs.spans) * kPanel * 2;
  return (bytes + 63) / 64 * 64;
}

inline uint8_t* int4_shapes(uint8_t* panel, const Inputs& inputs) {
  return panel + static_cast<size_t>(inputs.chunks) * kHalfChunkBytes;
}
inline const uint8_t* int4_shapes(const uint8_t* panel, const Inputs& inputs) {
  return panel + static_cast<size_t>(inputs.chunks) * kHalfChunkBytes;
}
inline const uint16_t* int4_scales(const uint8_t* panel, const Inputs& inputs) {
  return reinterpret_cast<const uint16_t*>(int4_shapes(panel, inputs) + static_cast<size_t>(inputs.chunks) * kPanel);
}

// Level l of shape s is (kLevel[l] * kFactor[s] + 2^14) / 2^15, rounded down: the instruction `vpmulhrsw`.
alignas(16) constexpr int8_t kLevel[kLevels] = {-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127};
constexpr int16_t kFactor[kShapes] = {0, 11469, 16384, 19661, 22282, 25231, 28836, 32767};

// [shape][level] + 128, as bytes of INT8 matrices are.
struct LevelBytes {
  alignas(64) uint8_t at[kShapes * kLevels];
};
constexpr LevelBytes level_bytes() {
  LevelBytes bytes{};
  for (int s = 0; s < kShapes; ++s)
    for (int l = 0; l < kLevels; ++l)
      bytes.at[s * kLevels + l] = static_cast<uint8_t>(((kLevel[l] * kFactor[s] + (1 << 14)) >> 15) + 128);
  return bytes;
}
inline constexpr LevelBytes kLevelBytes = level_bytes();

// What an instruction set brings.
struct Int4Kernels {
  // A panel as INT8 matrices have it.
  void (*expand)(const uint8_t* panel, const Inputs& inputs, uint8_t* bytes);
  // Tiles straight from INT4 panels, for up to `few_rows` rows; 0: there are none.
  int few_rows;
  TileKernel few;
};

extern const Int4Kernels kPortableInt4;
#if defined(__x86_64__)
extern const Int4Kernels kAvx2Int4, kVbmiInt4;
#elif defined(TENUTO_HAS_NEON)
extern const Int4Kernels kNeonInt4;
#endif
const Int4Kernels& int4_kernels();
void use_int4(InstructionSet set);

}  // namespace tenuto
