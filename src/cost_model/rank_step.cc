#include "cost_model/rank_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/random.h"
#include "cost_model/step_parts.h"

namespace pelton::cost_model {
namespace {

// As layers/rank_part.h cuts: inner rows in blocks, output rows in tiles.
constexpr int64_t kBlock = 32;
constexpr int64_t kTile = 16;
constexpr double kFloat = 4;
constexpr double kQuantizedBlock = kBlock + 4 + 4;  // int8 each, a float32 scale, an int32 sum

Error refused(const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} cannot be shared out among ranks", what), "layout"};
}

// What layers/rank_part.cc refuses, of what a planned shape says.
Result<void> check_shape(const families::ModelConfig& shape, bool experts_dealt) {
  if (shape.is_encoder()) return refused("an encoder");
  if (shape.is_latent()) return refused("latent attention");
  if (shape.post_norms) return refused("a layer with norms behind its blocks");
  if (shape.quantization != families::WeightQuantization::kNone) {
    return refused("a model whose files are FP8 or GPTQ's, AWQ's or compressed-tensors' integers");
  }
  if (shape.shared_expert_count > 0) return refused("a model with shared experts");
  if (shape.head_size % kTile != 0) return refused(fmt::format("heads of {}", shape.head_size));
  if (!experts_dealt && shape.expert_intermediate_size % kBlock != 0) {
    return refused(fmt::format("experts of {}", shape.expert_intermediate_size));
  }
  if (shape.widest_mlp() % kBlock != 0) {
    return refused(fmt::format("MLPs of {}", shape.widest_mlp()));
  }
  return {};
}

void scale(Work& work, double bytes, double operations) {
  work.bytes *= bytes;
  work.operations *= operations;
}

}  // namespace

std::string form_name(const RankForm& form) {
  return fmt::format("{}{}", form.experts_dealt ? "EP" : "TP", form.ranks);
}

double widest_share(int64_t rows, int64_t unit, int ranks) {
  if (rows <= 0) return 0;
  const int64_t units = (rows + unit - 1) / unit;
  const int64_t widest = std::min((units + ranks - 1) / ranks * unit, rows);
  return static_cast<double>(widest) / static_cast<double>(rows);
}

double mlp_share(int64_t inner, int64_t hidden, int ranks) {
  return (2 * widest_share(inner, kBlock, ranks) + widest_share(hidden, kTile, ranks)) / 3;
}

double projection_share(const families::ModelConfig& shape, int ranks) {
  const double by_heads = shape.q_size() + 2.0 * shape.kv_size();
  const double by_rows = shape.q_size();
  return (by_heads * widest_share(shape.kv_head_count, 1, ranks) +
          by_rows * widest_share(shape.hidden_size, kTile, ranks)) /
         (by_heads + by_rows);
}

std::vector<RankLink> rank_links(const Hardware& hardware) {
  if (hardware.link_bytes_per_second > 0) {
    return {{.name = hardware.link,
             .bytes_per_second = hardware.link_bytes_per_second,
             .latency_seconds = hardware.link_latency_seconds,
             .direct = false,
             .source = "the hardware's file"}};
  }
  return {
      {.name = "shm",
       .bytes_per_second = hardware.bytes_per_second,
       .latency_seconds = 1.04e-6,
       .source = "shared memory of one host: an exchange of two cores here (docs/parallel.md), "
                 "bytes as fast as memory"},
      {.name = "10 GbE",
       .bytes_per_second = 10e9 / 8,
       .latency_seconds = 13.4e-6,
       .source = "TCP between hosts: an exchange over loopback here (docs/parallel.md), without "
                 "a network's own delay, bytes by the name"}};
}

RankExchanges count_rank_exchanges(const families::ModelConfig& shape, const RankForm& form) {
  const auto layers = static_cast<double>(shape.layer_count());
  const auto expert_layers = static_cast<double>(shape.expert_layers());
  const double dense_layers = layers - expert_layers;
  const double hidden = shape.hidden_size * kFloat;
  const double chosen = shape.experts_per_token;
  RankExchanges count;
  // Of every layer what the heads mixed, and the residual stream behind o.
  count.exchanges = 2 * layers;
  count.token_bytes = layers * (shape.q_size() * kFloat + hidden);
  count.exchanges += 2 * dense_layers;
  count.token_bytes += dense_layers * (shape.intermediate_size * kFloat + hidden);
  if (form.experts_dealt) {
    // Each choice's whole row of down, which every rank adds by itself.
    count.exchanges += expert_layers;
    count.token_bytes += expert_layers * chosen * hidden;
  } else {
    const double inner = shape.expert_intermediate_size;
    const double inner_bytes =
        form.inner_quantized ? inner / kBlock * kQuantizedBlock : inner * kFloat;
    count.exchanges += 2 * expert_layers;
    count.token_bytes += expert_layers * (chosen * inner_bytes + hidden);
  }
  count.exchanges += 1;
  count.logit_bytes = shape.vocab_size * kFloat;
  return count;
}

BusiestRank::BusiestRank(int experts, int chosen, int ranks) {
  constexpr int kDraws = 2000;
  Points experts_sum{};
  Points rows_sum{};
  std::vector<int> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  const auto mean_over = [&](const std::vector<int>& counts) {
    const double sum = std::accumulate(counts.begin(), counts.end(), 0);
    return *std::max_element(counts.begin(), counts.end()) * ranks / sum;
  };
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    std::vector<bool> touched(static_cast<size_t>(experts));
    std::vector<int> experts_of(static_cast<size_t>(ranks));
    std::vector<int> rows_of(static_cast<size_t>(ranks));
    uint64_t counter = 0;
    size_t point = 0;
    for (int token = 1; token <= 1 << (kPoints - 1); ++token) {
      for (int i = 0; i < chosen; ++i) {
        const auto left = static_cast<uint64_t>(experts - i);
        const size_t at = static_cast<size_t>(i) + base::random_bits(draw, counter++) % left;
        std::swap(order[static_cast<size_t>(i)], order[at]);
        const int expert = order[static_cast<size_t>(i)];
        const auto rank = static_cast<size_t>(int64_t{expert} * ranks / experts);
        ++rows_of[rank];
        if (!touched[static_cast<size_t>(expert)]) ++experts_of[rank];
        touched[static_cast<size_t>(expert)] = true;
      }
      if (token != 1 << point) continue;
      experts_sum[point] += mean_over(experts_of);
      rows_sum[point] += mean_over(rows_of);
      ++point;
    }
  }
  for (size_t i = 0; i < kPoints; ++i) {
    experts_[i] = experts_sum[i] / kDraws;
    rows_[i] = rows_sum[i] / kDraws;
  }
  rows_at_last_ = widest_share(experts, 1, ranks) * ranks;
}

double BusiestRank::between(const Points& points, double tokens) {
  const double at = std::clamp(std::log2(std::max(tokens, 1.0)), 0.0, kPoints - 1.0);
  const auto low = std::min(static_cast<size_t>(at), size_t{kPoints - 2});
  return points[low] + (points[low + 1] - points[low]) * (at - static_cast<double>(low));
}

double BusiestRank::experts(double tokens) const {
  return between(experts_, tokens);
}

double BusiestRank::rows(double tokens) const {
  constexpr double kLast = 1 << (kPoints - 1);
  const double at_most = between(rows_, tokens);
  if (tokens <= kLast) return at_most;
  // What is uneven by chance falls as the root of the number.
  return rows_at_last_ + std::max(at_most - rows_at_last_, 0.0) * std::sqrt(kLast / tokens);
}

RankStepModel::RankStepModel(StepTimeModel::Options options, const RankForm& form, double rate)
    : options_(std::move(options)),
      form_(form),
      rate_(rate),
      counter_(options_.shape, options_.kv_element_bytes),
      exchanges_(count_rank_exchanges(options_.shape, form)) {
  if (form.experts_dealt) {
    busiest_ =
        BusiestRank(options_.shape.expert_count, options_.shape.experts_per_token, form.ranks);
  }
}

Result<RankStepModel> RankStepModel::make(StepTimeModel::Options options, const RankForm& form) {
  TRY_ASSIGN(const double rate, options.hardware.rate(options.arithmetic));
  if (form.ranks < 1) return refused(fmt::format("a model over {} ranks", form.ranks));
  TRY(check_shape(options.shape, form.experts_dealt));
  if (form.experts_dealt && options.shape.expert_count < form.ranks) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} experts cannot be dealt to {} ranks", options.shape.expert_count,
                             form.ranks),
                 "layout"};
  }
  return RankStepModel(std::move(options), form, rate);
}

// Of the rank with the most of each part. Norms, routers and choices are computed by all.
StepCost RankStepModel::busiest_cost(const StepLoad& load) const {
  const families::ModelConfig& shape = options_.shape;
  const int ranks = form_.ranks;
  StepCost cost = counter_.count(load);
  const double projections = projection_share(shape, ranks);
  scale(cost.projections, projections, projections);
  const double dense = mlp_share(shape.intermediate_size, shape.hidden_size, ranks);
  scale(cost.dense, dense, dense);
  const double head = widest_share(shape.vocab_size, kTile, ranks);
  scale(cost.head, head, head);
  const double heads = widest_share(shape.kv_head_count, 1, ranks);
  scale(cost.attention, heads, heads);
  if (form_.experts_dealt) {
    scale(cost.experts, busiest_.experts(cost.tokens) / ranks, busiest_.rows(cost.tokens) / ranks);
  } else {
    const double experts = mlp_share(shape.expert_intermediate_size, shape.hidden_size, ranks);
    scale(cost.experts, experts, experts);
  }
  return cost;
}

double RankStepModel::received_token_bytes() const {
  return exchanges_.token_bytes * (form_.ranks - 1) / form_.ranks;
}

double RankStepModel::exchange_seconds(const StepLoad& load, const RankLink& link) const {
  if (form_.ranks <= 1) return 0;
  const double hops = link.direct ? 1 : std::ceil(std::log2(form_.ranks));
  const double exchanges = exchanges_.exchanges - (load.sampled > 0 ? 0 : 1);
  const double bytes = exchanges_.token_bytes * static_cast<double>(load.tokens) +
                       exchanges_.logit_bytes * static_cast<double>(load.sampled);
  const double received = bytes * (form_.ranks - 1) / form_.ranks;
  return exchanges * hops * link.latency_seconds +
         received / (link.bytes_per_second * options_.efficiency.link);
}

StepTime RankStepModel::time(const StepLoad& load, const RankLink& link) const {
  const Efficiency& efficiency = options_.efficiency;
  StepTime time =
      roofline_parts(busiest_cost(load), efficiency,
                     {.bytes_per_second = options_.hardware.bytes_per_second * efficiency.bandwidth,
                      .rate = rate_,
                      .negligible = negligible_share(efficiency)});
  time.exchange_s = exchange_seconds(load, link);
  time.fixed_s = efficiency.layer_s * static_cast<double>(options_.shape.layer_count()) +
                 loose_seconds(load, efficiency);
  return time;
}

}  // namespace pelton::cost_model
