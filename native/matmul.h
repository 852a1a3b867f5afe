// The product of quantised activations and a packed matrix: which tiles go to which thread, and where they end.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "int4.h"
#include "thread_pool.h"

namespace tenuto {

// A packed matrix [out, in].
struct Matrix {
  const uint8_t* packed;
  const float* bias;  // [out] or null
  int in, out;
  bool int4;

  explicit Matrix(const TenutoMatrix& from)
      : packed(static_cast<const uint8_t*>(from.packed)), bias(from.bias), in(from.in), out(from.out),
        int4(from.bits == 4) {}
};

// A thread's room for a pair of panels.
class ExpandedPair {
 public:
  uint8_t* of(size_t panel_bytes) {
    if (panel_bytes > panel_bytes_) {
      panel_bytes_ = panel_bytes;
      memory_.reset(new (std::align_val_t{64}) uint8_t[kTilePanels * panel_bytes]);
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { operator delete[](memory, std::align_val_t{64}); }
  };
  std::unique_ptr<uint8_t, Free> memory_;
  size_t panel_bytes_ = 0;
};

// Several for each thread, so that one that is held up does not hold up the rest.
constexpr int kThreadTasks = 12;

// That of a panel, to `rows` rows of a tile.
inline void add_bias(const Matrix& matrix, int panel, int rows, float* y) {
  const float* bias = matrix.bias + panel * kPanel;
  const int width = std::min(kPanel, matrix.out - panel * kPanel);
  for (int r = 0; r < rows; ++r, y += kTileWidth)
    for (int i = 0; i < width; ++i) y[i] += bias[i];
}

// sink(row, rows, pair, tile) takes each tile [rows, kTileWidth] of a pair of panels, bias included, once.
// `second` panels from the first of a pair lies the other; pairs: their number.
template <typename Sink>
void multiply_pairs(TenutoPool* pool, const Activations& x, int rows, const Matrix& matrix, int stride, int second,
                    int pairs, Sink&& sink) {
  const Int8Kernels& k = int8_kernels();
  const Int4Kernels& k4 = int4_kernels();
  // INT4 panels become INT8 ones first, once for all rows, unless few rows have a kernel of their own.
  const bool expand = matrix.int4 && rows > k4.few_rows;
  const TileKernel& kernel = matrix.int4 && !expand ? k4.few : rows < kManyRows ? k.few : k.many;
  const int panels = panels_of(matrix.out);
  const size_t expanded_bytes = x.inputs.panel_stride();
  const size_t panel_bytes = matrix.int4 ? int4_panel_stride(x.inputs) : expanded_bytes;
  const int tasks = std::min(pairs, pool->num_threads() * kThreadTasks);
  const auto first_of = [&](int task) { return static_cast<int>(static_cast<int64_t>(pairs) * task / tasks); };
  pool->run(tasks, [&](int task) {
    const int begin = first_of(task), end = first_of(task + 1);
    const int after = first_of(task + pool->num_threads());  // what this thread will do next, if all are equally fast
    // A tile goes on when the next has been computed: until then it may not be whole.
    struct Tile {
      int row, height = 0, pair, panels;
      alignas(64) float y[kMaxTileRows * kTileWidth];
    } tiles[2], *before = &tiles[0], *now = &tiles[1];
    TileRest rest;
    const auto finish = [&](Tile& tile) {
      if (matrix.bias != nullptr) {
        for (int p = 0; p < tile.panels; ++p)
          add_bias(matrix, tile.pair * stride + p * second, tile.height, tile.y + p * kPanel);
      }
      sink(tile.row, tile.height, tile.pair, tile.y);
    };
    const auto compute = [&](int row, int pair, const PanelPair& panels_of_pair) {
      now->row = row, now->height = std::min(kernel.max_rows, rows - row);
      now->pair = pair, now->panels = panels_of_pair.count;
      kernel.tile(x, row, now->height, panels_of_pair, now->y, rest);
      if (before->height > 0) finish(*before);
      std::swap(before, now);
    };
    const auto pair_at = [&](int pair) {
      const int first = pair * stride, count = first + second < panels ? 2 : 1;
      const uint8_t* left = matrix.packed + first * panel_bytes;
      return PanelPair{{left, count == 2 ? left + second * panel_bytes : left}, count, {}};
    };
    kernel.begin(rows);
    if (expand) {
      thread_local ExpandedPair expanded;  // keeps its memory
      uint8_t* bytes = expanded.of(expanded_bytes);
      for (int pair = begin; pair < end; ++pair) {
        PanelPair both = pair_at(pair);
        for (int p = 0; p < both.count; ++p) {
          k4.expand(both.panels[p], x.inputs, bytes + p * expanded_bytes);
          both.panels[p] = bytes + p * expanded_bytes;
        }
        for (int row = 0; row < rows; row += kernel.max_rows) compute(row, pair, both);
      }
    } else {
      for (int row = 0; row < rows; row += kernel.max_rows) {
        for (int pair = begin; pair < end; ++pair) {
          PanelPair both = pair_at(pair);
          const int next = pair + 1 < end ? pair + 1 : after;
          // Later rows find the panels in a cache.
          if (row == 0 && next < pairs) std::copy_n(pair_at(next).panels, kTilePanels, both.next);
          compute(row, pair, both);
        }
      }
    }
    kernel.end(rest);
    if (before->height > 0) finish(*before);
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

// row(r, its floats) for x [rows, width], by the thread: few enough tasks that a decode step wakes nobody for a few
// microseconds of work. What another thread has written comes late: rows are fetched one ahead.
template <typename Row>
void each_row(TenutoPool* pool, int rows, const float* x, int width, Row row) {
  constexpr int kTaskFloats = 2048, kLineFloats = 16;
  const int at_once = std::max(1, kTaskFloats / std::max(1, width));
  pool->run((rows + at_once - 1) / at_once, [&](int task) {
    const int begin = task * at_once, end = std::min(rows, begin + at_once);
    const float* at = x + static_cast<size_t>(begin) * width;
    for (int r = begin; r < end; ++r, at += width) {
      for (int i = 0; r + 1 < end && i < width; i += kLineFloats) __builtin_prefetch(at + width + i);
      row(r, at);
    }
  });
}

// Quantise row r of x, as a whole.
inline void quantise_row_into(const Activations& x, int r, const float* row) {
  const size_t at = static_cast<size_t>(r) * x.inputs.spans;
  int8_kernels().quantise(row, x.inputs, x.values + r * x.inputs.row_bytes(), x.scales + at, x.sums + at);
}

}  // namespace tenuto
