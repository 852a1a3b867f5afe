// The product of quantised activations and a packed matrix: which tiles go to which thread, and where they end.
#pragma once
#include <algorithm>
#include <cstring>

#include "int8.h"
#include "thread_pool.h"

namespace tenuto {

// A packed matrix [out, in].
struct Matrix {
  const uint8_t* packed;
  const float* bias;  // [out] or null
  int in, out;

  explicit Matrix(const TenutoMatrix& from)
      : packed(static_cast<const uint8_t*>(from.packed)), bias(from.bias), in(from.in), out(from.out) {}
  Matrix(const void* packed, const float* bias, int in, int out)
      : packed(static_cast<const uint8_t*>(packed)), bias(bias), in(in), out(out) {}
};

// sink(row, rows, pair, tile) takes each tile [rows, kTileWidth] of a pair of panels, bias included, once.
// `second` panels from the first of a pair lies the other; pairs: their number.
template <typename Sink>
void multiply_pairs(TenutoPool* pool, const Activations& x, int rows, const Matrix& matrix, int stride, int second,
                    int pairs, Sink&& sink) {
  const Int8Kernels& k = int8_kernels();
  const TileKernel& kernel = rows < kManyRows ? k.few : k.many;
  const int panels = panels_of(matrix.out);
  const size_t panel_bytes = x.inputs.panel_stride();
  // A few tasks for each thread, so that one that is held up does not hold up the rest.
  const int tasks = std::min(pairs, pool->num_threads() * 4);
  pool->run(tasks, [&](int task) {
    alignas(64) float tile[32 * kTileWidth];
    const int begin = static_cast<int>(static_cast<int64_t>(pairs) * task / tasks);
    const int end = static_cast<int>(static_cast<int64_t>(pairs) * (task + 1) / tasks);
    kernel.begin();
    for (int row = 0; row < rows; row += kernel.max_rows) {
      const int height = std::min(kernel.max_rows, rows - row);
      for (int pair = begin; pair < end; ++pair) {
        const int first = pair * stride, other = first + second;
        const int count = other < panels ? 2 : 1;
        const uint8_t* both[kTilePanels] = {matrix.packed + first * panel_bytes, matrix.packed + other * panel_bytes};
        kernel.tile(x, row, height, both, count, tile);
        if (matrix.bias != nullptr) {
          for (int p = 0; p < count; ++p) {
            const int column = both[p] == both[0] ? first * kPanel : other * kPanel;
            const int width = std::min(kPanel, matrix.out - column);
            for (int r = 0; r < height; ++r)
              for (int i = 0; i < width; ++i) tile[r * kTileWidth + p * kPanel + i] += matrix.bias[column + i];
          }
        }
        sink(row, height, pair, tile);
      }
    }
    kernel.end();
  });
}

// The whole product; sink(row, rows, column, width, tile).
template <typename Sink>
void multiply(TenutoPool* pool, const Activations& x, int rows, const Matrix& matrix, Sink&& sink) {
  const int pairs = (panels_of(matrix.out) + kTilePanels - 1) / kTilePanels;
  multiply_pairs(pool, x, rows, matrix, kTilePanels, 1, pairs, [&](int row, int height, int pair, const float* tile) {
    const int column = pair * kTileWidth;
    sink(row, height, column, std::min(kTileWidth, matrix.out - column), tile);
  });
}

// A sink of `multiply`: to rows of `width`.
inline auto into(float* to, int width) {
  return [=](int row, int height, int column, int count, const float* tile) {
    float* at = to + static_cast<size_t>(row) * width + column;
    for (int r = 0; r < height; ++r, at += width, tile += kTileWidth) {
      if (count == kTileWidth) {
        std::memcpy(at, tile, kTileWidth * sizeof(float));  // a constant size is what the compiler unrolls
      } else {
        std::memcpy(at, tile, count * sizeof(float));
      }
    }
  };
}

// Rows by the thread: few enough tasks that a decode step wakes nobody for a few microseconds of work.
template <typename Row>
void each_row(TenutoPool* pool, int rows, int bytes_per_row, Row row) {
  const int at_once = std::max(1, (1 << 15) / std::max(1, bytes_per_row));
  pool->run((rows + at_once - 1) / at_once, [&](int task) {
    for (int r = task * at_once; r < std::min(rows, (task + 1) * at_once); ++r) row(r);
  });
}

// Quantise row r of x, as a whole.
inline void quantise_row_into(const Activations& x, int r, const float* row) {
  const size_t at = static_cast<size_t>(r) * x.inputs.spans;
  int8_kernels().quantise(row, x.inputs, x.values + r * x.inputs.row_bytes(), x.scales + at, x.sums + at);
}

}  // namespace tenuto
