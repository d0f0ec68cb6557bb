#include "cost_model/step_time.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cost_model/step_parts.h"

namespace pelton::cost_model {
namespace {

struct EfficiencyField {
  std::string_view name;
  double Efficiency::*member;
  double least;
  double most;
};

constexpr EfficiencyField kFields[] = {
    {"bandwidth", &Efficiency::bandwidth, 1e-6, 1e6}, {"compute", &Efficiency::compute, 1e-6, 1e6},
    {"attention", &Efficiency::attention, 1e-6, 1e6}, {"link", &Efficiency::link, 1e-6, 1e6},
    {"step_s", &Efficiency::step_s, 0, 1e3},          {"layer_s", &Efficiency::layer_s, 0, 1e3},
    {"token_s", &Efficiency::token_s, 0, 1e3},        {"row_s", &Efficiency::row_s, 0, 1e3},
    {"sample_s", &Efficiency::sample_s, 0, 1e3},      {"overlap", &Efficiency::overlap, 1, 64}};

// Of reading and computing. `negligible`: what share of the longer one adds nothing.
double together(double read_s, double compute_s, double overlap, double negligible) {
  const double longer = std::max(read_s, compute_s);
  if (longer <= 0) return 0;
  const double shorter = std::min(read_s, compute_s) / longer;
  if (overlap >= 64 || shorter < negligible) return longer;
  return longer * std::pow(1 + std::pow(shorter, overlap), 1 / overlap);
}

Error bad_layout(const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, what, "layout"};
}

// Everything once more or less often.
void scale(Work& work, double bytes, double operations) {
  work.bytes *= bytes;
  work.operations *= operations;
}

double hops(int devices) {
  return std::ceil(std::log2(std::max(devices, 1)));
}

}  // namespace

std::string layout_name(const Layout& layout) {
  std::string name;
  const auto add = [&](const char* what, int count) {
    if (count > 1) name += fmt::format("{}{}{}", name.empty() ? "" : " ", what, count);
  };
  add("TP", layout.tensor);
  add("EP", layout.expert);
  add("PP", layout.pipeline);
  return name.empty() ? "one device" : name;
}

Efficiency Efficiency::of(const InstanceFit& fit) {
  return {.bandwidth = fit.bandwidth,
          .compute = fit.compute,
          .attention = fit.compute,
          .link = fit.compute,
          .step_s = fit.step_s};
}

Efficiency Efficiency::slower(double factor) const {
  Efficiency other = *this;
  for (double* share : {&other.bandwidth, &other.compute, &other.attention, &other.link}) {
    *share /= factor;
  }
  for (double* seconds :
       {&other.step_s, &other.layer_s, &other.token_s, &other.row_s, &other.sample_s}) {
    *seconds *= factor;
  }
  return other;
}

Json Efficiency::to_json() const {
  Json json;
  for (const EfficiencyField& field : kFields) json.set(field.name, this->*field.member);
  return json;
}

Result<Efficiency> Efficiency::from_json(const Json& json, const std::string& origin) {
  Efficiency efficiency;
  for (const EfficiencyField& field : kFields) {
    const Json* const found = json.find(field.name);
    if (found == nullptr) continue;
    const double value = found->is_number() ? found->as_number() : -1;
    if (!(value >= field.least && value <= field.most)) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: {} must be a number from {} to {}", origin, field.name,
                               field.least, field.most),
                   std::string(field.name)};
    }
    efficiency.*field.member = value;
  }
  return efficiency;
}

double all_reduce_seconds(const Exchange& exchange, const Hardware& hardware, double link_share) {
  if (exchange.devices <= 1) return 0;
  const double n = exchange.devices;
  // Scatter and gather: each device sends (n - 1) / n of its bytes twice.
  return 2 * hops(exchange.devices) * hardware.link_latency_seconds +
         2 * (n - 1) / n * exchange.bytes / (hardware.link_bytes_per_second * link_share);
}

double all_to_all_seconds(const Exchange& exchange, const Hardware& hardware, double link_share) {
  if (exchange.devices <= 1) return 0;
  const double n = exchange.devices;
  return hops(exchange.devices) * hardware.link_latency_seconds +
         (n - 1) / n * exchange.bytes / (hardware.link_bytes_per_second * link_share);
}

double send_seconds(double bytes, const Hardware& hardware, double link_share) {
  return hardware.link_latency_seconds + bytes / (hardware.link_bytes_per_second * link_share);
}

StepTime roofline_parts(const StepCost& cost, const Efficiency& efficiency,
                        const Roofline& roofline) {
  const auto part = [&](const Work& work, double rate_share) {
    return together(work.bytes / roofline.bytes_per_second,
                    work.operations / (roofline.rate * rate_share), efficiency.overlap,
                    roofline.negligible);
  };
  const Work body{
      .bytes = cost.projections.bytes + cost.dense.bytes + cost.other.bytes,
      .operations = cost.projections.operations + cost.dense.operations + cost.other.operations};
  return {.weights_s = part(body, efficiency.compute) + part(cost.experts, efficiency.compute) +
                       part(cost.head, efficiency.compute),
          .attention_s = part(cost.attention, efficiency.attention)};
}

double loose_seconds(const StepLoad& load, const Efficiency& efficiency) {
  return efficiency.step_s + efficiency.token_s * static_cast<double>(load.tokens) +
         efficiency.row_s * static_cast<double>(load.rows) +
         efficiency.sample_s * static_cast<double>(load.sampled);
}

double Correction::operator()(double at) const {
  if (points.empty()) return 1;
  if (at <= points.front().at) return points.front().factor;
  for (size_t i = 1; i < points.size(); ++i) {
    if (at > points[i].at) continue;
    const Point& low = points[i - 1];
    const double share = std::log(at / low.at) / std::log(points[i].at / low.at);
    return low.factor + (points[i].factor - low.factor) * share;
  }
  return points.back().factor;
}

double StepTimeModel::correction(const StepLoad& load) const {
  if (load.tokens_alone == load.rows) return options_.by_rows(static_cast<double>(load.rows));
  return options_.by_tokens(static_cast<double>(load.tokens));
}

StepTimeModel::StepTimeModel(Options options, double rate)
    : options_(std::move(options)),
      rate_(rate),
      counter_(options_.shape, options_.kv_element_bytes),
      layers_(static_cast<double>(options_.shape.layer_count())),
      expert_layers_(static_cast<double>(options_.shape.expert_layers())),
      is_latent_(options_.shape.count(families::AttentionKind::kLatent) > 0),
      negligible_(negligible_share(options_.efficiency)) {}

Result<StepTimeModel> StepTimeModel::make(Options options) {
  TRY_ASSIGN(const double rate, options.hardware.rate(options.arithmetic));
  const Layout& layout = options.layout;
  const families::ModelConfig& shape = options.shape;
  if (layout.tensor < 1 || layout.expert < 1 || layout.pipeline < 1) {
    return bad_layout("a layout's numbers are at least 1");
  }
  const int64_t devices = int64_t{layout.tensor} * layout.expert * layout.pipeline;
  if (devices > 1 && options.hardware.link_bytes_per_second <= 0) {
    std::string why = fmt::format("{} has no link to a second one", options.hardware.title);
    if (options.hardware.is_processor()) {
      why += "; processors share a model out as ranks, which --devices with no --layout forecasts";
    }
    return bad_layout(why);
  }
  if (devices > options.hardware.link_domain) {
    return bad_layout(fmt::format("{} devices are more than the {} that {} joins", devices,
                                  options.hardware.link_domain, options.hardware.link));
  }
  if (layout.expert > 1 && layout.tensor > 1) {
    return bad_layout("tensor and expert parallel together are not modelled; give one of them");
  }
  if (shape.head_count % layout.tensor != 0) {
    return bad_layout(
        fmt::format("{} heads cannot be cut into {}", shape.head_count, layout.tensor));
  }
  if (layout.expert > 1 && (shape.expert_count == 0 || shape.expert_count % layout.expert != 0)) {
    return bad_layout(
        fmt::format("{} experts cannot be dealt to {} devices", shape.expert_count, layout.expert));
  }
  if (layout.pipeline > shape.layer_count()) {
    return bad_layout(
        fmt::format("{} layers are fewer than {} stages", shape.layer_count(), layout.pipeline));
  }
  return StepTimeModel(std::move(options), rate);
}

// What one device of one stage does for its share of the load.
StepCost StepTimeModel::stage_cost(const StepLoad& load) const {
  const Layout& layout = options_.layout;
  const auto tensor = static_cast<double>(layout.tensor);
  const auto expert = static_cast<double>(layout.expert);
  const auto pipeline = static_cast<double>(layout.pipeline);
  StepCost cost = counter_.count(load);
  if (layout.devices() == 1) return cost;
  if (pipeline > 1) {
    // As many groups of tokens are on their way: each is read weights for, of a stage's layers.
    const double group = cost.tokens / pipeline;
    const double touched =
        experts_touched(static_cast<double>(options_.shape.expert_count),
                        static_cast<double>(options_.shape.experts_per_token), group);
    if (cost.experts_touched > 0) cost.experts.bytes *= touched / cost.experts_touched;
    for (Work* work : {&cost.projections, &cost.dense, &cost.other, &cost.experts}) {
      scale(*work, 1 / pipeline, 1 / (pipeline * pipeline));
    }
    scale(cost.attention, 1 / (pipeline * pipeline), 1 / (pipeline * pipeline));
    scale(cost.head, 1, 1 / pipeline);
    cost.exchanged_bytes /= pipeline;
  }
  // Without experts of its own a device of an expert group computes its share of the tokens alone.
  for (Work* work : {&cost.projections, &cost.dense, &cost.other, &cost.head}) {
    scale(*work, 1 / tensor, 1 / (tensor * expert));
  }
  scale(cost.experts, 1 / (tensor * expert), 1 / (tensor * expert));
  // Kv heads that are fewer than the devices are kept more than once.
  const double kv_cut =
      is_latent_ ? 1 : std::min(tensor, static_cast<double>(options_.shape.kv_head_count));
  scale(cost.attention, 1 / (kv_cut * expert), 1 / (tensor * expert));
  return cost;
}

double StepTimeModel::exchange(const StepCost& cost) const {
  const Layout& layout = options_.layout;
  const double share = options_.efficiency.link;
  const double layers = layers_ / layout.pipeline;
  double seconds = 0;
  if (layout.tensor > 1) {
    seconds += 2 * layers *
               all_reduce_seconds({.bytes = cost.exchanged_bytes, .devices = layout.tensor},
                                  options_.hardware, share);
  }
  if (layout.expert > 1) {
    // To the experts and back: each token goes to as many devices as it has experts, at most.
    const double copies =
        static_cast<double>(std::min<int64_t>(options_.shape.experts_per_token, layout.expert));
    const double bytes = cost.exchanged_bytes / layout.expert * copies;
    seconds +=
        2 * expert_layers_ / layout.pipeline *
        all_to_all_seconds({.bytes = bytes, .devices = layout.expert}, options_.hardware, share);
  }
  if (layout.pipeline > 1) seconds += send_seconds(cost.exchanged_bytes, options_.hardware, share);
  return seconds;
}

StepTime StepTimeModel::time(const StepLoad& load) const {
  const Efficiency& efficiency = options_.efficiency;
  const StepCost cost = stage_cost(load);
  StepTime time =
      roofline_parts(cost, efficiency,
                     {.bytes_per_second = options_.hardware.bytes_per_second * efficiency.bandwidth,
                      .rate = rate_,
                      .negligible = negligible_});
  time.exchange_s = exchange(cost);
  const double stages = options_.layout.pipeline;
  time.fixed_s = efficiency.layer_s * layers_ / stages;
  // A token goes through all stages before it comes out.
  time.weights_s *= stages;
  time.attention_s *= stages;
  time.exchange_s *= stages;
  time.fixed_s *= stages;
  time.fixed_s += loose_seconds(load, efficiency);
  return time;
}

double StepTimeModel::ideal_seconds(const StepLoad& load) const {
  const StepCost cost = stage_cost(load);
  return std::max(cost.bytes() / options_.hardware.bytes_per_second, cost.operations() / rate_) *
         options_.layout.pipeline;
}

}  // namespace pelton::cost_model
