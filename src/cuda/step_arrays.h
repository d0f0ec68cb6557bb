// What a device needs to know of a step, as flat arrays in one piece of memory that is copied over
// at once. Where the arrays stand depends on sizes rounded up (StepSizes), which are also what a
// recorded graph is good for: two steps of the same sizes run the same graph. Pure; host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/arena.h"
#include "cuda/operations.h"

namespace pelton::cuda {

struct StepSequence;
struct Step;

// Rounded up, each: the key of a graph.
struct StepSizes {
  int32_t rows = 0;
  int32_t logit_rows = 0;
  int32_t items[kKvGroupsMax] = {};
  int32_t spans = 0;  // the most that one row's attention is divided into; 0: none is divided
  SamplingNeeds sampling;

  bool operator==(const StepSizes&) const = default;
  auto operator<=>(const StepSizes&) const = default;
};

// The smallest size of 1, 2, 4, 8, then in steps of a quarter of a power of two, that holds
// `count`; 0 for 0.
int32_t rounded_up(int32_t count);

struct StepLayout {
  int64_t live;      // int32 (2): rows, rows whose logits are wanted
  int64_t arrivals;  // uint32, zero: of a persistent step, with a line of memory of its own
  int64_t tokens;
  int64_t positions;
  int64_t slots[kKvGroupsMax];  // int64 (rows)
  int64_t partial_rows;         // int32 (rows); groups with a window have no partials
  int64_t logit_rows;
  int64_t items[kKvGroupsMax];
  int64_t tables;  // int32, of unknown length: the end
};
StepLayout step_layout(const StepSizes& sizes);

// Room for any step within the limits.
int64_t step_bytes_max(const ModelShape& shape, const Limits& limits);

class StepArrays {
 public:
  StepArrays(const ModelShape& shape, const Limits& limits);

  // Lays the step out; `bytes()` are then what the device gets. Null, or what is wrong with it.
  // drawn: of each row of logits of the step before, whether the device drew its token (not 0).
  const char* set(const Step& step, std::span<const uint8_t> drawn = {});

  const StepSizes& sizes() const { return sizes_; }
  StepLayout layout() const { return step_layout(sizes_); }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  void plan_attention(const Step& step);
  void add_items(const StepSequence& sequence, int32_t first_row, int32_t table, int group);
  void write(const Step& step);

  const ModelShape shape_;
  const Limits limits_;
  int64_t partials_max_ = 0;  // spans of one row and all its heads
  StepSizes sizes_;
  std::vector<int32_t> tables_;
  std::vector<AttentionItem> items_[kKvGroupsMax];
  std::vector<int32_t> partial_rows_;
  int32_t partial_count_ = 0;
  int32_t spans_ = 0;
  int32_t items_max_[kKvGroupsMax] = {};
  std::vector<uint8_t> bytes_;
};

}  // namespace pelton::cuda
