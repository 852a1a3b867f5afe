// The registers of AMX. Included where its instructions may be used.
#pragma once
#include <cstdint>
#include <cstring>

namespace tenuto {
namespace {

constexpr int kTileRows = 16;

// Sums and activations, in the first five registers, have so many rows, at most 16; the others, for weights, have 16. An
// instruction takes as long as its sums have rows.
inline void begin_tiles(int rows) {
  struct alignas(64) {
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};
  } tiles;  // as the processor reads it
  std::memset(tiles.rows, rows < kTileRows ? rows : kTileRows, 5);
  std::memset(tiles.rows + 5, kTileRows, 3);
  asm volatile("" : : "r"(&tiles) : "memory");  // GCC believes that only its first bytes are read
  _tile_loadconfig(&tiles);
}
inline void end_tiles() { _tile_release(); }  // so that the system need not keep the registers

}  // namespace
}  // namespace tenuto
