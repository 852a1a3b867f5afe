// All layers of a decoder in one call: what lies between two products stays in the cache, and a step of few tokens does
// not wait for its caller hundreds of times.
#include <algorithm>
#include <vector>

#include "attention_plan.h"
#include "matmul.h"
#include "rows.h"

namespace tenuto {
namespace {

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Where the values between two products are. Sizes are those of the widest layer.
struct Memory {
  size_t used = 0;
  char* base;

  explicit Memory(void* memory) : base(static_cast<char*>(memory)) {}
  char* take(size_t bytes) {
    char* at = base + used;
    used += aligned(bytes);
    return at;
  }
  float* floats(int rows, int width) { return reinterpret_cast<float*>(take(sizeof(float) * rows * width)); }
};

struct Widths {
  int qkv = 0, attended = 0, inner = 0, hidden = 0;
  size_t quantised = 0;

  Widths(const TenutoDecoderLayer* layers, int count, int rows) {
    for (const TenutoDecoderLayer* layer = layers; layer < layers + count; ++layer) {
      qkv = std::max(qkv, layer->qkv.out);
      attended = std::max(attended, layer->output.in);
      inner = std::max(inner, layer->down.in);
      hidden = layer->qkv.in;
      for (int in : {layer->qkv.in, layer->output.in, layer->gate_up.in, layer->down.in})
        quantised = std::max(quantised, Activations::bytes(in, rows));
    }
  }
};

class Pass {
 public:
  Pass(TenutoPool* pool, const TenutoStep& step, const Widths& widths, void* scratch, float* x)
      : pool_(pool), step_(step), rows_(step.rows), x_(x) {
    Memory memory(scratch);
    bytes_ = memory.take(widths.quantised);
    wide_ = memory.floats(rows_, std::max(widths.qkv, widths.inner));
    q_ = memory.floats(rows_, widths.attended);
    attended_ = memory.floats(rows_, std::max(widths.attended, widths.hidden));
    bytes_used = memory.used;
  }

  void layer(const TenutoDecoderLayer& w, const TenutoLayer& pages) {
    const AttentionLayer kv(pages);
    multiply(pool_, normed(w.attention_norm, w.eps, w.qkv.in), rows_, Matrix(w.qkv), into(wide_, w.qkv.out));
    const HeadWork heads{w.heads, w.rotary < 0 ? nullptr : step_.angles[w.rotary], w.q_norm, w.k_norm, w.head_eps,
                         w.q_scale, step_.slots};
    each_row(pool_, rows_, wide_, w.qkv.out,
             [&](int r, const float* row) { rotate_and_write_row(heads, kv, r, row, q_); });
    attend(kv, w.heads);
    add_product(quantised(attended_, w.output.in), Matrix(w.output), w.attention_post_norm, w.eps);

    gate(normed(w.mlp_norm, w.eps, w.gate_up.in), w);
    add_product(quantised(wide_, w.down.in), Matrix(w.down), w.mlp_post_norm, w.eps);
  }

  size_t bytes_used;

 private:
  Activations normed(const float* weight, float eps, int width) {
    const Activations quantised(width, rows_, bytes_);
    each_row(pool_, rows_, x_, width, [&](int r, const float* row) {
      thread_local std::vector<float> normed;  // keeps its memory
      normed.resize(width);
      float_kernels().rms_norm(row, weight, width, eps, normed.data());
      quantise_row_into(quantised, r, normed.data());
    });
    return quantised;
  }

  Activations quantised(const float* from, int width) {
    const Activations quantised(width, rows_, bytes_);
    each_row(pool_, rows_, from, width, [&](int r, const float* row) { quantise_row_into(quantised, r, row); });
    return quantised;
  }

  // x += the product, normed if there is a weight.
  void add_product(const Activations& from, const Matrix& matrix, const float* post_norm, float eps) {
    const int width = matrix.out;
    const FloatKernels& k = float_kernels();
    if (post_norm == nullptr) {
      multiply(pool_, from, rows_, matrix, [&](int row, int height, int column, int count, const float* tile) {
        k.add_tile(tile, height, count, x_ + static_cast<size_t>(row) * width + column, width);
      });
      return;
    }
    // `attended_` has been quantised: its memory is free.
    multiply(pool_, from, rows_, matrix, into(attended_, width));
    each_row(pool_, rows_, attended_, width, [&](int r, const float*) {
      float* row = attended_ + static_cast<size_t>(r) * width;
      float* to = x_ + static_cast<size_t>(r) * width;
      k.rms_norm(row, post_norm, width, eps, row);
      k.add(to, row, width, to);
    });
  }

  // activation(gate) * up; a panel of gates and one of ups make a pair.
  void gate(const Activations& from, const TenutoDecoderLayer& w) {
    const int inner = w.down.in, panels = inner / kPanel;
    const FloatKernels& k = float_kernels();
    multiply_pairs(pool_, from, rows_, Matrix(w.gate_up), 1, panels, panels,
                   [&](int row, int height, int panel, const float* tile) {
                     float* to = wide_ + static_cast<size_t>(row) * inner + panel * kPanel;
                     k.gated_tile(tile, height, w.activation, to, inner);
                   });
  }

  void attend(const AttentionLayer& kv, int heads) {
    const bool window = kv.window > 0;
    const int share = heads / kv.kv_heads;
    const Sequences sequences{step_.query_starts, step_.kv_lens, step_.tables, step_.table_width, step_.sequences};
    thread_local AttentionPlan plans[2];  // keep their memory
    if (shares_[window] != share) plans[window].make(sequences, share, window, kv.quantised());
    shares_[window] = share;
    plans[window].run(pool_, sequences, kv, q_, heads, attended_);
  }

  TenutoPool* pool_;
  const TenutoStep& step_;
  const int rows_;
  float *x_, *wide_, *q_, *attended_;
  char* bytes_;
  int shares_[2] = {0, 0};  // which the plans were made for
};

}  // namespace
}  // namespace tenuto

using namespace tenuto;

TENUTO_API size_t tenuto_decoder_scratch_bytes(const TenutoDecoderLayer* layers, int count, int rows) {
  TenutoStep step{};
  step.rows = rows;
  return Pass(nullptr, step, Widths(layers, count, rows), nullptr, nullptr).bytes_used;
}

TENUTO_API void tenuto_decoder_layers(TenutoPool* pool, const TenutoDecoderLayer* layers, const TenutoLayer* kv,
                                      int count, const TenutoStep* step, float* x, void* scratch) {
  Pass pass(pool, *step, Widths(layers, count, step->rows), scratch, x);
  for (int i = 0; i < count; ++i) pass.layer(layers[i], kv[i]);
}
