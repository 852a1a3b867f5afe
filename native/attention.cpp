// Attention of a step: rows into tiles, tiles to threads.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention_plan.h"

namespace tenuto {
namespace {

constexpr int kSpread = 4;  // tiles of a step from which on it fills the threads
constexpr int kLine = 16;   // floats between heads, so that they do not all want the same places of a cache

// Rows of a tile, with so many query heads of a KV head each.
int rows_of_tile(int share) { return std::max(1, kMaxHeads / share); }

// Splits at the beginning of which two sequences read the same blocks, and which both have wholly behind them.
int common_splits(const Sequences& sequences, int a, int b) {
  const int most = std::min(sequences.position(a), sequences.position(b)) / kSplit;
  const int64_t *left = sequences.table(a), *right = sequences.table(b);
  int blocks = 0;
  while (blocks < most * kSplitBlocks && left[blocks] == right[blocks]) ++blocks;
  return blocks / kSplitBlocks;
}

// The query heads of one part, or of all parts of a group, with the memory they work in.
class Workspace {
 public:
  HeadRows tiles[kMaxTiles];

  void add(const AttentionLayer& layer, int tile, const float* q, int position) {
    HeadRows& rows = tiles[tile];
    const int at = rows.count++;
    rows.positions[at] = position;
    rows.highest[at] = -std::numeric_limits<float>::infinity();
    rows.total[at] = 0;
    rows.q[at] = q;
    rows.out[at] = sums_[tile * kMaxHeads + at];
    std::fill(rows.out[at], rows.out[at] + layer.head_size, 0.0f);
    int8_t* bytes = bytes_[tile * kMaxHeads];
    rows.bytes = bytes;
    if (!layer.quantised()) return;
    rows.scales[at] = float_kernels().quantise_query(q, layer.head_size, bytes + at * kMaxHeadSize, &rows.sums[at]);
  }

  void attend(const AttentionLayer& layer, int kv_head, const int64_t* table, int first, int end, HeadRows* some,
              int count) {
    for (int i = 0; i < count; ++i) fill_up(some[i]);
    const FloatKernels& k = float_kernels();
    (layer.quantised() ? k.attend_int8 : k.attend)(layer, kv_head, table, first, end, some, count);
  }

 private:
  // With copies of the last head, whose results nobody reads.
  void fill_up(HeadRows& rows) {
    for (int h = rows.count; h < kMaxHeads; ++h) {
      const int last = rows.count - 1;
      rows.positions[h] = rows.positions[last];
      rows.highest[h] = rows.highest[last];
      rows.total[h] = 0;
      rows.q[h] = rows.q[last];
      rows.scales[h] = rows.scales[last];
      rows.sums[h] = rows.sums[last];
      rows.out[h] = sums_[kMaxTiles * kMaxHeads];
    }
  }

  alignas(64) int8_t bytes_[(kMaxTiles + 1) * kMaxHeads][kMaxHeadSize];  // where heads fill up, what comes next is read
  alignas(64) float sums_[kMaxTiles * kMaxHeads + 1][kMaxHeadSize + kLine];  // the last for heads that fill up
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

// The sums of heads, divided by their weights: `width` heads to each row from `out` on, rows `stride` floats apart.
void write(const HeadRows& rows, int head_size, int width, int stride, float* out) {
  for (int h = 0; h < rows.count; ++h) {
    const float *sums = rows.out[h], share = 1.0f / rows.total[h];
    float* to = out + static_cast<size_t>(h / width) * stride + h % width * head_size;
    for (int d = 0; d < head_size; ++d) to[d] = sums[d] * share;
  }
}

}  // namespace

void AttentionPlan::make(const Sequences& sequences, int share, bool window, bool quantised) {
  const int together = rows_of_tile(share), tiles = quantised ? float_kernels().int8_tiles : 1;
  parts_.clear();
  groups_.clear();
  taken_.assign(sequences.count, 0);
  if (!window && together > 1) group(sequences, together);
  const int rows = sequences.query_starts[sequences.count];
  for (int s = 0; s < sequences.count; ++s) {
    if (taken_[s]) continue;
    // Few rows are spread over the threads, rather than computed side by side.
    const int most = rows < kSpread * together ? together : tiles * together;
    for (int first = sequences.query_starts[s]; first < sequences.query_starts[s + 1]; first += most) {
      const int at = static_cast<int>(parts_.size());
      parts_.push_back({s, first, std::min(most, sequences.query_starts[s + 1] - first)});
      groups_.push_back({at, at + 1, 0});
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
    // Groups of about the same size, since a thread that has the largest one is waited for.
    const int all = static_cast<int>(mates_.size()) + 1, groups = (all + together - 1) / together;
    mates_.resize((all + groups - 1) / groups - 1);
    const int begin = static_cast<int>(parts_.size());
    int shared = std::numeric_limits<int>::max();
    for (const Mate& mate : mates_) {
      shared = std::min(shared, mate.common);
      parts_.push_back({mate.sequence, sequences.query_starts[mate.sequence], 1});
      taken_[mate.sequence] = 1;
    }
    parts_.push_back({s, sequences.query_starts[s], 1});
    taken_[s] = 1;
    groups_.push_back({begin, static_cast<int>(parts_.size()), shared});
  }
}

void AttentionPlan::run(TenutoPool* pool, const Sequences& sequences, const AttentionLayer& layer, const float* q,
                        int heads, float* out) const {
  const int share = heads / layer.kv_heads, size = layer.head_size, stride = heads * size;
  const int together = rows_of_tile(share);
  // Tasks are (group, KV head). They differ in length; taken one by one, they even out.
  pool->run(static_cast<int>(groups_.size()) * layer.kv_heads, [&](int task) {
    const Group& group = groups_[task / layer.kv_heads];
    const int kv_head = task % layer.kv_heads;
    const Part *begin = parts_.data() + group.begin, *end = parts_.data() + group.end;
    Workspace work;
    const auto place = [&](int row, int head) {
      return static_cast<size_t>(row) * stride + static_cast<size_t>(kv_head * share + head) * size;
    };
    // The heads of a share that is larger than a tile are taken some at a time.
    for (int from = 0; from < share; from += kMaxHeads) {
      const int width = std::min(share - from, kMaxHeads);
      for (HeadRows& rows : work.tiles) rows.count = 0;
      for (const Part* part = begin; part < end; ++part) {
        const int position = sequences.position(part->sequence) + part->first - sequences.query_starts[part->sequence];
        for (int r = 0; r < part->rows; ++r)
          for (int h = 0; h < width; ++h)
            work.add(layer, r / together, q + place(part->first + r, from + h), position + r);
      }
      HeadRows& rows = work.tiles[0];
      if (group.shared == 0) {
        const int tiles = (begin->rows + together - 1) / together;
        const HeadRows& last = work.tiles[tiles - 1];
        const int first_split = layer.first_key(rows.positions[0]) / kSplit;
        work.attend(layer, kv_head, sequences.table(begin->sequence), first_split,
                    last.positions[last.count - 1] / kSplit + 1, work.tiles, tiles);
        for (int i = 0; i < tiles; ++i)
          write(work.tiles[i], size, width, stride, out + place(begin->first + i * together, from));
        continue;
      }
      // All of them see all of the shared keys, whatever their order; the rest is each one's own.
      HeadRows all = slice(rows, 0, rows.count);
      std::fill(all.positions, all.positions + all.count, group.shared * kSplit - 1);
      work.attend(layer, kv_head, sequences.table(begin->sequence), 0, group.shared, &all, 1);
      std::copy_n(all.highest, all.count, rows.highest);
      std::copy_n(all.total, all.count, rows.total);
      for (const Part* part = begin; part < end; ++part) {
        HeadRows own = slice(rows, static_cast<int>(part - begin) * width, width);
        const int end_split = own.positions[0] / kSplit + 1;
        work.attend(layer, kv_head, sequences.table(part->sequence), group.shared, end_split, &own, 1);
        write(own, size, width, stride, out + place(part->first, from));
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
  plan.make(all, heads / kv.kv_heads, kv.window > 0, kv.quantised());
  plan.run(pool, all, kv, q, heads, out);
}
