#include "planner/fleet_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cost_model/built_in_data.h"
#include "cost_model/closed_form.h"
#include "cost_model/kv_budget.h"
#include "families/kv_groups.h"
#include "planner/rank_plan.h"
#include "planner/travel_plan.h"

namespace pelton::planner {
namespace {

using cost_model::Layout;
using families::AttentionKind;
using families::ModelConfig;

double d(int64_t value) {
  return static_cast<double>(value);
}

// Of sequences that are asked about, in tokens: those that the model takes. An encoder keeps none.
std::vector<int64_t> lengths_of(const ModelConfig& shape) {
  std::vector<int64_t> lengths;
  if (shape.is_encoder()) return lengths;
  for (const int64_t length : {2048, 8192, 32768, 131072}) {
    if (length <= shape.context_max) lengths.push_back(length);
  }
  return lengths;
}

std::vector<Cell> fit_row(MemoryOptions options, const std::string& name) {
  options.layout = {};
  std::vector<Cell> row{{.text = name}};
  const int devices = fewest_devices(options);
  const std::vector<int64_t> lengths = lengths_of(options.shape);
  if (devices == 0) {
    row.push_back({.text = "no"});
    for (size_t i = 0; i < 2 + lengths.size(); ++i) row.push_back({.text = "-"});
    return row;
  }
  options.layout = {.tensor = devices};
  const MemoryPlan plan = *plan_memory(options);
  row.push_back({.value = d(devices), .unit = Unit::kCount});
  row.push_back({.value = plan.kv_bytes, .unit = Unit::kBytes});
  row.push_back({.value = d(plan.longest_context(options)), .unit = Unit::kTokens});
  for (const int64_t length : lengths) {
    row.push_back({.value = d(plan.sequences_at(length, options)), .unit = Unit::kCount});
  }
  return row;
}

std::vector<std::string> fit_columns(const std::string& first, const ModelConfig& shape) {
  std::vector<std::string> columns{
      first, "devices", shape.is_encoder() ? "left on each" : "for KV on each", "longest"};
  for (const int64_t length : lengths_of(shape)) {
    columns.push_back(fmt::format("at {}K", length / 1024));
  }
  return columns;
}

Table what_if(const MemoryOptions& options) {
  Table table{.key = "what_if", .columns = fit_columns("instead", options.shape), .rows = {}};
  table.rows.push_back(fit_row(options, "as planned"));
  const auto add = [&](const std::string& name, const auto& change) {
    MemoryOptions other = options;
    change(other);
    table.rows.push_back(fit_row(other, name));
  };
  if (!options.shape.is_encoder()) {
    add("KV in 8 bits", [](MemoryOptions& o) { o.kv_element_bytes = 1; });
    add("KV in 16 bits", [](MemoryOptions& o) { o.kv_element_bytes = 2; });
  }
  add("all weights in 16 bits",
      [](MemoryOptions& o) { o.shape.expert_bits = o.shape.other_bits = 16; });
  add("all weights in 8 bits",
      [](MemoryOptions& o) { o.shape.expert_bits = o.shape.other_bits = 8; });
  add("all weights in 4.25 bits",
      [](MemoryOptions& o) { o.shape.expert_bits = o.shape.other_bits = 4.25; });
  return table;
}

// Where a lone stream's tokens come fastest, whatever that costs in throughput.
std::string latency_note(const CapacityPlan& plan) {
  const LayoutChoice* const best = quickest_layout(plan);
  if (best == nullptr || plan.layouts.size() == 1) return "";
  return fmt::format("For latency alone: {}, {:.2f} ms between a lone stream's tokens",
                     cost_model::layout_name(best->layout), best->latency_itl_s * 1e3);
}

// What a prefix cache would spare of a load that repeats itself; empty: it does not.
std::string cache_note(const FleetPlanOptions& options, const LayoutChoice& chosen) {
  if (options.repeated_tokens < 1) return "";
  CapacityOptions with = options.capacity;
  with.memory.layout = chosen.layout;
  with.demand.cached_tokens = options.repeated_tokens;
  return fmt::format(
      "Of a prompt's {:.0f} tokens {:.0f} are a conversation's earlier turns, taken as computed "
      "anew; where the prefix cache holds them all, a copy answers {}",
      with.demand.input_tokens, options.repeated_tokens,
      format_modelled(copy_capacity(with).requests_per_s, Unit::kPerSecond));
}

// What TP and EP of the table are, where there are any: not what this server's ranks do.
std::string form_note(const CapacityPlan& plan) {
  const bool any = std::any_of(plan.layouts.begin(), plan.layouts.end(),
                               [](const auto& choice) { return choice.layout.devices() > 1; });
  if (!any) return "";
  return "TP and EP of this table are the usual forms: sums exchanged twice a layer; experts dealt "
         "out, and each sequence's attention on one device. Ranks of `pelton serve` share out rows "
         "instead: their section. Pipeline parallel is not compared, and serve refuses it";
}

// Beside the table of layouts.
std::vector<std::string> notes_of(const FleetPlanOptions& options, const CapacityPlan& plan) {
  std::vector<std::string> notes{plan.why, latency_note(plan)};
  if (plan.chosen >= 0) {
    notes.push_back(cache_note(options, plan.layouts[static_cast<size_t>(plan.chosen)]));
  }
  notes.push_back(form_note(plan));
  std::erase(notes, std::string());
  return notes;
}

std::string range_words(const std::string& low, const std::string& high) {
  return low == high ? low : fmt::format("{} to {}", low, high);
}

// "2 copies of TP8 on 2 machines; $1.2 (0.9 to 1.7) a million output tokens"
std::string guesses_sentence(const Speculation& speculation, const CopyCapacity& copy) {
  if (speculation.tokens_max == 0) return "";
  if (copy.guesses == 0) return " No guess pays there.";
  return fmt::format(
      " With {} guess{} behind each answer's row, of which {:.0f} % are right one "
      "after the other: {:.2f} tokens a row.",
      copy.guesses, copy.guesses == 1 ? "" : "es", speculation.acceptance.mean() * 100,
      speculation.tokens_per_row(copy.guesses));
}

std::string capacity_sentence(const FleetPlanOptions& options, const CapacityPlan& plan) {
  if (plan.chosen < 0) return plan.why + ".";
  const LayoutChoice& best = plan.layouts[static_cast<size_t>(plan.chosen)];
  const std::string most =
      plan.slow_copies > 0 ? std::to_string(plan.slow_copies) : std::string("none will do");
  std::string text = fmt::format(
      "{} cop{} of {}, {} machine{} (copies if steps are {:.0f} % quicker or slower: {})",
      plan.copies, plan.copies == 1 ? "y" : "ies", cost_model::layout_name(best.layout),
      plan.machines, plan.machines == 1 ? "" : "s", options.capacity.spread * 100,
      range_words(std::to_string(plan.quick_copies), most));
  if (options.capacity.price_per_hour > 0) {
    text += fmt::format("; {} a million output tokens",
                        format_modelled(plan.cost_per_million, Unit::kDollars));
  }
  return fmt::format(
      "{}. Each copy runs with --max-num-seqs {} --max-num-batched-tokens {}; {} is "
      "what keeps it from more.{}",
      text, best.copy.concurrency, best.copy.step_tokens, best.copy.limited_by,
      guesses_sentence(options.capacity.speculation, best.copy));
}

// What is left beside weights and working memory, and for what.
std::string left_sentence(const FleetPlanOptions& options, const MemoryPlan& plan) {
  const MemoryOptions& memory = options.capacity.memory;
  const std::string left = format(plan.kv_bytes, Unit::kBytes);
  if (!plan.keeps_kv()) {
    const auto activations = std::ranges::find(plan.lines, "activations", &MemoryLine::name);
    return fmt::format(
        "it keeps no KV cache; texts have up to {} tokens, each computed whole, and a step of {} "
        "tokens takes {}; {} are left.",
        memory.shape.context_max, memory.batch_tokens_max, format(activations->bytes, Unit::kBytes),
        left);
  }
  const int64_t length = std::min(8192, memory.shape.context_max);
  return fmt::format("{} are left for the KV cache, {} sequences of {}.", left,
                     format(d(plan.sequences_at(length, memory)), Unit::kCount),
                     length == 8192 ? "8K" : fmt::format("{} tokens", length));
}

// Whether one copy lies on this layout, and what would do if not.
std::string memory_sentence(const FleetPlanOptions& options, const MemoryPlan& plan) {
  const MemoryOptions& memory = options.capacity.memory;
  const std::string where =
      memory.layout.devices() == 1
          ? "one " + memory.hardware.title
          : fmt::format("{} on {}", cost_model::layout_name(memory.layout), memory.hardware.title);
  if (plan.fits()) {
    return fmt::format("{} fits on {}: {}", memory.shape.name, where, left_sentence(options, plan));
  }
  const int devices = fewest_devices(memory);
  const std::string instead =
      devices == 0 ? fmt::format("No group of up to {} holds it; look at what fits where, below.",
                                 std::max(memory.hardware.link_domain, 1))
                   : fmt::format("{} of them hold it (--devices {}).", devices, devices);
  return fmt::format(
      "{} does not fit on {}: it takes {} of each device, {} are allowed, short by {}. {}",
      memory.shape.name, where, format(plan.taken_bytes, Unit::kBytes),
      format(plan.allowed_bytes, Unit::kBytes),
      format(plan.taken_bytes - plan.allowed_bytes, Unit::kBytes), instead);
}

// Blocks of a window group that what runs has at once, as in the engine (cost_model/kv_budget.h).
double live_blocks(const kv::GroupSpec& group, const MemoryOptions& options) {
  if (!group.slides()) return 0;
  const int64_t seen = group.blocks_at_once(INT32_MAX, options.block_tokens);
  return d(options.sequences_max * (seen + 1)) +
         std::ceil(d(options.batch_tokens_max) / options.block_tokens);
}

// What one device has of a block's bytes, in the plan's elements, for each byte of the whole
// model's.
double share_of(const kv::PerGroup<kv::GroupSpec>& groups, const MemoryOptions& options,
                const MemoryPlan& plan) {
  double whole = 0;
  for (const kv::GroupSpec& group : groups) {
    const int64_t tokens = group.slides() ? group.sliding_window : 1;
    whole += d(group.block_bytes * tokens) / options.block_tokens;
  }
  return (plan.kv_token_bytes + plan.kv_sequence_bytes) / whole;
}

}  // namespace

int fewest_devices(MemoryOptions options) {
  for (int devices = 1; devices <= std::max(options.hardware.link_domain, 1); devices *= 2) {
    options.layout = {.tensor = devices};
    const Result<MemoryPlan> plan = plan_memory(options);
    if (plan.ok() && plan->sequences_at(2048, options) > 0) return devices;
  }
  return 0;
}

std::string worth_sentence(const cost_model::Hardware& hardware, const Layout& layout) {
  if (hardware.is_processor()) return "Modelled, not measured.";
  if (layout.devices() > 1) {
    return fmt::format(
        "Modelled, and nothing that `pelton serve` can run yet: it shares a model out among ranks "
        "on processors alone, not among {} GPUs ({}).",
        layout.devices(), cost_model::layout_name(layout));
  }
  return "Modelled, and nothing that `pelton serve` can run yet: it computes on processors; its "
         "GPU back end was never run on a GPU.";
}

Section memory_section(const MemoryOptions& options, const MemoryPlan& plan) {
  Section section{.key = "memory",
                  .title = fmt::format("Memory of one {} ({})", options.hardware.title,
                                       cost_model::layout_name(options.layout))};
  auto& figures = section.figures;
  for (const MemoryLine& line : plan.lines) {
    std::string key = line.name;
    std::replace(key.begin(), key.end(), ' ', '_');
    figures.push_back({key, line.name, line.bytes, Unit::kBytes, line.formula});
  }
  figures.push_back({"taken_bytes", "together", plan.taken_bytes, Unit::kBytes, "their sum"});
  figures.push_back(
      {"allowed_bytes", "allowed", plan.allowed_bytes, Unit::kBytes,
       fmt::format("{} x {} bytes", options.utilization, options.hardware.memory_bytes)});
  if (plan.keeps_kv()) {
    figures.push_back(
        {"kv_bytes", "left for the KV cache", plan.kv_bytes, Unit::kBytes, "allowed - together"});
  } else {
    figures.push_back({"left_bytes", "left", plan.kv_bytes, Unit::kBytes, "allowed - together"});
  }
  if (!plan.fits()) {
    section.notes.push_back("It does not fit: more devices, or fewer bits.");
    return section;
  }
  if (!plan.keeps_kv()) {
    figures.push_back({"longest_context", "longest text", d(options.shape.context_max),
                       Unit::kTokens, "what the model knows: no KV cache bounds it"});
    return section;
  }
  figures.push_back({"kv_token_bytes", "a token of context", plan.kv_token_bytes, Unit::kBytes,
                     fmt::format("layers that keep all x {} elements x {} bytes / kv heads' cut",
                                 cost_model::kv_elements(
                                     options.shape, options.shape.count(AttentionKind::kLatent) > 0
                                                        ? AttentionKind::kLatent
                                                        : AttentionKind::kFull),
                                 options.kv_element_bytes)});
  if (plan.kv_sequence_bytes > 0) {
    figures.push_back({"kv_sequence_bytes", "and a sequence's windows", plan.kv_sequence_bytes,
                       Unit::kBytes,
                       fmt::format("sliding layers x {} tokens x {} elements x {} bytes",
                                   options.shape.sliding_window,
                                   cost_model::kv_elements(options.shape, AttentionKind::kSliding),
                                   options.kv_element_bytes)});
  }
  figures.push_back({"longest_context", "longest context", d(plan.longest_context(options)),
                     Unit::kTokens, "what is left / a token, at most what the model knows"});
  for (const int64_t length : lengths_of(options.shape)) {
    figures.push_back({fmt::format("sequences_at_{}", length),
                       fmt::format("at once, of {} tokens", length),
                       d(plan.sequences_at(length, options)), Unit::kCount,
                       fmt::format("what is left / ({} tokens in whole blocks of {} and a window)",
                                   length, options.block_tokens)});
  }
  return section;
}

Section closed_form_section(const FleetPlanOptions& options) {
  const ModelConfig& shape = options.capacity.memory.shape;
  const int64_t usual = shape.is_encoder() ? shape.context_max : 8192;
  const int64_t tokens = options.context_tokens > 0 ? options.context_tokens : usual;
  namespace closed_form = cost_model::closed_form;
  const closed_form::Batch batch{.sequences = options.batch, .tokens = tokens};
  const cost_model::ParameterCount count = cost_model::count_parameters(shape);
  const int64_t nominal = shape.nominal_parameters > 0 ? shape.nominal_parameters : count.total();
  const int64_t kv = closed_form::kv_bytes(batch, {.layers = shape.layer_count(),
                                                   .kv_heads = shape.kv_head_count,
                                                   .head_size = shape.head_size});
  const int64_t inner = std::max(shape.intermediate_size, shape.expert_intermediate_size);
  Section section{
      .key = "closed_form",
      .title = fmt::format("Closed-form estimates, {} {} of {} tokens in 16 bits, "
                           "beside what this architecture takes",
                           batch.sequences, shape.is_encoder() ? "texts" : "sequences", tokens)};
  Table table{.key = "formulas", .columns = {"", "closed_form", "counted"}, .rows = {}};
  const auto row = [&](const char* name, double by_book, double counted) {
    Cell last{.value = counted, .unit = Unit::kBytes};
    if (counted < 0) last.text = "-";
    table.rows.push_back({{.text = name}, {.value = by_book, .unit = Unit::kBytes}, last});
  };
  row("parameters", d(closed_form::parameter_bytes(nominal, 2)), cost_model::weight_bytes(shape));
  if (!shape.is_encoder())
    row("KV cache", d(kv), d(batch.sequences) * cost_model::kv_bytes(shape, tokens, 2));
  row("attention activations", d(closed_form::attention_activation_bytes(batch, shape.hidden_size)),
      -1);
  row("feed-forward activations",
      d(closed_form::ffn_activation_bytes(batch, shape.hidden_size, inner)), -1);
  row("token ids", d(closed_form::id_buffer_bytes(batch)), -1);
  section.tables.push_back(std::move(table));
  section.figures.push_back({"parameters", "parameters", d(count.total()), Unit::kCount,
                             "counted from the shape, tensor for tensor"});
  section.figures.push_back({"active_parameters", "of them for one token", d(count.active(shape)),
                             Unit::kCount, "attention, head, and the experts chosen"});
  if (!shape.is_encoder()) {
    section.notes.push_back(
        "The closed form keeps all tokens in all layers, and activations of whole prompts at once; "
        "an engine keeps windows, and computes prompts in pieces.");
  }
  return section;
}

Section what_fits_section(const MemoryOptions& options) {
  Section section{.key = "what_fits",
                  .title = options.shape.is_encoder()
                               ? "What fits: the fewest devices"
                               : "What fits: the fewest devices, and sequences at once by length"};
  Table table{.key = "hardware", .columns = fit_columns("hardware", options.shape), .rows = {}};
  for (const std::string& name : cost_model::data_names("hardware/")) {
    MemoryOptions other = options;
    other.hardware = *cost_model::find_hardware(name);
    table.rows.push_back(fit_row(other, name));
  }
  section.tables.push_back(std::move(table));
  section.tables.push_back(what_if(options));
  return section;
}

Section capacity_section(const FleetPlanOptions& options, const CapacityPlan& plan) {
  const CapacityOptions& capacity = options.capacity;
  const Demand& demand = capacity.demand;
  Section section{.key = "capacity",
                  .title = fmt::format("Capacity: {:.0f} tokens in and {:.0f} out a request",
                                       demand.input_tokens, demand.output_tokens)};
  Table table{.key = "layouts",
              .columns = {"layout", "answers at once", "limited by", "requests", "output a device",
                          "between tokens", "first token", "lone stream", "of roofline"},
              .rows = {}};
  std::vector<std::string> refusals;
  for (const LayoutChoice& choice : plan.layouts) {
    const std::string name = cost_model::layout_name(choice.layout);
    if (!choice.copy.possible) {
      refusals.push_back(fmt::format("{}: {}", name, choice.copy.why_not));
      std::vector<Cell> row{{.text = name}, {.text = "no"}};
      while (row.size() < table.columns.size()) row.push_back({.text = "-"});
      table.rows.push_back(std::move(row));
      continue;
    }
    const auto modelled = [](double value, Unit unit) {
      return Cell{.value = value, .unit = unit, .modelled = true};
    };
    table.rows.push_back({{.text = name},
                          {.value = d(choice.copy.concurrency)},
                          {.text = choice.copy.limited_by},
                          modelled(choice.copy.requests_per_s, Unit::kPerSecond),
                          modelled(choice.tokens_per_s_per_device, Unit::kPerSecond),
                          modelled(choice.copy.itl_s, Unit::kSeconds),
                          modelled(choice.copy.ttft_s, Unit::kSeconds),
                          modelled(choice.latency_itl_s, Unit::kSeconds),
                          modelled(choice.copy.step_ideal_share, Unit::kShare)});
  }
  section.tables.push_back(std::move(table));
  for (std::string& refusal : refusals) section.notes.push_back(std::move(refusal));
  for (std::string& note : notes_of(options, plan)) section.notes.push_back(std::move(note));
  if (plan.chosen < 0) return section;
  const LayoutChoice& best = plan.layouts[static_cast<size_t>(plan.chosen)];
  auto& figures = section.figures;
  const double usable = best.copy.requests_per_s * (1 - capacity.headroom);
  figures.push_back({"copy_requests", "a copy's requests", best.copy.requests_per_s,
                     Unit::kPerSecond,
                     fmt::format("{} answers / ({:.4g} s x {:.0f} tokens)", best.copy.concurrency,
                                 best.copy.itl_s, demand.output_tokens),
                     Figure::Range{best.copy.requests_per_s / (1 + capacity.spread),
                                   best.copy.requests_per_s * (1 + capacity.spread)}});
  const auto copies_at_most = d(std::max(plan.slow_copies, plan.copies));
  figures.push_back({"copies", "copies", d(plan.copies), Unit::kCount,
                     fmt::format("{:.4g} requests/s / ({:.4g} x (1 - {:.2f} headroom)), rounded up",
                                 demand.requests_per_s > 0 ? demand.requests_per_s : usable,
                                 best.copy.requests_per_s, capacity.headroom),
                     Figure::Range{d(plan.quick_copies), copies_at_most}});
  figures.push_back({"machines", "machines", d(plan.machines), Unit::kCount,
                     fmt::format("{} copies on {} devices each, {} devices a machine", plan.copies,
                                 best.layout.devices(), capacity.devices)});
  figures.push_back({"utilization", "used of the copies", plan.utilization, Unit::kShare,
                     "requests / copies' requests"});
  if (plan.prefill_per_decode > 0) {
    figures.push_back({"prefill_per_decode", "if split: devices for prompts to one for answers",
                       plan.prefill_per_decode, Unit::kRatio,
                       "prefill seconds of a token / decode seconds of a token"});
  }
  if (capacity.price_per_hour > 0) {
    figures.push_back({"cost_per_million", "a million output tokens", plan.cost_per_million,
                       Unit::kDollars,
                       fmt::format("{} machines x ${}/h / output tokens an hour; {}", plan.machines,
                                   capacity.price_per_hour, options.price_source),
                       Figure::Range{plan.quick_cost_per_million,
                                     std::max(plan.slow_cost_per_million, plan.cost_per_million)}});
  }
  section.notes.push_back(
      fmt::format("Taken of the hardware: {} of its bandwidth, {} of its {} rate, {} a step "
                  "beside: {}. Ranges: "
                  "steps {:.0f} % quicker or slower.",
                  format_modelled(capacity.efficiency.bandwidth, Unit::kShare),
                  format_modelled(capacity.efficiency.compute, Unit::kShare),
                  cost_model::arithmetic_name(capacity.arithmetic),
                  format_modelled(capacity.efficiency.step_s, Unit::kSeconds),
                  options.efficiency_source, capacity.spread * 100));
  return section;
}

Result<PlanReport> plan_fleet(const FleetPlanOptions& options) {
  const MemoryOptions& memory = options.capacity.memory;
  TRY_ASSIGN(const MemoryPlan plan, plan_memory(memory));
  PlanReport report{
      .title = fmt::format("{} on {}", memory.shape.name,
                           options.machine.empty() ? memory.hardware.title : options.machine)};
  report.fits = plan.fits();
  report.headline = {worth_sentence(memory.hardware, memory.layout),
                     memory_sentence(options, plan)};
  report.sections.push_back(memory_section(memory, plan));
  if (options.memory_only) return report;
  report.sections.push_back(closed_form_section(options));
  report.sections.push_back(what_fits_section(memory));
  if (options.with_load) {
    TRY_ASSIGN(const CapacityPlan capacity, plan_capacity(options.capacity));
    if (capacity.chosen >= 0) {
      const LayoutChoice& best = capacity.layouts[static_cast<size_t>(capacity.chosen)];
      report.headline[0] = worth_sentence(memory.hardware, best.layout);
    }
    report.headline.push_back(capacity_sentence(options, capacity));
    report.meets_objectives = capacity.chosen >= 0;
    report.sections.insert(report.sections.begin(), capacity_section(options, capacity));
    const Result<TravelPlan> travel = plan_travel(options, capacity);
    if (travel.ok()) {
      report.sections.insert(report.sections.begin() + 1, travel_section(options, *travel));
    }
  }
  if (Result<Section> ranks = rank_section(options); ranks.ok()) {
    report.sections.push_back(*std::move(ranks));
  } else if (options.capacity.devices > 1) {
    report.sections.back().notes.push_back("No ranks: " + ranks.error().message);
  }
  return report;
}

kv::PerGroup<kv::GroupCapacity> kv_capacity(const MemoryOptions& options, const MemoryPlan& plan) {
  const auto specs =
      families::kv_groups(options.shape, {.block_tokens = options.block_tokens}).specs;
  if (!plan.keeps_kv()) {
    // As cost_model/kv_budget has an encoder's: numbers for the tokens of two steps.
    kv::PerGroup<kv::GroupCapacity> numbers;
    numbers.push_back({specs[0], {2 * options.batch_tokens_max}});
    return numbers;
  }
  const double device_share = share_of(specs, options, plan);
  double left = plan.kv_bytes * plan.sequence_groups;
  double conversation_bytes = 0;
  for (const kv::GroupSpec& group : specs) {
    const double block_bytes = d(group.block_bytes) * device_share;
    left -= live_blocks(group, options) * block_bytes;
    conversation_bytes +=
        d(cost_model::conversation_blocks(group, options.block_tokens)) * block_bytes;
  }
  const double conversations = left / conversation_bytes;
  kv::PerGroup<kv::GroupCapacity> groups;
  for (const kv::GroupSpec& group : specs) {
    constexpr int64_t kBlocksMax = 1 << 26;
    const double blocks =
        live_blocks(group, options) +
        conversations * d(cost_model::conversation_blocks(group, options.block_tokens));
    groups.push_back({{.name = group.name,
                       .sliding_window = group.sliding_window,
                       .block_bytes = group.block_bytes},  // of all devices of a copy
                      {static_cast<int>(std::clamp(blocks, 0.0, d(kBlocksMax)))}});
  }
  return groups;
}

}  // namespace pelton::planner
