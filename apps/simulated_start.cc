#include "apps/simulated_start.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cost_model/parameters.h"

namespace pelton::apps {
namespace {

using cli::Flag;

struct Tier {
  const char* name;
  const char* bytes_per_s;
};
// What one replica gets of each by itself: a public hub, an object store over many streams, an NVMe
// drive, a peer over 200 Gb/s.
constexpr std::array<Tier, 4> kTiers = {
    {{"hub", "1GB"}, {"object", "3GB"}, {"disk", "7GB"}, {"peer", "25GB"}}};
constexpr const char* kWeights = "weights";

double tier_rate(const std::string& name) {
  const auto* const tier = std::ranges::find(kTiers, name, &Tier::name);
  // "25GB": digits before the unit.
  return std::stod(tier->bytes_per_s) * 1e9;
}

}  // namespace

std::vector<Flag> simulated_start_flags() {
  std::vector<std::string> names;
  std::string rates;
  for (const Tier& tier : kTiers) {
    names.emplace_back(tier.name);
    rates += std::string(rates.empty() ? "" : ", ") + tier.name + " " + tier.bytes_per_s;
  }
  return {{.name = "--start-tier",
           .value = "TIER",
           .help = "where a starting replica's weights come from, a second: " + rates +
                   "; instead of the phase 'weights', else behind what a start takes otherwise",
           .choices = names,
           .only_with = {{"--autoscale"}, {"--scale-config"}, {"--scenario"}}},
          {.name = "--start-bandwidth",
           .value = "BYTES",
           .help = "of that tier, a second, for one replica",
           .kind = Flag::Kind::kSize,
           .least = 1'000'000,
           .only_with = {{"--start-tier"}}},
          {.name = "--start-shared-bandwidth",
           .value = "BYTES",
           .help = "of that tier, a second, for all replicas that start together; default no bound",
           .kind = Flag::Kind::kSize,
           .least = 1'000'000,
           .only_with = {{"--start-tier"}}}};
}

Result<void> read_simulated_start(const cli::Arguments& arguments, const HardwareChoice& choice,
                                  simulator::Autoscaling& asked) {
  if (!arguments.knows("--start-tier") || !arguments.has("--start-tier")) return {};
  simulator::StartPhase fetch{.name = kWeights};
  fetch.bytes = cost_model::weight_bytes(choice.plan.capacity.memory.shape);
  fetch.bytes_per_s = arguments.has("--start-bandwidth")
                          ? static_cast<double>(arguments.integer("--start-bandwidth"))
                          : tier_rate(arguments.text("--start-tier"));
  if (arguments.has("--start-shared-bandwidth")) {
    fetch.shared_bytes_per_s = static_cast<double>(arguments.integer("--start-shared-bandwidth"));
  }
  if (asked.phases.empty()) asked.phases = {{.name = "start", .seconds = asked.start_s}};
  const auto known = std::ranges::find(asked.phases, kWeights, &simulator::StartPhase::name);
  if (known != asked.phases.end()) {
    *known = std::move(fetch);
  } else {
    asked.phases.push_back(std::move(fetch));
  }
  return asked.check();
}

}  // namespace pelton::apps
