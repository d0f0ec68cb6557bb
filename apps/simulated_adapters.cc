#include "apps/simulated_adapters.h"

#include <cmath>
#include <utility>

#include "apps/load_flags.h"
#include "apps/lora_flags.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> simulated_adapter_flags() {
  std::vector<Flag> flags = {
      number_flag("--adapter-skew", "S",
                  "the i-th is asked for 1 / i^S times as often as the first; 0: all alike", "1", 0,
                  8),
      number_flag("--adapter-base-share", "SHARE", "of conversations with the model itself", "0", 0,
                  1),
      number_flag("--adapter-load-ms", "MS", "what it takes to read one", "20", 0, 60'000)};
  for (Flag& flag : lora_flags()) {
    const bool is_of_places = flag.name == "--max-loras" || flag.name == "--max-cpu-loras" ||
                              flag.name == "--lora-loads-per-second";
    if (is_of_places) flags.push_back(std::move(flag));
  }
  for (Flag& flag : flags) flag.only_with = {{"--adapters"}};
  flags.insert(flags.begin(),
               Flag{.name = "--adapters",
                    .value = "N",
                    .help = "LoRA adapters that conversations ask for, one drawn for each",
                    .kind = Flag::Kind::kInteger,
                    .least = 1,
                    .most = 1e6});
  return flags;
}

Result<void> read_simulated_adapters(const cli::Arguments& arguments,
                                     simulator::SimulationOptions& options) {
  if (!arguments.has("--adapters")) return {};
  options.adapters = {.count = static_cast<int>(arguments.integer("--adapters")),
                      .skew = arguments.number("--adapter-skew"),
                      .base_share = arguments.number("--adapter-base-share")};
  TRY_ASSIGN(const LoraPlaces places, read_lora_places(arguments));
  options.replica.capacity.adapters_max = places.active;
  options.replica.adapters = {.resident_max = places.kept,
                              .load_ns = std::llround(arguments.number("--adapter-load-ms") * 1e6),
                              .loads_per_second = arguments.number("--lora-loads-per-second")};
  return {};
}

}  // namespace pelton::apps
