#include "apps/simulated_travel.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "apps/load_flags.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using gateway::SplitConfig;

Flag rate_flag(const char* name, const char* help, const char* otherwise, const char* needs) {
  Flag flag{.name = name,
            .value = "BYTES",
            .help = help,
            .kind = Flag::Kind::kSize,
            .default_text = otherwise,
            .least = 1'000'000};
  flag.only_with = {{needs}};
  return flag;
}

Flag latency_flag(const char* name, const char* help, const char* otherwise, const char* needs) {
  Flag flag = number_flag(name, "US", help, otherwise, 0, 10'000'000);
  flag.only_with = {{needs}};
  return flag;
}

// Each group gets as much of the tier as it has of the device.
void give_blocks(kv::Tier tier, int64_t bytes, engine::ExecutorCapacity& capacity) {
  double device_bytes = 0;
  for (const kv::GroupCapacity& group : capacity.groups) {
    device_bytes += static_cast<double>(group.block_counts[kv::kDevice]) *
                    static_cast<double>(group.spec.block_bytes);
  }
  const double ratio = static_cast<double>(bytes) / std::max(device_bytes, 1.0);
  for (kv::GroupCapacity& group : capacity.groups) {
    constexpr double kBlocksMax = 1 << 26;
    group.block_counts[static_cast<size_t>(tier)] = static_cast<int>(
        std::min(ratio * static_cast<double>(group.block_counts[kv::kDevice]), kBlocksMax));
  }
}

simulator::KvPath read_path(const cli::Arguments& arguments, const std::string& name) {
  return {.bytes_per_s = static_cast<double>(arguments.integer("--" + name + "-bandwidth")),
          .latency_s = arguments.number("--" + name + "-latency") * 1e-6};
}

Result<void> read_split(const cli::Arguments& arguments, simulator::SimulationOptions& options) {
  const std::string& mode = arguments.text("--split");
  for (const SplitConfig::Mode one :
       {SplitConfig::Mode::kOff, SplitConfig::Mode::kAuto, SplitConfig::Mode::kAlways}) {
    if (gateway::split_mode_name(one) == mode) options.split.mode = one;
  }
  if (arguments.text("--handoff") == gateway::handoff_name(SplitConfig::Handoff::kFirst)) {
    options.split.handoff = SplitConfig::Handoff::kFirst;
  }
  options.prefill_replicas = static_cast<int>(arguments.integer("--prefill-replicas"));
  return {};
}

}  // namespace

std::vector<Flag> simulated_travel_flags() {
  std::vector<Flag> flags = {
      rate_flag("--swap-bandwidth", "between the device and the host's memory, bytes a second",
                "50GB", "--swap-space"),
      latency_flag("--swap-latency", "before the first byte of it, microseconds", "10",
                   "--swap-space"),
      {.name = "--kv-disk-size",
       .value = "BYTES",
       .help = "a disk behind the host's memory (--swap-space), as 200GiB",
       .kind = Flag::Kind::kSize,
       .default_text = "0",
       .only_with = {{"--swap-space"}}},
      {.name = "--kv-disk-write",
       .value = "WHEN",
       .help = "which blocks are written there, as serve's",
       .default_text = "selective",
       .choices = {"selective", "all", "evict"},
       .only_with = {{"--kv-disk-size"}}},
      rate_flag("--kv-disk-bandwidth", "of the disk, bytes a second", "6GB", "--kv-disk-size"),
      latency_flag("--kv-disk-latency", "before the first byte of it, microseconds", "100",
                   "--kv-disk-size"),
      {.name = "--kv-link-bandwidth",
       .value = "BYTES",
       .help = "of each replica's link to the others, a second and in each direction: they fetch "
               "keys and values from each other, as 25GB; 0: they do not",
       .kind = Flag::Kind::kSize,
       .default_text = "0",
       .only_with = {{"--swap-space"}}},
      latency_flag("--kv-link-latency", "of a link, microseconds", "50", "--kv-link-bandwidth"),
      {.name = "--split",
       .value = "WHEN",
       .help =
           "one replica computes the prompt and another one goes on, as [[pool]]'s split; needs "
           "--router cost",
       .default_text = "off",
       .choices = {"off", "auto", "always"},
       .only_with = {{"--kv-link-bandwidth"}}},
      {.name = "--handoff",
       .value = "WHEN",
       .help = "when the first replica ends, as [[pool]]'s",
       .default_text = "warm",
       .choices = {"warm", "first"},
       .only_with = {{"--split", {"auto", "always"}}}},
      {.name = "--prefill-replicas",
       .value = "N",
       .help = "of --replicas: so many compute prompts only, the others decode; 0: each does both",
       .kind = Flag::Kind::kInteger,
       .default_text = "0",
       .most = 9'999,
       .only_with = {{"--split", {"auto", "always"}}}}};
  for (Flag& flag : flags) flag.not_with.push_back({"--fidelity", {"fluid"}});
  return flags;
}

Result<void> read_simulated_travel(const cli::Arguments& arguments,
                                   simulator::SimulationOptions& options) {
  simulator::Replica::Options& replica = options.replica;
  const int64_t host = arguments.integer("--swap-space");
  if (host == 0) return {};
  const bool has_blocks = std::ranges::any_of(
      replica.capacity.groups, [](const auto& group) { return group.block_counts[kv::kHost] > 0; });
  if (!has_blocks) give_blocks(kv::kHost, host, replica.capacity);
  replica.paths.host = read_path(arguments, "swap");
  if (arguments.integer("--kv-disk-size") > 0) {
    give_blocks(kv::kDisk, arguments.integer("--kv-disk-size"), replica.capacity);
    replica.paths.disk = read_path(arguments, "kv-disk");
    const std::string& writes = arguments.text("--kv-disk-write");
    replica.disk_writes = writes == "all"     ? kv::DiskWrites::kAll
                          : writes == "evict" ? kv::DiskWrites::kEvicted
                                              : kv::DiskWrites::kSelective;
  }
  if (arguments.integer("--kv-link-bandwidth") > 0) {
    replica.paths.link = read_path(arguments, "kv-link");
  }
  return read_split(arguments, options);
}

}  // namespace pelton::apps
