// INT8 with AVX-512 VNNI, and what AMX takes from it.
#include "int8.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")
#define TENUTO_AVX512
#include "quantise.h"
#include "tile_avx512.h"

namespace tenuto {
namespace {

struct Int8Panels {
  static const uint16_t* scales(const uint8_t* panel, const Inputs& inputs) { return panel_scales(panel, inputs); }

  template <int Panels>
  struct Reader {
    const uint8_t* bytes[Panels];

    Reader(const uint8_t* const* panels, const Inputs&) {
      for (int p = 0; p < Panels; ++p) bytes[p] = panels[p];
    }
    void chunk(int) {}
    void steps(__m512i (&w)[2][Panels]) {
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        w[0][p] = _mm512_load_si512(bytes[p]), w[1][p] = _mm512_load_si512(bytes[p] + 64);
        bytes[p] += 128;
      }
    }
  };
};

constexpr TileKernel kTile = kVectorTile<Int8Panels>;

}  // namespace

const Int8Kernels kAvx512Vnni{kTile, kTile, rotate_floats, quantise_row};

#if defined(TENUTO_HAS_AMX)  // which has its own tiles for many rows (int8_amx.cpp)
extern const TileKernel kAmxTile;
const Int8Kernels kAmxInt8{kTile, kAmxTile, rotate_floats, quantise_row};
#endif

}  // namespace tenuto
TENUTO_TARGET_END
#endif
