// Tile products with AVX-512 VNNI (`vpdpbusd`): 64 products and 16 sums in one instruction.
#include "int8.h"

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")
#include <immintrin.h>

#include <cstring>

#include "quantise.h"

namespace tenuto {
namespace {

inline __m512i four_bytes(const int8_t* at) {
  int32_t word;
  std::memcpy(&word, at, 4);
  return _mm512_set1_epi32(word);  // becomes the broadcast operand of the instruction
}

template <int Rows, int Panels>
void tile(const Activations& x, int first, const uint8_t* panel, float* y) {
  const int groups = x.groups;
  const size_t stride = panel_stride(groups);
  const int8_t* values = x.values + static_cast<size_t>(first) * groups * kGroup;
  const float* scales = x.scales + static_cast<size_t>(first) * groups;
  const int32_t* sums = x.sums + static_cast<size_t>(first) * groups;
  __m512 total[Rows][Panels];
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p] = _mm512_setzero_ps();
  for (int g = 0; g < groups; ++g) {
    __m512i dot[Rows][Panels];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_set1_epi32(sums[r * groups + g]);
    const uint8_t* bytes = panel + static_cast<size_t>(g) * kPanelBytes;
    const int8_t* in = values + g * kGroup;
    for (int step = 0; step < kGroup / 4; ++step) {
      __m512i w[Panels];
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) w[p] = _mm512_load_si512(bytes + p * stride + step * 64);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const __m512i four = four_bytes(in + static_cast<size_t>(r) * groups * kGroup + step * 4);
#pragma GCC unroll 4
        for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], w[p], four);
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      const auto* halves = panel_scales(panel + p * stride, groups) + g * kPanel;
      const __m512 ws = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const __m512 scale = _mm512_mul_ps(ws, _mm512_set1_ps(scales[r * groups + g]));
        total[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][p]), scale, total[r][p]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) _mm512_storeu_ps(y + (r * Panels + p) * kPanel, total[r][p]);
}

template <int Panels>
void rows_of(const Activations& x, int first, int rows, const uint8_t* panel, float* y) {
  switch (rows) {
    case 1: return tile<1, Panels>(x, first, panel, y);
    case 2: return tile<2, Panels>(x, first, panel, y);
    case 3: return tile<3, Panels>(x, first, panel, y);
    case 4: return tile<4, Panels>(x, first, panel, y);
    case 5: return tile<5, Panels>(x, first, panel, y);
    case 6: return tile<6, Panels>(x, first, panel, y);
    case 7: return tile<7, Panels>(x, first, panel, y);
    default: return tile<8, Panels>(x, first, panel, y);
  }
}

void tile_any(const Activations& x, int first, int rows, const uint8_t* panel, int panels, float* y) {
  if (panels == 1) return rows_of<1>(x, first, rows, panel, y);
  return rows_of<2>(x, first, rows, panel, y);
}

void quantise(const float* x, int in, int groups, int8_t* values, float* scales, int32_t* sums) {
  quantise_row(x, in, groups, values, scales, sums);
}

}  // namespace

const Int8Kernels kAvx512Vnni{tile_any, quantise};

}  // namespace tenuto
#pragma GCC pop_options
#endif
