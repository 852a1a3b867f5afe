// INT4 with AVX-512: `vpermi2b` (VBMI) looks up 64 bytes in the 128 of all shapes' levels. For few rows they go
// straight into the products.
#include "int4.h"

#if defined(__x86_64__)
#include <cstring>
#include <immintrin.h>

#include "target.h"
TENUTO_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,fma,f16c")
#include "tile_avx512.h"

namespace tenuto {
namespace {

struct Lookup {
  __m512i low, high, nibble;

  // Written out: what the compiler would make itself would not have these instructions.
  Lookup() {
    low = _mm512_load_si512(kLevelBytes.at), high = _mm512_load_si512(kLevelBytes.at + 64);
    nibble = _mm512_set1_epi8(15);
  }

  // The shapes of 16 outputs, each four times.
  static __m512i shapes(const uint8_t* at) {
    const __m512i words = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm512_shuffle_epi8(words, _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0x00000000));
  }
  __m512i bytes(__m512i levels, __m512i shapes) const {
    const __m512i at = _mm512_ternarylogic_epi32(levels, nibble, shapes, 0xea);  // (levels & nibble) | shapes
    return _mm512_permutex2var_epi8(low, at, high);
  }
  __m512i first(__m512i both, __m512i shapes) const { return bytes(both, shapes); }
  __m512i second(__m512i both, __m512i shapes) const { return bytes(_mm512_srli_epi16(both, 4), shapes); }
};

void expand(const uint8_t* panel, const Inputs& inputs, uint8_t* bytes) {
  const Lookup lookup;
  const uint8_t* at = int4_shapes(panel, inputs);
  std::memcpy(bytes + static_cast<size_t>(inputs.chunks) * kChunkBytes, int4_scales(panel, inputs),
              static_cast<size_t>(inputs.spans) * kPanel * sizeof(uint16_t));
  for (int c = 0; c < inputs.chunks; ++c, at += kPanel) {
    const __m512i shapes = Lookup::shapes(at);
#pragma GCC unroll 8
    for (int pair = 0; pair < kChunk / 8; ++pair, panel += 64, bytes += 128) {
      const __m512i both = _mm512_load_si512(panel);
      _mm512_store_si512(bytes, lookup.first(both, shapes));
      _mm512_store_si512(bytes + 64, lookup.second(both, shapes));
    }
  }
}

struct Int4Panels {
  static const uint16_t* scales(const uint8_t* panel, const Inputs& inputs) { return int4_scales(panel, inputs); }

  template <int Panels>
  struct Reader {
    const Lookup lookup;
    const uint8_t *bytes[Panels], *at[Panels];
    __m512i shapes[Panels];

    Reader(const uint8_t* const* panels, const Inputs& inputs) {
      for (int p = 0; p < Panels; ++p) bytes[p] = panels[p], at[p] = int4_shapes(panels[p], inputs);
    }
    void chunk(int c) {
      for (int p = 0; p < Panels; ++p) shapes[p] = Lookup::shapes(at[p] + c * kPanel);
    }
    void steps(__m512i (&w)[2][Panels]) {
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        const __m512i both = _mm512_load_si512(bytes[p]);
        w[0][p] = lookup.first(both, shapes[p]), w[1][p] = lookup.second(both, shapes[p]);
        bytes[p] += 64;
      }
    }
  };
};

}  // namespace

const Int4Kernels kVbmiInt4{expand, 8, kVectorTile<Int4Panels>};

}  // namespace tenuto
TENUTO_TARGET_END
#endif
