#include "planner/published.h"

#include <fmt/format.h>

#include "base/check.h"
#include "planner/capacity_plan.h"

namespace pelton::planner {
namespace {

using cost_model::Layout;
using cost_model::StepLoad;
using cost_model::StepTimeModel;

StepTimeModel ideal(const std::string& gpu, const Layout& layout) {
  Result<StepTimeModel> made =
      StepTimeModel::make({.hardware = *cost_model::find_hardware(gpu),
                           .shape = *cost_model::find_model_config("gpt-oss-120b"),
                           .layout = layout});
  CHECK(made.ok(), made.error().message);
  return *made;
}

}  // namespace

RackThroughput rack_throughput() {
  constexpr int kDevices = 72;
  constexpr int64_t kContext = 1024;
  const cost_model::Windows kWindows = {0, 128};
  RackThroughput rack{.published_per_s = 1.5e6};
  rack.per_device_per_s = rack.published_per_s / kDevices;
  const StepLoad alone = StepLoad::decodes(rack.answers_per_device, kContext, kWindows);
  rack.replicas_ideal_per_s =
      kDevices * rack.answers_per_device / ideal("gb200-nvl72", {}).ideal_seconds(alone);
  // 128 experts divide among 64 devices; the other eight carry as many tokens as these do.
  constexpr int kGroup = 64;
  const StepLoad group =
      StepLoad::decodes(int64_t{rack.answers_per_device} * kGroup, kContext, kWindows);
  const StepTimeModel dealt = ideal("gb200-nvl72", {.expert = kGroup});
  rack.experts_ideal_per_s = static_cast<double>(kDevices) / kGroup *
                             static_cast<double>(group.rows) / dealt.ideal_seconds(group);
  rack.implied_of_replicas = rack.published_per_s / rack.replicas_ideal_per_s;
  rack.implied_of_experts = rack.published_per_s / rack.experts_ideal_per_s;
  return rack;
}

std::vector<SplitPoint> split_interactivity() {
  CapacityOptions options;
  options.memory.hardware = *cost_model::find_hardware("b200");
  options.memory.shape = *cost_model::find_model_config("gpt-oss-120b");
  options.memory.batch_tokens_max = 8192;
  options.demand = {.input_tokens = 32'768, .output_tokens = 1024};
  std::vector<SplitPoint> points;
  for (const int rows : {4, 8, 16, 20, 24, 32}) {
    const Result<SplitGain> gain =
        split_gain(options, {.concurrency = rows, .chunk_tokens = 8192, .output_kept_least = 0.7});
    if (!gain.ok()) continue;
    points.push_back({.concurrency = rows,
                      .gain = gain->gain(),
                      .together_itl_s = gain->together_itl_s,
                      .split_itl_s = gain->split_itl_s,
                      .output_kept = gain->output_kept,
                      .prefill_devices_share = gain->prefill_devices_share});
  }
  return points;
}

Section published_section() {
  Section section{.key = "published",
                  .title = "What others published, beside the model (modelled, not measured here)"};
  auto& figures = section.figures;
  const RackThroughput rack = rack_throughput();
  figures.push_back({"nvl72_published", "120b on GB200 NVL72, published", rack.published_per_s,
                     Unit::kPerSecond,
                     "NVIDIA, August 2025; which answers, how long, is not said"});
  figures.push_back(
      {"nvl72_per_device", "of one of 72", rack.per_device_per_s, Unit::kPerSecond, "1.5e6 / 72"});
  figures.push_back({"nvl72_replicas_ideal", "roofline, a copy on each", rack.replicas_ideal_per_s,
                     Unit::kPerSecond,
                     fmt::format("72 x {} answers at 1 k of context / the slower of bytes / "
                                 "bandwidth and operations / bf16 rate",
                                 rack.answers_per_device)});
  figures.push_back({"nvl72_implied_of_replicas", "implied efficiency", rack.implied_of_replicas,
                     Unit::kShare, "published / roofline"});
  figures.push_back({"nvl72_experts_ideal", "roofline, experts dealt to 64",
                     rack.experts_ideal_per_s, Unit::kPerSecond,
                     "72 / 64 of a group's, each device reading two experts a layer"});
  figures.push_back({"nvl72_implied_of_experts", "implied efficiency", rack.implied_of_experts,
                     Unit::kShare, "published / roofline"});
  figures.push_back({"split_published", "prompts apart from answers at 32 k in, published", 4,
                     Unit::kRatio, "NVIDIA: about 4 x interactivity on Blackwell"});
  Table table{.key = "split_modelled",
              .columns = {"answers on each B200", "between tokens, beside prompts", "apart",
                          "gain, modelled", "output kept", "devices for prompts"},
              .rows = {}};
  for (const SplitPoint& point : split_interactivity()) {
    table.rows.push_back({{.value = static_cast<double>(point.concurrency)},
                          {.value = point.together_itl_s, .unit = Unit::kSeconds},
                          {.value = point.split_itl_s, .unit = Unit::kSeconds},
                          {.value = point.gain, .unit = Unit::kRatio},
                          {.value = point.output_kept, .unit = Unit::kShare},
                          {.value = point.prefill_devices_share, .unit = Unit::kShare}});
  }
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace pelton::planner
