#include "executor/pooling.h"

#include <cmath>

#include "executor/numerical_error.h"

namespace pelton::executor {

void Pooling::apply(const engine::StepPlan& plan) {
  for (const ScheduledRow& row : plan.sequences) {
    if (plan.arrival_of(row) != nullptr) sums_[static_cast<size_t>(row.slot)].clear();
  }
}

Pooling::Rows Pooling::wanted_rows(const engine::StepPlan& plan, const SlotTable& slots) {
  Rows wanted;
  int begin = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    const std::optional<request::Pooling>& kind = slots[row.slot].pooling;
    const int end = begin + row.token_count();
    int first = end;
    if (kind == request::Pooling::kMean) first = begin;
    if (kind == request::Pooling::kLast && row.embed) first = end - 1;
    for (int at = first; at < end; ++at) {
      wanted.rows.push_back(at);
      wanted.sequences.push_back(i);
    }
    begin = end;
  }
  return wanted;
}

// A state does not depend on its batch, and a mean adds them in the order of positions: so neither
// do embeddings.
Result<void> Pooling::pool(const engine::StepPlan& plan, const SlotTable& slots, StepModel& model,
                           engine::StepResult& result) {
  const Rows wanted = wanted_rows(plan, slots);
  if (wanted.rows.empty()) return {};
  const auto size = static_cast<size_t>(embedding_size_);
  const auto add = [&](size_t index, const float* state) {
    const engine::Slot slot = plan.sequences[wanted.sequences[index]].slot;
    std::vector<double>& sum = sums_[static_cast<size_t>(slot)];
    if (slots[slot].pooling == request::Pooling::kLast) return sum.assign(state, state + size);
    sum.resize(size, 0.0);
    for (size_t i = 0; i < size; ++i) sum[i] += static_cast<double>(state[i]);
  };
  TRY(model.normed_rows(wanted.rows, add));
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    if (row.embed) finish(row, slots[row.slot], result.sequences[i], result.floats);
  }
  return {};
}

void Pooling::finish(const ScheduledRow& row, const Slot& slot, engine::SequenceResult& given,
                     std::vector<float>& floats) {
  std::vector<double>& sum = sums_[static_cast<size_t>(row.slot)];
  const bool is_mean = slot.pooling == request::Pooling::kMean;
  const double count = is_mean ? row.start + row.token_count() : 1;
  const auto first = static_cast<int32_t>(floats.size());
  bool finite = true;
  for (const double value : sum) {
    floats.push_back(static_cast<float>(value / count));
    finite = finite && std::isfinite(floats.back());
  }
  sum.clear();
  if (finite) {
    given.embedding = {first, embedding_size_};
  } else {
    given.error = std::make_unique<Error>(numerical_error());
  }
}

}  // namespace pelton::executor
