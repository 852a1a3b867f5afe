// The registers of AMX. Included where its instructions may be used.
#pragma once
#include <cstdint>

namespace tenuto {
namespace {

// As the processor reads it: all eight registers of 16 rows of 64 bytes.
alignas(64) const uint8_t kTiles[64] = {
    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                                    // palette, first row
    64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0,    // bytes of a row
    0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0};  // rows

inline void begin_tiles() { _tile_loadconfig(kTiles); }
inline void end_tiles() { _tile_release(); }  // so that the system need not keep the registers

}  // namespace
}  // namespace tenuto
