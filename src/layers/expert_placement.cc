#include "layers/expert_placement.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

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

// A table's or a histogram's layers, each with something for each expert.
template <typename Layers>
Result<void> check_sizes(const Layers& layers, const families::ModelConfig& config,
                         std::string_view name) {
  const auto wrong = [&](std::string_view what, size_t there, size_t wanted) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: {} {}, where the model has {}", name, there, what, wanted)};
  };
  if (layers.size() != config.layers.size()) {
    return wrong("layers", layers.size(), config.layers.size());
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const size_t wanted = experts_of(config, layer);
    if (layers[layer].size() != wanted) return wrong("experts", layers[layer].size(), wanted);
  }
  return {};
}

// How many of each expert there are to be.
std::vector<int> count_each(const std::vector<int64_t>& loads, int ranks, int copies) {
  std::vector<int> counts(loads.size(), 1);
  const auto load_of = [&](size_t e) {
    return static_cast<double>(loads[e]) / static_cast<double>(counts[e]);
  };
  for (; copies > 0; --copies) {
    size_t most = loads.size();
    for (size_t e = 0; e < loads.size(); ++e) {
      if (counts[e] < ranks && (most == loads.size() || load_of(e) > load_of(most))) most = e;
    }
    if (most == loads.size()) break;
    ++counts[most];
  }
  return counts;
}

std::vector<std::vector<int>> place_layer(const std::vector<int64_t>& loads, int ranks,
                                          int copies) {
  const std::vector<int> counts = count_each(loads, ranks, copies);
  const auto load_of = [&](size_t e) {
    return static_cast<double>(loads[e]) / static_cast<double>(counts[e]);
  };
  std::vector<size_t> order(loads.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return load_of(a) > load_of(b); });
  const int all = std::accumulate(counts.begin(), counts.end(), 0);
  const int share = (all + ranks - 1) / ranks;
  std::vector<double> busy(static_cast<size_t>(ranks), 0.0);
  std::vector<int> held(static_cast<size_t>(ranks), 0);
  std::vector<std::vector<int>> table(loads.size());
  for (const size_t e : order) {
    for (int copy = 0; copy < counts[e]; ++copy) {
      int least = -1;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto at = static_cast<size_t>(rank);
        if (held[at] == share || std::ranges::count(table[e], rank) > 0) continue;
        if (least < 0 || busy[at] < busy[static_cast<size_t>(least)]) least = rank;
      }
      if (least < 0) break;
      table[e].push_back(least);
      busy[static_cast<size_t>(least)] += load_of(e);
      ++held[static_cast<size_t>(least)];
    }
    std::ranges::sort(table[e]);
  }
  return table;
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
      table[layer].push_back({static_cast<int>(e) * ranks / experts});
    }
  }
  return table;
}

ExpertTable place_experts(const ExpertLoads& loads, int ranks, int copies) {
  ExpertTable table;
  for (const std::vector<int64_t>& layer : loads) {
    table.push_back(place_layer(layer, ranks, copies));
  }
  return table;
}

Result<void> check_experts(const ExpertTable& table, const families::ModelConfig& config,
                           int ranks) {
  const std::string_view name = "the table of experts";
  TRY(check_sizes(table, config, name));
  for (const std::vector<std::vector<int>>& layer : table) {
    for (const std::vector<int>& owners : layer) {
      const bool rising =
          std::ranges::adjacent_find(owners, std::greater_equal<>()) == owners.end();
      if (!owners.empty() && rising && owners.front() >= 0 && owners.back() < ranks) continue;
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: one is on no rank, or on one that is not there", name)};
    }
  }
  return {};
}

Result<void> check_loads(const ExpertLoads& loads, const families::ModelConfig& config) {
  TRY(check_sizes(loads, config, "the histogram of experts"));
  return {};
}

}  // namespace pelton::layers
