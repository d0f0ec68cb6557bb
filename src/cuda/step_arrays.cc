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
  for (int32_t b = 0; b <= last; ++b) {
    if (sequence.full_blocks[b] < 0 || sequence.full_blocks[b] >= limits.full_blocks) {
      return "a block of keys and values that there is not";
    }
  }
  for (int32_t b = first_seen(sequence.start, shape.window) / kBlockTokens; b <= last; ++b) {
    if (sequence.window_blocks[b] < 0 || sequence.window_blocks[b] >= limits.window_blocks) {
      return "a window block of keys and values that there is not";
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
  out.full_slots = take(sizes.rows, 8);
  out.window_slots = take(sizes.rows, 8);
  out.partial_rows = take(sizes.rows, 4);
  out.logit_rows = take(sizes.logit_rows, 4);
  out.full_items = take(sizes.full_items, sizeof(AttentionItem));
  out.window_items = take(sizes.window_items, sizeof(AttentionItem));
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
  sizes.full_items = rounded_up(static_cast<int32_t>(items));
  sizes.window_items = rounded_up(limits.rows_max);
  const int64_t blocks_each = (limits.positions_max + kBlockTokens - 1) / kBlockTokens;
  // Rows of one sequence share tables; sequences that share blocks still have tables of their own.
  return step_layout(sizes).tables + int64_t{limits.sequences_max} * 2 * blocks_each * 4;
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
            .full_items = rounded_up(full_items_max_),
            .window_items = rounded_up(static_cast<int32_t>(window_items_.size())),
            .spans = spans_,
            .sampling = step.sampling != nullptr
                            ? sampling_needs(*step.sampling, step.logit_row_count)
                            : SamplingNeeds{}};
  write(step);
  return nullptr;
}

void StepArrays::plan_attention(const Step& step) {
  tables_.clear();
  full_items_.clear();
  window_items_.clear();
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
  full_items_max_ = static_cast<int32_t>(spans_ > 0 ? divided * spans_ : 0);

  int32_t row = 0;
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    const StepSequence& sequence = step.sequences[s];
    const int32_t blocks = (sequence.start + sequence.count - 1) / kBlockTokens + 1;
    for (const bool is_window : {false, true}) {
      const auto table = static_cast<int32_t>(tables_.size());
      const int32_t* from = is_window ? sequence.window_blocks : sequence.full_blocks;
      tables_.insert(tables_.end(), from, from + blocks);
      add_items(sequence, row, table, is_window);
    }
    row += sequence.count;
  }
}

void StepArrays::add_items(const StepSequence& sequence, int32_t first_row, int32_t table,
                           bool is_window) {
  std::vector<AttentionItem>& items = is_window ? window_items_ : full_items_;
  const int32_t window = is_window ? shape_.window : 0;
  const bool is_divided =
      !is_window && spans_ > 0 && sequence.count == 1 && sequence.start >= kSpanTokens;
  if (is_divided) {
    partial_rows_[static_cast<size_t>(first_row)] = partial_count_;
    for (int32_t span = 0; span <= sequence.start / kSpanTokens; ++span) {
      items.push_back({first_row, 1, sequence.start, table, span, span + 1, partial_count_});
    }
    ++partial_count_;
    return;
  }
  if (!is_window) full_items_max_ += (sequence.count - 1) / rows_of_item(shape_) + 1;
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
  std::vector<int64_t> full_slots;
  std::vector<int64_t> window_slots;
  const auto slot = [](const int32_t* blocks, int32_t position) {
    return int64_t{blocks[position / kBlockTokens]} * kBlockTokens + position % kBlockTokens;
  };
  for (int32_t s = 0; s < step.sequence_count; ++s) {
    const StepSequence& sequence = step.sequences[s];
    for (int32_t p = sequence.start; p < sequence.start + sequence.count; ++p) {
      positions.push_back(p);
      full_slots.push_back(slot(sequence.full_blocks, p));
      window_slots.push_back(slot(sequence.window_blocks, p));
    }
  }
  put(bytes_, layout.live, std::vector<int32_t>{step.row_count, step.logit_row_count});
  put(bytes_, layout.tokens, std::vector<int32_t>(step.tokens, step.tokens + step.row_count));
  put(bytes_, layout.positions, positions);
  put(bytes_, layout.full_slots, full_slots);
  put(bytes_, layout.window_slots, window_slots);
  put(bytes_, layout.partial_rows, partial_rows_);
  put(bytes_, layout.logit_rows,
      std::vector<int32_t>(step.logit_rows, step.logit_rows + step.logit_row_count));
  put(bytes_, layout.full_items, full_items_);
  put(bytes_, layout.window_items, window_items_);
  put(bytes_, layout.tables, tables_);
}

}  // namespace pelton::cuda
