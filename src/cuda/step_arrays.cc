#include "cuda/step_arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cuda/device_abi.h"

namespace pelton::cuda {
namespace {

constexpr int64_t kArrivalsBytes = 128;

constexpr int64_t aligned(int64_t offset) {
  return (offset + 15) / 16 * 16;
}

int32_t rows_of_item(const ModelShape& shape) {
  return kQueryRows / (shape.heads / shape.kv_heads);
}

int32_t first_seen(int32_t position, int32_t window) {
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

// What the step reads or writes must be there: a wrong number would be read from anywhere.
const char* wrong_blocks(const StepSequence& sequence, const ModelShape& shape,
                         const Limits& limits) {
  const int32_t last = (sequence.start + sequence.count - 1) / kBlockTokens;
  for (int group = 0; group < shape.kv_groups; ++group) {
    const int32_t first = first_seen(sequence.start, shape.windows[group]) / kBlockTokens;
    for (int32_t b = first; b <= last; ++b) {
      const int32_t block = sequence.blocks[group][b];
      if (block < 0 || block >= limits.kv_blocks[group]) {
        return "a block of keys and values that there is not";
      }
    }
  }
  return nullptr;
}

template <typename T>
void put(std::vector<uint8_t>& bytes, int64_t offset, const std::vector<T>& values) {
  if (values.empty()) return;
  std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
}

}  // namespace

int32_t rounded_up(int32_t count) {
  if (count <= 2) return count;
  const auto power = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(count - 1)));
  const int32_t step = std::max(power / 4, count <= 8 ? power : 1);
  return (count + step - 1) / step * step;
}

StepLayout step_layout(const StepSizes& sizes) {
  StepLayout out{};
  int64_t next = 0;
  const auto take = [&](int64_t count, int64_t each) {
    const int64_t at = next;
    next = aligned(next + count * each);
    return at;
  };
  out.live = take(2, 4);
  next = kArrivalsBytes;
  out.arrivals = take(1, kArrivalsBytes);
  out.tokens = take(sizes.rows, 4);
  out.positions = take(sizes.rows, 4);
  for (int64_t& slots : out.slots) slots = take(sizes.rows, 8);
  out.partial_rows = take(sizes.rows, 4);
  out.logit_rows = take(sizes.logit_rows, 4);
  for (int group = 0; group < kKvGroupsMax; ++group) {
    out.items[group] = take(sizes.items[group], sizeof(AttentionItem));
  }
  out.tables = next;
  return out;
}

// Items: no more than one for each row, or, of rows divided, one for each span; of those the
// partials' room allows a limited number.
int64_t step_bytes_max(const ModelShape& shape, const Limits& limits) {
  const int64_t span_bytes = int64_t{shape.heads} * (shape.head_size + 2) * 4;
  const int64_t items = limits.rows_max + limits.partial_bytes_max / span_bytes;
  StepSizes sizes;
  sizes.rows = rounded_up(limits.rows_max);
  sizes.logit_rows = rounded_up(limits.logit_rows_max);
  for (int group = 0; group < shape.kv_groups; ++group) {
    sizes.items[group] =
        rounded_up(shape.windows[group] == 0 ? static_cast<int32_t>(items) : limits.rows_max);
  }
  const int64_t blocks_each = (limits.positions_max + kBlockTokens - 1) / kBlockTokens;
  // Rows of one sequence share tables; sequences that share blocks still have tables of their own.
  return step_layout(sizes).tables +
         int64_t{limits.sequences_max} * shape.kv_groups * blocks_each * 4;
}

StepArrays::StepArrays(const ModelShape& shape, const Limits& limits)
    : shape_(shape),
      limits_(limits),
      partials_max_(limits.partial_bytes_max / (int64_t{shape.heads} * (shape.head_size + 2) * 4)) {
}

const char* StepArrays::set(const Step& step, std::span<const uint8_t> drawn) {
  if (step.row_count <= 0 || step.row_count > limits_.rows_max) return "a step of too many rows";
  if (step.sequence_count > limits_.sequences_max) return "a step of too many sequences";
  if (step.logit_row_count > limits_.logit_rows_max) return "a step with too many rows of logits";
  if (step.sampling != nullptr) {
    if (const char* wrong =
            wrong_sampling(*step.sampling, step.logit_row_count, shape_.vocab, drawn)) {
      return wrong;
    }
  }
  int64_t rows = 0;
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    const StepSequence& sequence = step.sequences[s];
    if (sequence.count <= 0 || sequence.start < 0 ||
        int64_t{sequence.start} + sequence.count > limits_.positions_max) {
      return "a sequence beyond the longest";
    }
    rows += sequence.count;
  }
  if (rows != step.row_count) return "sequences that are not the step's rows";
  for (int32_t i = 0; i < step.row_count; ++i) {
    const int32_t token = step.tokens[i];
    if (token >= shape_.vocab) return "a token that there is not";
    if (token >= 0) continue;
    const auto row = static_cast<size_t>(~token);
    if (row >= drawn.size() || drawn[row] == 0) return "a token that was not drawn on the device";
  }
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    if (const char* wrong = wrong_blocks(step.sequences[s], shape_, limits_)) return wrong;
  }
  plan_attention(step);
  sizes_ = {.rows = rounded_up(step.row_count),
            .logit_rows = rounded_up(step.logit_row_count),
            .spans = spans_,
            .sampling = step.sampling != nullptr
                            ? sampling_needs(*step.sampling, step.logit_row_count)
                            : SamplingNeeds{}};
  for (int group = 0; group < shape_.kv_groups; ++group) {
    sizes_.items[group] = rounded_up(items_max_[group]);
  }
  write(step);
  return nullptr;
}

void StepArrays::plan_attention(const Step& step) {
  tables_.clear();
  for (std::vector<AttentionItem>& items : items_) items.clear();
  partial_rows_.assign(static_cast<size_t>(step.row_count), -1);
  partial_count_ = 0;
  // Rows that are alone in their sequence and see more than one span are divided among warps, if
  // there is room for their parts. All get as much room as the longest.
  spans_ = 0;
  int64_t divided = 0;
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    const StepSequence& sequence = step.sequences[s];
    if (sequence.count != 1 || sequence.start < kSpanTokens) continue;
    ++divided;
    spans_ = std::max(spans_, sequence.start / kSpanTokens + 1);
  }
  spans_ = rounded_up(spans_);
  if (divided * spans_ > partials_max_) spans_ = 0;
  // As if all had the longest's spans: so that sizes change as seldom as those do.
  for (int group = 0; group < shape_.kv_groups; ++group) {
    const bool divides = spans_ > 0 && shape_.windows[group] == 0;
    items_max_[group] = static_cast<int32_t>(divides ? divided * spans_ : 0);
  }

  int32_t row = 0;
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    const StepSequence& sequence = step.sequences[s];
    const int32_t blocks = (sequence.start + sequence.count - 1) / kBlockTokens + 1;
    for (int group = 0; group < shape_.kv_groups; ++group) {
      const auto table = static_cast<int32_t>(tables_.size());
      const int32_t* from = sequence.blocks[group];
      tables_.insert(tables_.end(), from, from + blocks);
      add_items(sequence, row, table, group);
    }
    row += sequence.count;
  }
}

void StepArrays::add_items(const StepSequence& sequence, int32_t first_row, int32_t table,
                           int group) {
  std::vector<AttentionItem>& items = items_[group];
  const int32_t window = shape_.windows[group];
  const bool is_divided =
      window == 0 && spans_ > 0 && sequence.count == 1 && sequence.start >= kSpanTokens;
  if (is_divided) {
    int32_t& partial = partial_rows_[static_cast<size_t>(first_row)];
    if (partial < 0) partial = partial_count_++;
    for (int32_t span = 0; span <= sequence.start / kSpanTokens; ++span) {
      items.push_back({first_row, 1, sequence.start, table, span, span + 1, partial});
    }
    return;
  }
  items_max_[group] += (sequence.count - 1) / rows_of_item(shape_) + 1;
  const int32_t each = rows_of_item(shape_);
  for (int32_t i = 0; i < sequence.count; i += each) {
    const int32_t count = std::min(each, sequence.count - i);
    const int32_t start = sequence.start + i;
    items.push_back({first_row + i, count, start, table, first_seen(start, window) / kSpanTokens,
                     (start + count - 1) / kSpanTokens + 1, -1});
  }
}

void StepArrays::write(const Step& step) {
  const StepLayout layout = step_layout(sizes_);
  bytes_.assign(static_cast<size_t>(layout.tables) + tables_.size() * sizeof(int32_t), 0);
  std::vector<int32_t> positions;
  std::vector<int64_t> slots[kKvGroupsMax];
  const auto slot = [](const int32_t* blocks, int32_t position) {
    return int64_t{blocks[position / kBlockTokens]} * kBlockTokens + position % kBlockTokens;
  };
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    const StepSequence& sequence = step.sequences[s];
    for (int32_t p = sequence.start; p < sequence.start + sequence.count; ++p) {
      positions.push_back(p);
      for (int group = 0; group < shape_.kv_groups; ++group) {
        slots[group].push_back(slot(sequence.blocks[group], p));
      }
    }
  }
  put(bytes_, layout.live, std::vector<int32_t>{step.row_count, step.logit_row_count});
  put(bytes_, layout.tokens, std::vector<int32_t>(step.tokens, step.tokens + step.row_count));
  put(bytes_, layout.positions, positions);
  for (int group = 0; group < shape_.kv_groups; ++group) {
    put(bytes_, layout.slots[group], slots[group]);
    put(bytes_, layout.items[group], items_[group]);
  }
  put(bytes_, layout.partial_rows, partial_rows_);
  put(bytes_, layout.logit_rows,
      std::vector<int32_t>(step.logit_rows, step.logit_rows + step.logit_row_count));
  put(bytes_, layout.tables, tables_);
}

}  // namespace pelton::cuda
