#include "simulator/replica_costs.h"

#include <algorithm>
#include <vector>

namespace pelton::simulator {

cluster::RoutedGroups routed_groups(const engine::ExecutorCapacity& capacity) {
  std::vector<int> windows;
  for (const kv::GroupCapacity& group : capacity.groups) {
    windows.push_back(group.spec.sliding_window);
  }
  return cluster::routed_groups(windows, capacity.block_tokens);
}

cluster::StepCosts step_costs(const cost_model::StepTimeModel& times,
                              const engine::ExecutorCapacity& capacity) {
  cost_model::Windows windows;
  for (const kv::GroupCapacity& group : capacity.groups) {
    windows.push_back(group.spec.sliding_window);
  }
  constexpr int64_t kRows = 64;
  constexpr int64_t kShort = 1000;
  constexpr int64_t kLong = 4000;
  const auto decodes_s = [&](int64_t rows, int64_t context) {
    return times.seconds(cost_model::StepLoad::decodes(rows, context, windows));
  };
  cluster::StepCosts costs;
  costs.context_token_s = std::max(
      0.0, (decodes_s(kRows, kLong) - decodes_s(kRows, kShort)) / (kRows * (kLong - kShort)));
  costs.row_s = std::max(0.0, (decodes_s(kRows, kShort) - decodes_s(1, kShort)) / (kRows - 1) -
                                  costs.context_token_s * kShort);
  costs.fixed_s =
      std::max(0.0, decodes_s(1, kShort) - costs.row_s - costs.context_token_s * kShort);
  cost_model::StepLoad prompt;
  prompt.add_row(0, capacity.batch_tokens_max, false, windows);
  costs.prefill_token_s = times.seconds(prompt) / capacity.batch_tokens_max;
  return costs;
}

autoscaler::ReplicaModel model_of(const cluster::StepCosts& costs,
                                  const engine::ExecutorCapacity& capacity) {
  return {.fixed_s = costs.fixed_s,
          .prefill_token_s = costs.prefill_token_s,
          .row_s = costs.row_s,
          .context_token_s = costs.context_token_s,
          .slots = capacity.sequences_max,
          .step_tokens = capacity.batch_tokens_max};
}

double service_s_assumed(const workload::OfferedLoad& load, const cluster::StepCosts& costs) {
  const double step_s = costs.fixed_s + costs.row_s + costs.context_token_s * load.prompt_tokens;
  return load.prompt_tokens * costs.prefill_token_s + load.output_tokens * step_s;
}

}  // namespace pelton::simulator
