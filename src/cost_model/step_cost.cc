#include "cost_model/step_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pelton::cost_model {
namespace {

using families::AttentionKind;

// 1 + 2 + ... + n
double triangle(double n) {
  return n * (n + 1) / 2;
}

struct PerToken {
  double query_key = 0;  // operations of one product of a query and a key, and of its value
  double elements = 0;   // kept for one token
};

PerToken per_token(const families::ModelConfig& shape, AttentionKind kind) {
  const auto heads = static_cast<double>(shape.head_count);
  const auto elements = static_cast<double>(kv_elements(shape, kind));
  if (kind == AttentionKind::kLatent) {
    // Queries are carried into the compressed space: scores over rank and rope, values over rank.
    const auto rank = static_cast<double>(shape.latent.kv_rank);
    const auto rope = static_cast<double>(shape.latent.rope_size);
    return {.query_key = heads * 2 * (2 * rank + rope), .elements = elements};
  }
  return {.query_key = heads * 4 * static_cast<double>(shape.head_size), .elements = elements};
}

}  // namespace

Windows windows_of(const families::ModelConfig& shape) {
  Windows windows;
  if (shape.count(AttentionKind::kSliding) < shape.layer_count()) windows.push_back(0);
  if (shape.count(AttentionKind::kSliding) > 0) windows.push_back(shape.sliding_window);
  return windows;
}

void StepLoad::add_row(int64_t start, int64_t count, int64_t logit_rows, const Windows& windows) {
  const auto from = static_cast<double>(start);
  const auto n = static_cast<double>(count);
  ++rows;
  tokens += count;
  sampled += logit_rows;
  if (count == 1) ++tokens_alone;
  while (attended.size() < windows.size()) {
    attended.push_back({.window = windows[attended.size()]});
  }
  for (Attended& by : attended) {
    if (by.window == 0) {
      by.keys += from + n;
      by.pairs += n * from + triangle(n);
      continue;
    }
    const auto w = static_cast<double>(by.window);
    by.keys += std::min(from + n, w + n - 1);
    // The first queries still see less than a window.
    const double growing = std::clamp(w - from, 0.0, n);
    by.pairs += growing * from + triangle(growing) + (n - growing) * w;
  }
}

StepLoad StepLoad::drafts(int64_t rows, int64_t context, int64_t guesses, const Windows& windows) {
  StepLoad load;
  load.add_row(context, 1 + guesses, 1 + guesses, windows);
  const auto n = static_cast<double>(rows);
  load.rows = rows;
  load.tokens = load.sampled = rows * (1 + guesses);
  load.tokens_alone = guesses == 0 ? rows : 0;
  for (Attended& by : load.attended) {
    by.keys *= n;
    by.pairs *= n;
  }
  return load;
}

const StepLoad::Attended& StepLoad::of(int64_t window) const {
  static constexpr Attended kNothing;
  const auto* const found = std::find_if(attended.begin(), attended.end(),
                                         [&](const Attended& by) { return by.window == window; });
  CHECK(found != attended.end() || rows == 0, "a load that was counted for another model");
  return found == attended.end() ? kNothing : *found;
}

double experts_touched(double experts, double chosen, double tokens) {
  if (experts <= 0 || tokens <= 0) return 0;
  return experts * (1 - std::pow(1 - chosen / experts, tokens));
}

StepCounter::StepCounter(const families::ModelConfig& shape, double kv_element_bytes) {
  const ParameterCount count = count_parameters(shape);
  projections_ = static_cast<double>(count.attention);
  dense_ = static_cast<double>(count.dense);
  other_ = static_cast<double>(count.other);
  head_ = static_cast<double>(count.head > 0 ? count.head : count.embedding);
  expert_ = static_cast<double>(count.expert);
  expert_layers_ = static_cast<double>(shape.expert_layers());
  experts_ = static_cast<double>(shape.expert_count);
  chosen_ = static_cast<double>(shape.experts_per_token);
  expert_bytes_ = shape.expert_bits / 8;
  other_bytes_ = shape.other_bits / 8;
  hidden_ = static_cast<double>(shape.hidden_size);
  for (size_t tokens = 0; tokens < touched_.size(); ++tokens) {
    touched_[tokens] = experts_touched(experts_, chosen_, static_cast<double>(tokens));
  }
  for (const AttentionKind kind :
       {AttentionKind::kFull, AttentionKind::kSliding, AttentionKind::kLatent}) {
    const auto layers = static_cast<double>(shape.count(kind));
    if (layers == 0) continue;
    const PerToken each = per_token(shape, kind);
    attention_.push_back({.window = kind == AttentionKind::kSliding ? shape.sliding_window : 0,
                          .key_bytes = layers * each.elements * kv_element_bytes,
                          .pair_operations = layers * each.query_key});
  }
}

StepCost StepCounter::count(const StepLoad& load) const {
  const auto tokens = static_cast<double>(load.tokens);
  const auto sampled = static_cast<double>(load.sampled);
  StepCost cost{.tokens = tokens};
  const auto through = [&](double parameters) {
    return Work{.bytes = parameters * other_bytes_, .operations = 2 * parameters * tokens};
  };
  cost.projections = through(projections_);
  cost.dense = through(dense_);
  cost.other = through(other_);
  const auto known = static_cast<size_t>(load.tokens);
  cost.experts_touched =
      known < touched_.size() ? touched_[known] : experts_touched(experts_, chosen_, tokens);
  cost.experts = {.bytes = expert_layers_ * cost.experts_touched * expert_ * expert_bytes_,
                  .operations = expert_layers_ * 2 * expert_ * chosen_ * tokens};
  cost.head = {.bytes = sampled > 0 ? head_ * other_bytes_ : 0, .operations = 2 * head_ * sampled};
  for (const Attention& attention : attention_) {
    const StepLoad::Attended& attended = load.of(attention.window);
    cost.attention.bytes += attention.key_bytes * attended.keys;
    cost.attention.operations += attention.pair_operations * attended.pairs;
  }
  constexpr double kActivationBytes = 2;
  cost.exchanged_bytes = tokens * hidden_ * kActivationBytes;
  return cost;
}

double StepCost::bytes() const {
  return projections.bytes + experts.bytes + dense.bytes + other.bytes + head.bytes +
         attention.bytes;
}

double StepCost::operations() const {
  return projections.operations + experts.operations + dense.operations + other.operations +
         head.operations + attention.operations;
}

}  // namespace pelton::cost_model
