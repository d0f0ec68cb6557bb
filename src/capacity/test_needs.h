// Needs for tests and the benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "capacity/fleet_needs.h"

namespace pelton::capacity {

// One model of 10/s, machines of 4/s in two zones at 2 and 3 an hour, eight of each.
inline FleetNeeds two_zones() {
  FleetNeeds needs;
  const auto entry = [](std::string name, std::string zone, double price) {
    Entry made;
    made.name = std::move(name);
    made.provider = "a";
    made.region = "eu";
    made.zone = std::move(zone);
    made.machine = "g";
    made.gpus = 1;
    made.price = price;
    made.quota = 8;
    return made;
  };
  needs.entries = {entry("cheap", "1", 2), entry("dear", "2", 3)};
  needs.variants = {{.name = "m-on-g", .model = "m", .machine = "g", .machines = 1, .rate = 4}};
  needs.demands = {{.model = "m", .residency = {}, .rate = 10, .answer_kb = 0}};
  return needs;
}

class NeedsDraws {
 public:
  explicit NeedsDraws(uint64_t seed) : seed_(seed) {}
  int below(int bound) {
    return static_cast<int>(base::random_bits(seed_, count_++) % static_cast<uint64_t>(bound));
  }
  double between(double least, double most) {
    return least + (most - least) * base::random_unit(seed_, count_++);
  }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

inline Entry random_entry(NeedsDraws& draws, int index, int machines, int quota) {
  Entry entry;
  entry.name = fmt::format("e{}", index);
  entry.provider = fmt::format("p{}", draws.below(3));
  entry.region = draws.below(2) == 0 ? "eu" : "us";
  entry.zone = fmt::format("{}", draws.below(3));
  entry.machine = fmt::format("g{}", draws.below(machines));
  entry.gpus = 1;
  entry.kind = static_cast<Kind>(draws.below(3));
  entry.price = draws.below(40) / 10.0;
  entry.quota = 1 + draws.below(quota);
  if (entry.kind == Kind::kSpot) {
    entry.price *= 0.4;
    entry.reclaim_per_h = draws.between(0, 0.5);
  }
  entry.residency = {entry.region};
  return entry;
}

// At most 4 entries, 2 models and some 6 columns with quotas of 4, so that every number can be
// tried.
inline FleetNeeds random_small_needs(uint64_t seed) {
  NeedsDraws draws(seed);
  FleetNeeds needs;
  const int entries = 2 + draws.below(3);
  for (int i = 0; i < entries; ++i) needs.entries.push_back(random_entry(draws, i, 2, 4));
  const int models = 1 + draws.below(2);
  for (int m = 0; m < models; ++m) {
    const std::string model = fmt::format("m{}", m);
    for (int g = 0; g < 2; ++g) {
      needs.variants.push_back({.name = fmt::format("v{}{}", m, g),
                                .model = model,
                                .machine = fmt::format("g{}", g),
                                .machines = 1 + draws.below(2),
                                .rate = 1 + draws.below(30) / 10.0});
    }
    needs.demands.push_back(
        {.model = model, .residency = {}, .rate = 0.5 + draws.below(40) / 10.0, .answer_kb = 0});
    if (draws.below(2) == 0) {
      needs.demands.push_back({.model = model,
                               .residency = {"eu"},
                               .rate = 0.1 + draws.below(20) / 10.0,
                               .answer_kb = 0});
    }
  }
  needs.survive.clear();
  if (draws.below(2) == 0) needs.survive.push_back(static_cast<Domain>(draws.below(4)));
  needs.survive_share = draws.below(7) / 10.0;
  if (draws.below(3) == 0) {
    needs.running = {{"e0", needs.entries[0].machine == "g0" ? "v00" : "v01", 1 + draws.below(2)}};
    needs.switch_cost = draws.between(0, 4);
  }
  return needs;
}

// `entries` places, `machines` kinds of them, each of which runs each model, demands of eu and of
// anywhere. Few machines are reserved, or they would
// serve it all at no cost.
inline FleetNeeds random_large_needs(uint64_t seed, int entries, int machines, int models) {
  NeedsDraws draws(seed);
  FleetNeeds needs;
  for (int i = 0; i < entries; ++i) {
    Entry entry = random_entry(draws, i, machines, 40);
    entry.machine = fmt::format("g{}", i % machines);
    entry.quota = entry.kind == Kind::kReserved ? 2 : entry.quota + 10;
    entry.price += 0.5;
    needs.entries.push_back(std::move(entry));
  }
  for (int m = 0; m < models; ++m) {
    const std::string model = fmt::format("m{}", m);
    const double size = draws.between(0.5, 4);
    for (int g = 0; g < machines; ++g) {
      needs.variants.push_back({.name = fmt::format("v{}-{}", m, g),
                                .model = model,
                                .machine = fmt::format("g{}", g),
                                .machines = 1,
                                .rate = draws.between(1, 4) / size});
    }
    needs.demands.push_back(
        {.model = model, .residency = {}, .rate = draws.between(5, 60), .answer_kb = 10});
    needs.demands.push_back(
        {.model = model, .residency = {"eu"}, .rate = draws.between(2, 20), .answer_kb = 10});
  }
  return needs;
}

}  // namespace pelton::capacity
