#include "apps/simulated_network.h"

#include "apps/load_flags.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> simulated_network_flags() {
  std::vector<Flag> flags = {
      number_flag("--network-latency", "MS",
                  "from a gateway to a replica, there and back; with it (or with faults 'cut', "
                  "'lossy', 'late') gateways judge replicas by what they hear of them",
                  "0", 0, 10'000),
      number_flag("--network-loss", "SHARE",
                  "of messages between gateways and replicas that are lost each time that they are "
                  "sent: again after 200 ms, then after twice as long, as TCP does",
                  "0", 0, 0.9),
      number_flag("--facts-delay", "S", "how old the autoscaler's facts are when it hears them",
                  "0", 0, 600),
      number_flag("--facts-lost", "SHARE",
                  "of the autoscaler's facts that it does not hear: it decides by those before",
                  "0", 0, 1)};
  for (Flag& flag : flags) {
    flag.not_with.push_back({"--fidelity", {"fluid"}});
    // Without an autoscaler nobody hears of facts.
    if (flag.name.starts_with("--facts-"))
      flag.only_with = {{"--autoscale"}, {"--scale-config"}, {"--scenario"}};
  }
  return flags;
}

void read_simulated_network(const cli::Arguments& arguments,
                            simulator::SimulationOptions& options) {
  if (!arguments.knows("--network-latency")) return;
  options.network = {.round_trip_s = arguments.number("--network-latency") / 1000,
                     .loss = arguments.number("--network-loss")};
  // As behind a gateway.
  options.answers_go_on = options.answers_go_on || options.has_network();
  if (!options.autoscaling) return;
  options.autoscaling->facts_delay_s = arguments.number("--facts-delay");
  options.autoscaling->facts_lost = arguments.number("--facts-lost");
}

}  // namespace pelton::apps
