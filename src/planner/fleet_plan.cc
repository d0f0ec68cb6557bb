#include "planner/fleet_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cost_model/built_in_data.h"
#include "cost_model/textbook.h"

namespace pelton::planner {
namespace {

using cost_model::AttentionKind;
using cost_model::Layout;
using cost_model::ModelShape;

double d(int64_t value) {
  return static_cast<double>(value);
}

constexpr int64_t kLengths[] = {2048, 8192, 32768, 131072};

// The fewest devices, a power of two, that hold the model; 0: more than are joined.
int fewest_devices(MemoryOptions options) {
  for (int devices = 1; devices <= std::max(options.hardware.link_domain, 1); devices *= 2) {
    options.layout = {.tensor = devices};
    const Result<MemoryPlan> plan = plan_memory(options);
    if (plan.ok() && plan->sequences_at(2048, options) > 0) return devices;
  }
  return 0;
}

std::vector<Cell> fit_row(MemoryOptions options, const std::string& name) {
  options.layout = {};
  std::vector<Cell> row{{.text = name}};
  const int devices = fewest_devices(options);
  if (devices == 0) {
    row.push_back({.text = "no"});
    for (size_t i = 0; i < 2 + std::size(kLengths); ++i) row.push_back({.text = "-"});
    return row;
  }
  options.layout = {.tensor = devices};
  const MemoryPlan plan = *plan_memory(options);
  row.push_back({.value = d(devices), .unit = Unit::kCount});
  row.push_back({.value = plan.kv_bytes, .unit = Unit::kBytes});
  row.push_back({.value = d(plan.longest_context(options)), .unit = Unit::kTokens});
  for (const int64_t length : kLengths) {
    row.push_back({.value = d(plan.sequences_at(length, options)), .unit = Unit::kCount});
  }
  return row;
}

std::vector<std::string> fit_columns(const std::string& first) {
  std::vector<std::string> columns{first, "devices", "for KV on each", "longest"};
  for (const int64_t length : kLengths) columns.push_back(fmt::format("at {}K", length / 1024));
  return columns;
}

Table what_if(const MemoryOptions& options) {
  Table table{.key = "what_if", .columns = fit_columns("instead"), .rows = {}};
  table.rows.push_back(fit_row(options, "as planned"));
  const auto add = [&](const std::string& name, const auto& change) {
    MemoryOptions other = options;
    change(other);
    table.rows.push_back(fit_row(other, name));
  };
  add("KV in 8 bits", [](MemoryOptions& o) { o.kv_element_bytes = 1; });
  add("KV in 16 bits", [](MemoryOptions& o) { o.kv_element_bytes = 2; });
  add("all weights in 16 bits",
      [](MemoryOptions& o) { o.shape.expert_bits = o.shape.other_bits = 16; });
  add("all weights in 8 bits",
      [](MemoryOptions& o) { o.shape.expert_bits = o.shape.other_bits = 8; });
  add("all weights in 4.25 bits",
      [](MemoryOptions& o) { o.shape.expert_bits = o.shape.other_bits = 4.25; });
  return table;
}

// Where a lone stream's tokens come fastest, whatever that costs in throughput.
std::string quickest_layout(const CapacityPlan& plan) {
  const LayoutChoice* best = nullptr;
  for (const LayoutChoice& choice : plan.layouts) {
    if (!choice.memory.fits() || choice.latency_itl_s <= 0) continue;
    if (best == nullptr || choice.latency_itl_s < best->latency_itl_s) best = &choice;
  }
  if (best == nullptr) return "";
  return fmt::format("For latency alone: {}, {:.2f} ms between a lone stream's tokens",
                     cost_model::layout_name(best->layout), best->latency_itl_s * 1e3);
}

}  // namespace

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
  figures.push_back(
      {"kv_bytes", "left for keys and values", plan.kv_bytes, Unit::kBytes, "allowed - together"});
  if (!plan.fits()) {
    section.notes.push_back("It does not fit: more devices, or fewer bits.");
    return section;
  }
  figures.push_back(
      {"kv_token_bytes", "a token of context", plan.kv_token_bytes, Unit::kBytes,
       fmt::format("layers that keep all x {} elements x {} bytes / kv heads' cut",
                   options.shape.kv_elements(options.shape.count(AttentionKind::kLatent) > 0
                                                 ? AttentionKind::kLatent
                                                 : AttentionKind::kFull),
                   options.kv_element_bytes)});
  if (plan.kv_sequence_bytes > 0) {
    figures.push_back(
        {"kv_sequence_bytes", "and a sequence's windows", plan.kv_sequence_bytes, Unit::kBytes,
         fmt::format("sliding layers x {} tokens x {} elements x {} bytes", options.shape.window,
                     options.shape.kv_elements(AttentionKind::kSliding),
                     options.kv_element_bytes)});
  }
  figures.push_back({"longest_context", "longest context", d(plan.longest_context(options)),
                     Unit::kTokens, "what is left / a token, at most what the model knows"});
  for (const int64_t length : kLengths) {
    if (length > options.shape.context_max) continue;
    figures.push_back({fmt::format("sequences_at_{}", length),
                       fmt::format("at once, of {} tokens", length),
                       d(plan.sequences_at(length, options)), Unit::kCount,
                       fmt::format("what is left / ({} tokens in whole blocks of {} and a window)",
                                   length, options.block_tokens)});
  }
  return section;
}

Section textbook_section(const FleetPlanOptions& options) {
  const ModelShape& shape = options.capacity.memory.shape;
  const int64_t tokens = options.context_tokens > 0 ? options.context_tokens : 8192;
  namespace textbook = cost_model::textbook;
  const textbook::Batch batch{.sequences = options.batch, .tokens = tokens};
  const cost_model::ParameterCount count = cost_model::count_parameters(shape);
  const int64_t nominal = shape.nominal_parameters > 0 ? shape.nominal_parameters : count.total();
  const int64_t kv = textbook::kv_bytes(
      batch,
      {.layers = shape.layer_count(), .kv_heads = shape.kv_heads, .head_size = shape.head_size});
  const int64_t inner = std::max(shape.intermediate, shape.expert_intermediate);
  Section section{.key = "textbook",
                  .title = fmt::format("The textbook's formulas, {} sequences of {} tokens in 16 "
                                       "bits, beside what this architecture takes",
                                       batch.sequences, tokens)};
  Table table{.key = "formulas", .columns = {"", "textbook", "counted"}, .rows = {}};
  const auto row = [&](const char* name, double by_book, double counted) {
    Cell last{.value = counted, .unit = Unit::kBytes};
    if (counted < 0) last.text = "-";
    table.rows.push_back({{.text = name}, {.value = by_book, .unit = Unit::kBytes}, last});
  };
  row("parameters", d(textbook::parameter_bytes(nominal, 2)), cost_model::weight_bytes(shape));
  row("keys and values", d(kv), d(batch.sequences) * shape.kv_bytes(tokens, 2));
  row("attention activations", d(textbook::attention_activation_bytes(batch, shape.hidden)), -1);
  row("feed-forward activations", d(textbook::ffn_activation_bytes(batch, shape.hidden, inner)),
      -1);
  row("token ids", d(textbook::id_buffer_bytes(batch)), -1);
  section.tables.push_back(std::move(table));
  section.figures.push_back({"parameters", "parameters", d(count.total()), Unit::kCount,
                             "counted from the shape, tensor for tensor"});
  section.figures.push_back({"active_parameters", "of them for one token", d(count.active(shape)),
                             Unit::kCount, "attention, head, and the experts chosen"});
  section.notes.push_back(
      "The textbook keeps all tokens in all layers, and activations of whole prompts at once; an "
      "engine keeps windows, and computes prompts in pieces.");
  return section;
}

Section what_fits_section(const MemoryOptions& options) {
  Section section{.key = "what_fits",
                  .title = "What fits: the fewest devices, and sequences at once of 2K to 128K"};
  Table table{.key = "hardware", .columns = fit_columns("hardware"), .rows = {}};
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
                  .title = fmt::format("Capacity: {:.0f} tokens in, {:.0f} out",
                                       demand.input_tokens, demand.output_tokens)};
  Table table{.key = "layouts",
              .columns = {"layout", "answers at once", "requests", "output a device",
                          "between tokens", "first token", "lone stream", "of roofline"},
              .rows = {}};
  for (const LayoutChoice& choice : plan.layouts) {
    const std::string name = cost_model::layout_name(choice.layout);
    if (!choice.copy.possible) {
      std::vector<Cell> row{{.text = name}, {.text = choice.copy.why_not}};
      while (row.size() < table.columns.size()) row.push_back({.text = "-"});
      table.rows.push_back(std::move(row));
      continue;
    }
    table.rows.push_back({{.text = name},
                          {.value = d(choice.copy.concurrency)},
                          {.value = choice.copy.requests_per_s, .unit = Unit::kPerSecond},
                          {.value = choice.tokens_per_s_per_device, .unit = Unit::kPerSecond},
                          {.value = choice.copy.itl_s, .unit = Unit::kSeconds},
                          {.value = choice.copy.ttft_s, .unit = Unit::kSeconds},
                          {.value = choice.latency_itl_s, .unit = Unit::kSeconds},
                          {.value = choice.copy.step_ideal_share, .unit = Unit::kShare}});
  }
  section.tables.push_back(std::move(table));
  section.notes.push_back(plan.why);
  if (const std::string quickest = quickest_layout(plan); !quickest.empty()) {
    section.notes.push_back(quickest);
  }
  if (plan.chosen < 0) return section;
  const LayoutChoice& best = plan.layouts[static_cast<size_t>(plan.chosen)];
  auto& figures = section.figures;
  const double usable = best.copy.requests_per_s * (1 - capacity.headroom);
  figures.push_back({"copy_requests", "a copy's requests", best.copy.requests_per_s,
                     Unit::kPerSecond,
                     fmt::format("{} answers / ({:.4g} s x {:.0f} tokens)", best.copy.concurrency,
                                 best.copy.itl_s, demand.output_tokens)});
  figures.push_back({"copies", "copies", d(plan.copies), Unit::kCount,
                     fmt::format("{:.4g} requests/s / ({:.4g} x (1 - {:.2f} headroom)), rounded up",
                                 demand.requests_per_s > 0 ? demand.requests_per_s : usable,
                                 best.copy.requests_per_s, capacity.headroom)});
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
                                   capacity.price_per_hour, options.price_source)});
  }
  section.notes.push_back(
      fmt::format("Assumed of the hardware: {:.0f} % of its bandwidth, {:.0f} % of its {} rate; "
                  "measure and give --calibration.",
                  capacity.efficiency.bandwidth * 100, capacity.efficiency.compute * 100,
                  cost_model::arithmetic_name(capacity.arithmetic)));
  return section;
}

Result<PlanReport> plan_fleet(const FleetPlanOptions& options) {
  const MemoryOptions& memory = options.capacity.memory;
  TRY_ASSIGN(const MemoryPlan plan, plan_memory(memory));
  PlanReport report{
      .title = fmt::format("{} on {}", memory.shape.name,
                           options.machine.empty() ? memory.hardware.title : options.machine)};
  report.sections.push_back(memory_section(memory, plan));
  report.sections.push_back(textbook_section(options));
  report.sections.push_back(what_fits_section(memory));
  if (options.with_load) {
    TRY_ASSIGN(const CapacityPlan capacity, plan_capacity(options.capacity));
    report.sections.push_back(capacity_section(options, capacity));
  }
  return report;
}

KvBlocks kv_blocks(const MemoryOptions& options, const MemoryPlan& plan) {
  const ModelShape& shape = options.shape;
  const int64_t tokens = options.block_tokens;
  const double groups = plan.sequence_groups;
  const double full_bytes = plan.kv_token_bytes * d(tokens);
  constexpr int64_t kBlocksMax = 1 << 26;
  const auto count = [](double blocks) {
    return static_cast<int>(std::clamp(blocks, 0.0, d(kBlocksMax)));
  };
  if (plan.kv_sequence_bytes <= 0) {
    // No layer slides: the scheduler's second group costs nothing, and is never short.
    return {.full = count(plan.kv_bytes / full_bytes * groups),
            .window = count(d(options.sequences_max) * 4 + d(options.batch_tokens_max)),
            .window_tokens = static_cast<int>(tokens)};
  }
  const double window_bytes = plan.kv_sequence_bytes / d(shape.window) * d(tokens);
  const double live = std::ceil((d(shape.window) / d(tokens) + 2) * d(options.sequences_max) +
                                d(options.batch_tokens_max) / d(tokens));
  const double left = plan.kv_bytes * groups - live * window_bytes;
  // Of a conversation of 4 096 tokens: 256 full blocks and 86 window blocks.
  const double conversation = 256 * full_bytes + 86 * window_bytes;
  return {.full = count(left / conversation * 256),
          .window = count(live + left / conversation * 86),
          .window_tokens = static_cast<int>(shape.window)};
}

}  // namespace pelton::planner
