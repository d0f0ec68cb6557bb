#include "executor/pooling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "executor/numerical_error.h"

namespace pelton::executor {

void Pooling::apply(const engine::StepPlan& plan) {
  for (const ScheduledRow& row : plan.sequences) {
    if (plan.arrival_of(row) != nullptr) sums_[static_cast<size_t>(row.slot)].clear();
  }
}

bool Pooling::reads_first(request::Pooling kind) const {
  return kind == request::Pooling::kFirst ||
         (kind == request::Pooling::kLabels && options_.labels_of_first);
}

Pooling::Rows Pooling::wanted_rows(const engine::StepPlan& plan, std::span<const int> first_rows,
                                   const SlotTable& slots) const {
  Rows wanted;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    const std::optional<request::Pooling>& kind = slots[row.slot].pooling;
    const int begin = first_rows[i];
    const int end = begin + row.token_count();
    const auto want = [&](int at) {
      wanted.rows.push_back(at);
      wanted.sequences.push_back(i);
    };
    if (kind == request::Pooling::kMean || kind == request::Pooling::kAll ||
        kind == request::Pooling::kWeights) {
      for (int at = begin; at < end; ++at) want(at);
    } else if (kind && reads_first(*kind)) {
      if (row.start == 0) want(begin);
    } else if (kind && row.embed) {
      want(end - 1);
    }
  }
  return wanted;
}

// A state does not depend on its batch, and a mean adds them in the order of positions: so neither
// do embeddings.
Result<void> Pooling::pool(const engine::StepPlan& plan, std::span<const int> first_rows,
                           const SlotTable& slots, StepModel& model, engine::StepResult& result) {
  const Rows wanted = wanted_rows(plan, first_rows, slots);
  const auto size = static_cast<size_t>(options_.embedding_size);
  const auto add = [&](size_t index, const float* state) {
    const engine::Slot slot = plan.sequences[wanted.sequences[index]].slot;
    std::vector<double>& sum = sums_[static_cast<size_t>(slot)];
    if (slots[slot].pooling == request::Pooling::kAll) {
      sum.insert(sum.end(), state, state + size);
      return;
    }
    if (slots[slot].pooling == request::Pooling::kWeights) {
      CHECK(options_.sparse_head.has_value(), "the scheduler refuses it");
      return sum.push_back(options_.sparse_head->weight_of({state, size}));
    }
    if (slots[slot].pooling != request::Pooling::kMean) return sum.assign(state, state + size);
    sum.resize(size, 0.0);
    for (size_t i = 0; i < size; ++i) sum[i] += static_cast<double>(state[i]);
  };
  if (!wanted.rows.empty()) TRY(model.normed_rows(wanted.rows, add));
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    if (!row.embed) continue;
    TRY(finish(row, slots[row.slot], model, result.sequences[i], result.floats));
  }
  return {};
}

Result<void> Pooling::finish(const ScheduledRow& row, const Slot& slot, StepModel& model,
                             engine::SequenceResult& given, std::vector<float>& floats) {
  std::vector<double>& sum = sums_[static_cast<size_t>(row.slot)];
  const bool is_mean = slot.pooling == request::Pooling::kMean;
  const double count = is_mean ? row.start + row.token_count() : 1;
  std::vector<float> values;
  values.reserve(sum.size());
  for (const double value : sum) values.push_back(static_cast<float>(value / count));
  sum.clear();
  TRY(score(slot, model, values));
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    given.error = std::make_unique<Error>(numerical_error());
    return {};
  }
  const auto first = static_cast<int32_t>(floats.size());
  floats.insert(floats.end(), values.begin(), values.end());
  given.embedding = {first, static_cast<int32_t>(values.size())};
  return {};
}

Result<void> Pooling::score(const Slot& slot, StepModel& model, std::vector<float>& state) const {
  std::vector<float> scores;
  if (slot.pooling == request::Pooling::kLabels) {
    scores.resize(static_cast<size_t>(options_.label_count));
    TRY(model.labels_of(state.data(), scores.data()));
  } else if (slot.pooling == request::Pooling::kTokens) {
    scores.resize(slot.label_tokens.size());
    TRY(model.token_logits_of(state.data(), slot.label_tokens, scores.data()));
  } else {
    return {};
  }
  state = std::move(scores);
  return {};
}

}  // namespace pelton::executor
