#include "planner/rank_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace pelton::planner {
namespace {

using cost_model::RankForm;
using cost_model::RankLink;
using cost_model::RankStepModel;
using cost_model::StepLoad;
using families::ModelConfig;

constexpr int kRowsMax = 512;       // as far as a crossover is looked for
constexpr double kWorthIt = 1.001;  // by which a form must be the quicker to take over

// Numbers of ranks that are looked at: 2, 4, 8 ... and all.
std::vector<int> ranks_of(const CapacityOptions& options) {
  const cost_model::Hardware& hardware = options.memory.hardware;
  const int most = hardware.link_bytes_per_second > 0
                       ? std::min(options.devices, hardware.link_domain)
                       : options.devices;
  std::vector<int> counts;
  for (int ranks = 2; ranks < most; ranks *= 2) counts.push_back(ranks);
  if (most >= 2) counts.push_back(most);
  return counts;
}

RankForm form_of(const CapacityOptions& options, int ranks, bool experts_dealt) {
  return {.ranks = ranks,
          .experts_dealt = experts_dealt,
          .inner_quantized = options.arithmetic == cost_model::Arithmetic::kInt8};
}

std::optional<RankPair> pair_of(const CapacityOptions& options, int ranks) {
  Result<RankStepModel> tp =
      RankStepModel::make(timing_options(options), form_of(options, ranks, false));
  Result<RankStepModel> ep =
      RankStepModel::make(timing_options(options), form_of(options, ranks, true));
  if (!tp.ok() || !ep.ok()) return std::nullopt;
  return RankPair{.tp = *std::move(tp), .ep = *std::move(ep)};
}

// Steps are of one load, or of prompts alone where their tokens have no room beside the answers.
struct Steady {
  StepLoad load;
  double steps = 1;  // to each token of an answer
};
Steady steady_of(const CapacityOptions& options, int rows) {
  const Demand& demand = options.demand;
  const double prompt = std::max(demand.input_tokens - demand.cached_tokens, 1.0);
  const double prompts = prompt / demand.output_tokens * rows;
  const double room = std::max<double>(options.memory.batch_tokens_max - rows, 1);
  return {.load = mixed_step(options, rows, std::min(prompts, room)),
          .steps = std::max(prompts / room, 1.0)};
}

int rows_max_of(const CapacityOptions& options, const MemoryPlan& memory) {
  const Demand& demand = options.demand;
  const auto length = static_cast<int64_t>(demand.input_tokens + demand.output_tokens);
  const int64_t flag = options.any_sequences ? kRowsMax : options.memory.sequences_max;
  return static_cast<int>(std::min<int64_t>({memory.sequences_at(length, options.memory), flag,
                                             options.memory.batch_tokens_max - 1, kRowsMax}));
}

Cell modelled(double value, Unit unit) {
  return {.value = value, .unit = unit, .modelled = true};
}

void add_byte_figures(const CapacityOptions& options, std::vector<Figure>& figures) {
  const ModelConfig& shape = options.memory.shape;
  const auto add = [&](bool experts_dealt) {
    const RankForm form = form_of(options, 2, experts_dealt);
    const cost_model::RankExchanges count = cost_model::count_rank_exchanges(shape, form);
    const std::string name = experts_dealt ? "EP" : "TP";
    const std::string key = experts_dealt ? "ep" : "tp";
    const std::string inner =
        shape.expert_layers() == 0 ? fmt::format("inner {}", shape.intermediate_size)
        : experts_dealt ? fmt::format("rows {} x {}", shape.experts_per_token, shape.hidden_size)
                        : fmt::format("inner {} x {}{}", shape.experts_per_token,
                                      shape.expert_intermediate_size,
                                      form.inner_quantized ? " in 8 bits (40 bytes for 32)" : "");
    figures.push_back({key + "_exchanges", name + ": exchanges a step", count.exchanges,
                       Unit::kCount,
                       fmt::format("{} layers x {}, and the head's", shape.layer_count(),
                                   experts_dealt ? "3" : "4")});
    figures.push_back(
        {key + "_token_bytes", name + ": finished rows a token", count.token_bytes, Unit::kBytes,
         fmt::format("{} layers x float32 of heads {}, o {}, {}{}", shape.layer_count(),
                     shape.q_size(), shape.hidden_size, inner,
                     experts_dealt ? std::string() : fmt::format(", down {}", shape.hidden_size))});
  };
  add(false);
  if (shape.has_experts()) add(true);
  figures.push_back({"logit_bytes", "and of each row of logits, to the leader",
                     shape.vocab_size * 4.0, Unit::kBytes,
                     fmt::format("{} x 4 bytes", shape.vocab_size)});
}

// What exchanges take, by form, number of ranks and link.
Table exchange_table(const CapacityOptions& options) {
  Table table{.key = "exchanges",
              .columns = {"form", "over", "received a token", "lone step's", "of 32 answers",
                          "of 1024 prompt tokens", "weights fit"},
              .rows = {}};
  const cost_model::Windows windows = cost_model::windows_of(options.memory.shape);
  StepLoad prompt;
  prompt.add_row(0, 1024, 1, windows);
  for (const int ranks : ranks_of(options)) {
    const Result<MemoryPlan> memory = rank_memory(options.memory, ranks);
    for (const bool experts_dealt : {false, true}) {
      const Result<RankStepModel> model =
          RankStepModel::make(timing_options(options), form_of(options, ranks, experts_dealt));
      if (!model.ok()) continue;
      for (const RankLink& link : cost_model::rank_links(options.memory.hardware)) {
        const auto seconds = [&](const StepLoad& load) {
          return modelled(model->exchange_seconds(load, link), Unit::kSeconds);
        };
        table.rows.push_back({{.text = cost_model::form_name(model->form())},
                              {.text = link.name},
                              {.value = model->received_token_bytes(), .unit = Unit::kBytes},
                              seconds(StepLoad::decodes(1, 1024, windows)),
                              seconds(StepLoad::decodes(32, 1024, windows)),
                              seconds(prompt),
                              {.text = memory.ok() && memory->fits() ? "yes" : "no"}});
      }
    }
  }
  return table;
}

// What the rank with the most takes, by their number: rank_memory.
Table memory_table(const CapacityOptions& options) {
  Table table{.key = "rank_memory",
              .columns = {"ranks", "weights", "working memory", "together", "allowed",
                          "left for KV", "a token of context"},
              .rows = {}};
  constexpr std::array<std::string_view, 6> kWeights = {
      "experts", "feed-forward", "attention", "embedding", "head", "norms and routers"};
  for (const int ranks : ranks_of(options)) {
    const Result<MemoryPlan> memory = rank_memory(options.memory, ranks);
    if (!memory.ok()) continue;
    double weights = 0;
    for (const MemoryLine& line : memory->lines) {
      if (std::ranges::find(kWeights, line.name) != kWeights.end()) weights += line.bytes;
    }
    const auto bytes = [](double value) { return Cell{.value = value, .unit = Unit::kBytes}; };
    table.rows.push_back({{.value = static_cast<double>(ranks)},
                          bytes(weights),
                          bytes(memory->taken_bytes - weights),
                          bytes(memory->taken_bytes),
                          bytes(memory->allowed_bytes),
                          bytes(memory->kv_bytes),
                          bytes(memory->kv_token_bytes)});
  }
  return table;
}

// Of the largest number of ranks over the first link: 1, 2, 4 ... answers at once.
Table curve_table(const CapacityOptions& options, const RankPair& pair, const RankLink& link,
                  int rows_max) {
  Table table{.key = "forms",
              .columns = {"answers at once", "TP", "TP's exchanges", "EP", "EP's exchanges",
                          "busiest rank over mean"},
              .rows = {}};
  for (int rows = 1; rows <= rows_max; rows *= 2) {
    const Steady steady = steady_of(options, rows);
    const auto exchanged = [&](const RankStepModel& model) {
      return modelled(model.exchange_seconds(steady.load, link) * steady.steps, Unit::kSeconds);
    };
    table.rows.push_back(
        {{.value = static_cast<double>(rows)},
         modelled(rank_itl_s(options, pair.tp, link, rows), Unit::kSeconds),
         exchanged(pair.tp),
         modelled(rank_itl_s(options, pair.ep, link, rows), Unit::kSeconds),
         exchanged(pair.ep),
         modelled(pair.ep.busiest().experts(static_cast<double>(steady.load.tokens)),
                  Unit::kRatio)});
  }
  return table;
}

std::string range_text(const FormRange& range) {
  return fmt::format("{} {} {}", range.experts_dealt ? "EP" : "TP",
                     range.from == range.to ? "at" : fmt::format("from {} to", range.from),
                     range.to);
}

// "8 ranks over NVLink 4: TP from 1 to 11 answers at once, EP from 12 to 512"
std::string crossover_text(int ranks, const RankLink& link, const std::vector<FormRange>& ranges) {
  std::vector<std::string> parts;
  for (const FormRange& range : ranges) parts.push_back(range_text(range));
  return fmt::format("{} ranks over {}: {} answers at once", ranks, link.name,
                     fmt::join(parts, ", "));
}

void add_crossovers(const CapacityOptions& options, Section& section) {
  std::optional<Table> curve;
  std::vector<std::string> said;
  for (const int ranks : ranks_of(options)) {
    const std::optional<RankPair> pair = pair_of(options, ranks);
    const Result<MemoryPlan> memory = rank_memory(options.memory, ranks);
    if (!pair || !memory.ok()) continue;
    const int rows_max = rows_max_of(options, *memory);
    if (rows_max < 1) {
      said.push_back(fmt::format("{} ranks: not one request of the load fits", ranks));
      continue;
    }
    const std::vector<RankLink> links = cost_model::rank_links(options.memory.hardware);
    for (const RankLink& link : links) {
      said.push_back(crossover_text(ranks, link, form_ranges(options, *pair, link, rows_max)));
    }
    curve = curve_table(options, *pair, links[0], rows_max);
  }
  if (curve) section.tables.push_back(*std::move(curve));
  if (said.empty()) return;
  section.notes.push_back(fmt::format(
      "Forecast, measured nowhere: which form gives more tokens of this load. {}. As far as was "
      "looked: what memory, --max-num-seqs and {} answers allow.",
      fmt::join(said, "; "), kRowsMax));
}

}  // namespace

double rank_itl_s(const CapacityOptions& options, const RankStepModel& model, const RankLink& link,
                  int rows) {
  const Steady steady = steady_of(options, rows);
  return model.time(steady.load, link).seconds() * steady.steps;
}

std::vector<FormRange> form_ranges(const CapacityOptions& options, const RankPair& pair,
                                   const RankLink& link, int rows_max) {
  std::vector<FormRange> ranges;
  for (int rows = 1; rows <= rows_max; ++rows) {
    const double tp_s = rank_itl_s(options, pair.tp, link, rows);
    const double ep_s = rank_itl_s(options, pair.ep, link, rows);
    if (ranges.empty()) {
      ranges.push_back({.experts_dealt = ep_s * kWorthIt < tp_s, .from = rows, .to = rows});
      continue;
    }
    const bool was_dealt = ranges.back().experts_dealt;
    const double stays_s = was_dealt ? ep_s : tp_s;
    const double other_s = was_dealt ? tp_s : ep_s;
    if (other_s * kWorthIt < stays_s) {
      ranges.push_back({.experts_dealt = !was_dealt, .from = rows, .to = rows});
    }
    ranges.back().to = rows;
  }
  return ranges;
}

Result<MemoryPlan> rank_memory(const MemoryOptions& options, int ranks) {
  const ModelConfig& shape = options.shape;
  const std::array<std::pair<std::string_view, double>, 3> cut{
      {{"experts", cost_model::mlp_share(shape.expert_intermediate_size, shape.hidden_size, ranks)},
       {"feed-forward", cost_model::mlp_share(shape.intermediate_size, shape.hidden_size, ranks)},
       {"attention", cost_model::projection_share(shape, ranks)}}};
  MemoryOptions one = options;
  one.layout = {};
  TRY_ASSIGN(MemoryPlan plan, plan_memory(one));
  plan.taken_bytes = 0;
  for (MemoryLine& line : plan.lines) {
    for (const auto& [name, share] : cut) {
      if (line.name != name) continue;
      line.bytes *= share;
      line.formula += fmt::format(" x {:.4g}, the widest share of {} ranks", share, ranks);
    }
    plan.taken_bytes += line.bytes;
  }
  plan.kv_bytes = plan.allowed_bytes - plan.taken_bytes;
  const double heads = cost_model::widest_share(options.shape.kv_head_count, 1, ranks);
  plan.kv_token_bytes *= heads;
  plan.kv_sequence_bytes *= heads;
  return plan;
}

Result<Section> rank_section(const FleetPlanOptions& options) {
  const CapacityOptions& capacity = options.capacity;
  const cost_model::Hardware& hardware = capacity.memory.hardware;
  const std::vector<int> counts = ranks_of(capacity);
  if (counts.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 capacity.devices < 2 ? std::string("one device has no ranks")
                                      : fmt::format("no link joins several {}", hardware.title),
                 "devices"};
  }
  TRY(RankStepModel::make(timing_options(capacity), form_of(capacity, counts[0], false)));
  Section section{.key = "ranks",
                  .title =
                      "Ranks that share out rows, as serve --tensor-parallel-size (TP) and "
                      "with --enable-expert-parallel (EP): a forecast"};
  add_byte_figures(capacity, section.figures);
  section.tables.push_back(memory_table(capacity));
  section.tables.push_back(exchange_table(capacity));
  if (options.with_load && capacity.memory.shape.has_experts()) add_crossovers(capacity, section);
  section.notes.push_back(
      hardware.is_processor()
          ? "Each rank is taken to have such processors and their memory to itself, as on "
            "a second socket or host; ranks of one socket share its memory and gain "
            "nothing."
          : "On GPUs `pelton serve` runs no ranks: what this form would take of them.");
  for (const RankLink& link : cost_model::rank_links(hardware)) {
    section.notes.push_back(
        fmt::format("{}: {:.3g} us an exchange{}, {:.3g} GB/s, of which {} are "
                    "taken; {}",
                    link.name, link.latency_seconds * 1e6, link.direct ? "" : " and doubling",
                    link.bytes_per_second / 1e9,
                    format_modelled(capacity.efficiency.link, Unit::kShare), link.source));
  }
  section.notes.push_back(
      "Shares are even but for whole heads, blocks of 32 and tiles of 16: the rank with the most "
      "is counted. Experts are taken to be chosen evenly. Pipeline parallel is not planned in this "
      "form: serve refuses --pipeline-parallel-size.");
  return section;
}

}  // namespace pelton::planner
