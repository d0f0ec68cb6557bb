#include "layers/dealt_experts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/weight_row.h"

namespace pelton::layers {
namespace {

Error refused(std::string what) {
  return Error{ErrorCode::kUnsupported, "--enable-expert-parallel: " + std::move(what),
               "enable-expert-parallel"};
}

// Of a layer; none where it has a dense MLP.
size_t experts_of(const families::ModelConfig& config, size_t layer) {
  return config.layers[layer].has_experts ? static_cast<size_t>(config.expert_count) : 0;
}

Result<kernels::Experts> own_of(const kernels::Experts& whole, const DealtExperts& dealt,
                                const std::string& name, FloatVectors& keep) {
  if (whole.format == kernels::Format::kF8Blocks) {
    return refused(name + ", which is FP8, is not dealt out");
  }
  const std::vector<int>& own = dealt.own();
  const auto count = static_cast<int64_t>(own.size());
  kernels::Experts part = whole;
  part.experts = static_cast<int>(count);
  part.data = nullptr;
  part.scales = nullptr;
  kernels::ExpertMatrix* const apart = keep.add_matrices(count);
  for (int64_t i = 0; i < count; ++i) {
    const kernels::StoredMatrix matrix = expert_matrix(whole, own[static_cast<size_t>(i)]);
    apart[i] = {.data = matrix.data, .scales = matrix.scales};
  }
  part.apart = apart;
  if (whole.bias == nullptr) return part;
  float* const bias = keep.add(count * whole.rows);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t expert = own[static_cast<size_t>(i)];
    std::copy_n(whole.bias + expert * whole.rows, whole.rows, bias + i * whole.rows);
  }
  part.bias = bias;
  return part;
}

}  // namespace

Result<ExpertTable> deal_experts(const families::ModelConfig& config, int ranks) {
  if (!config.has_experts()) {
    return refused("this model has no experts; without it, ranks share out its MLPs");
  }
  const int experts = config.expert_count;
  if (ranks > experts) {
    return refused(fmt::format("a layer has {} experts, fewer than --tensor-parallel-size {}",
                               experts, ranks));
  }
  ExpertTable table(config.layers.size());
  for (size_t layer = 0; layer < table.size(); ++layer) {
    for (size_t e = 0; e < experts_of(config, layer); ++e) {
      table[layer].push_back(static_cast<int>(e) * ranks / experts);
    }
  }
  return table;
}

Result<void> check_experts(const ExpertTable& table, const families::ModelConfig& config,
                           int ranks) {
  const auto wrong = [](std::string_view what) {
    return Error{ErrorCode::kBadConfig, fmt::format("the table of experts: {}", what)};
  };
  if (table.size() != config.layers.size()) return wrong("another number of layers");
  for (size_t layer = 0; layer < table.size(); ++layer) {
    if (table[layer].size() != experts_of(config, layer)) return wrong("another number of experts");
    for (const int rank : table[layer]) {
      if (rank < 0 || rank >= ranks) return wrong(fmt::format("rank {} of {}", rank, ranks));
    }
  }
  return {};
}

DealtExperts::DealtExperts(std::vector<int> ranks, int own_rank) : ranks_(std::move(ranks)) {
  for (size_t e = 0; e < ranks_.size(); ++e) {
    places_.push_back(ranks_[e] == own_rank ? static_cast<int32_t>(own_.size()) : -1);
    if (ranks_[e] == own_rank) own_.push_back(static_cast<int>(e));
  }
}

void ExpertRows::gather(float* rows, int width, const kernels::ExpertChoice* choices,
                        int64_t count) {
  exchange_.gather_rows({.data = rows, .row_bytes = width * int64_t{sizeof(float)}, .count = count},
                        [&](int64_t row) { return dealt_.rank_of(choices[row].expert); });
}

Result<kernels::ExpertWeights> own_experts(const kernels::ExpertWeights& whole,
                                           const DealtExperts& dealt, const std::string& name,
                                           FloatVectors& keep) {
  kernels::ExpertWeights weights;
  TRY_ASSIGN(weights.gate, own_of(whole.gate, dealt, name, keep));
  if (!whole.interleaved()) {
    TRY_ASSIGN(weights.up, own_of(whole.up, dealt, name, keep));
  }
  TRY_ASSIGN(weights.down, own_of(whole.down, dealt, name, keep));
  return weights;
}

}  // namespace pelton::layers
