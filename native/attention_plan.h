// Which query rows are computed together.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "thread_pool.h"

namespace tenuto {

// The sequences of a step; see `tenuto_attention`.
struct Sequences {
  const int32_t* query_starts;
  const int32_t* kv_lens;
  const int64_t* tables;
  int table_width, count;

  int rows(int s) const { return query_starts[s + 1] - query_starts[s]; }
  int position(int s) const { return kv_lens[s] - rows(s); }  // of its first row
  const int64_t* table(int s) const { return tables + static_cast<size_t>(s) * table_width; }
};

// Groups of some rows each. The rows of a group are of one sequence, and make a tile or two; or they are the single rows
// of several sequences whose first blocks are the same ones, which are then read once for all of them.
//
// Splits of keys are the same in any company, and so is a row's result.
class AttentionPlan {
 public:
  struct Part {
    int sequence, first, rows;  // rows first .. of the step
  };
  struct Group {
    int begin, end;  // parts
    int shared;      // splits that all parts have in common; 0 if there is one part
  };

  // `share`: query heads of a KV head.
  void make(const Sequences& sequences, int share, bool window, bool quantised);
  // q, out: [rows, heads, head_size].
  void run(TenutoPool* pool, const Sequences& sequences, const AttentionLayer& layer, const float* q, int heads,
           float* out) const;

 private:
  struct Mate {
    int sequence, common;  // splits
  };
  void group(const Sequences& sequences, int together);

  std::vector<Part> parts_;
  std::vector<Group> groups_;
  std::vector<char> taken_;  // sequences that are in a group
  std::vector<Mate> mates_;  // of the sequence that is grouped
};

}  // namespace tenuto
