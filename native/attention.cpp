// Attention of a step: rows into tiles, tiles to threads.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention_plan.h"

namespace tenuto {
namespace {

// Splits at the beginning of which two sequences read the same blocks, and which both have wholly behind them.
int common_splits(const Sequences& sequences, int a, int b) {
  const int most = std::min(sequences.position(a), sequences.position(b)) / kSplit;
  const int64_t *left = sequences.table(a), *right = sequences.table(b);
  int blocks = 0;
  while (blocks < most * kSplitBlocks && left[blocks] == right[blocks]) ++blocks;
  return blocks / kSplitBlocks;
}

// The query heads of one part, or of all parts of a tile, with the memory they work in.
struct Workspace {
  alignas(64) int8_t bytes[2 * kMaxHeads][kMaxHeadSize];  // heads that are only there to fill up read on
  alignas(64) float sums[kMaxHeads + 1][kMaxHeadSize];  // the last for heads that are only there to fill up
  HeadRows rows;

  void add(const AttentionLayer& layer, const float* q, int position) {
    const int at = rows.count++;
    rows.positions[at] = position;
    rows.highest[at] = -std::numeric_limits<float>::infinity();
    rows.total[at] = 0;
    rows.q[at] = q;
    rows.out[at] = sums[at];
    std::fill(sums[at], sums[at] + layer.head_size, 0.0f);
    if (!layer.quantised()) return;
    rows.scales[at] = float_kernels().quantise_query(q, layer.head_size, bytes[at], &rows.sums[at]);
  }

  void attend(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows& some) {
    for (int h = some.count; h < kMaxHeads; ++h) {
      const int last = some.count - 1;
      some.positions[h] = some.positions[last];
      some.highest[h] = some.highest[last];
      some.total[h] = 0;
      some.q[h] = some.q[last];
      some.scales[h] = some.scales[last];
      some.sums[h] = some.sums[last];
      some.out[h] = sums[kMaxHeads];
    }
    const FloatKernels& k = float_kernels();
    (layer.quantised() ? k.attend_int8 : k.attend)(layer, kv_head, table, first, end, some);
  }
};

HeadRows slice(const HeadRows& rows, int first, int count) {
  HeadRows some;
  some.count = count;
  auto copy = [&](auto& to, const auto& from) { std::copy_n(from + first, count, to); };
  copy(some.positions, rows.positions);
  copy(some.highest, rows.highest);
  copy(some.total, rows.total);
  copy(some.out, rows.out);
  copy(some.q, rows.q);
  some.bytes = rows.bytes + static_cast<size_t>(first) * kMaxHeadSize;
  copy(some.scales, rows.scales);
  copy(some.sums, rows.sums);
  return some;
}

}  // namespace

void AttentionPlan::make(const Sequences& sequences, int share, bool window) {
  const int together = std::max(1, kMaxHeads / share);
  parts_.clear();
  tiles_.clear();
  taken_.assign(sequences.count, 0);
  if (!window && together > 1) group(sequences, together);
  for (int s = 0; s < sequences.count; ++s) {
    if (taken_[s]) continue;
    for (int first = sequences.query_starts[s]; first < sequences.query_starts[s + 1]; first += together) {
      const int at = static_cast<int>(parts_.size());
      parts_.push_back({s, first, std::min(together, sequences.query_starts[s + 1] - first)});
      tiles_.push_back({at, at + 1, 0});
    }
  }
}

void AttentionPlan::group(const Sequences& sequences, int together) {
  for (int s = 0; s < sequences.count; ++s) {
    if (taken_[s] || sequences.rows(s) != 1) continue;
    mates_.clear();
    for (int other = s + 1; other < sequences.count; ++other) {
      if (taken_[other] || sequences.rows(other) != 1) continue;
      const int common = common_splits(sequences, s, other);
      if (common > 0) mates_.push_back({other, common});
    }
    if (mates_.empty()) continue;
    // Tiles of about the same size, since a thread that has the largest one is waited for.
    const int all = static_cast<int>(mates_.size()) + 1, tiles = (all + together - 1) / together;
    mates_.resize((all + tiles - 1) / tiles - 1);
    const int begin = static_cast<int>(parts_.size());
    int shared = std::numeric_limits<int>::max();
    for (const Mate& mate : mates_) {
      shared = std::min(shared, mate.common);
      parts_.push_back({mate.sequence, sequences.query_starts[mate.sequence], 1});
      taken_[mate.sequence] = 1;
    }
    parts_.push_back({s, sequences.query_starts[s], 1});
    taken_[s] = 1;
    tiles_.push_back({begin, static_cast<int>(parts_.size()), shared});
  }
}

void AttentionPlan::run(TenutoPool* pool, const Sequences& sequences, const AttentionLayer& layer, const float* q,
                        int heads, float* out) const {
  const int share = heads / layer.kv_heads, size = layer.head_size;
  // Tasks are (tile, KV head). They differ in length; taken one by one, they even out.
  pool->run(static_cast<int>(tiles_.size()) * layer.kv_heads, [&](int task) {
    const Tile& tile = tiles_[task / layer.kv_heads];
    const int kv_head = task % layer.kv_heads;
    const Part *begin = parts_.data() + tile.begin, *end = parts_.data() + tile.end;
    Workspace work;
    auto place = [&](int row, int head) {
      return (static_cast<size_t>(row) * heads + kv_head * share + head) * size;
    };
    // The heads of a group that is larger than a tile are taken some at a time.
    for (int from = 0; from < share; from += kMaxHeads) {
      const int width = std::min(share - from, kMaxHeads);
      work.rows.count = 0;
      work.rows.bytes = work.bytes[0];
      for (const Part* part = begin; part < end; ++part)
        for (int r = 0; r < part->rows; ++r)
          for (int h = 0; h < width; ++h)
            work.add(layer, q + place(part->first + r, from + h), sequences.position(part->sequence) + part->first + r -
                                                                      sequences.query_starts[part->sequence]);
      if (tile.shared > 0) {
        // All of them see all of the shared keys, whatever their order.
        HeadRows all = slice(work.rows, 0, work.rows.count);
        std::fill(all.positions, all.positions + all.count, tile.shared * kSplit - 1);
        work.attend(layer, kv_head, sequences.table(begin->sequence), 0, tile.shared, all);
        std::copy_n(all.highest, all.count, work.rows.highest);
        std::copy_n(all.total, all.count, work.rows.total);
      }
      int at = 0;
      for (const Part* part = begin; part < end; ++part) {
        HeadRows own = slice(work.rows, at, part->rows * width);
        const int last = own.positions[own.count - 1];
        const int first = std::max(tile.shared, layer.first_key(own.positions[0]) / kSplit);
        work.attend(layer, kv_head, sequences.table(part->sequence), first, last / kSplit + 1, own);
        for (int r = 0; r < part->rows; ++r)
          for (int h = 0; h < width; ++h) {
            const int row = r * width + h;
            const float* sum = own.out[row];
            float* to = out + place(part->first + r, from + h);
            for (int d = 0; d < size; ++d) to[d] = sum[d] / own.total[row];
          }
        at += own.count;
      }
    }
  });
}

}  // namespace tenuto

using namespace tenuto;

TENUTO_API void tenuto_attention(TenutoPool* pool, const float* q, int heads, const int32_t* query_starts,
                                 const int32_t* kv_lens, const int64_t* tables, int table_width, int sequences,
                                 const TenutoLayer* layer, float* out) {
  const AttentionLayer kv(*layer);
  const Sequences all{query_starts, kv_lens, tables, table_width, sequences};
  thread_local AttentionPlan plan;  // keeps its memory
  plan.make(all, heads / kv.kv_heads, kv.window > 0);
  plan.run(pool, all, kv, q, heads, out);
}
