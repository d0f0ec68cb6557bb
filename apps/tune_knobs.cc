#include "apps/tune_knobs.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/terminal_text.h"
#include "checkpoint/checkpoint.h"
#include "cli/flag_names.h"
#include "node/kept_measurement.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kLoad[] = {"max-concurrency", "request-rate",       "input-len",
                                      "output-len",      "random-range-ratio", "workload"};

// What is asked and drawn, how it is played, and what is written of it.
constexpr std::string_view kNone[] = {"vary",
                                      "hardware",
                                      "gpu",
                                      "instance",
                                      "best-by",
                                      "objectives",
                                      "search",
                                      "out",
                                      "seeds",
                                      "ablate",
                                      "html",
                                      "history",
                                      "list",
                                      "json",
                                      "confirm",
                                      "confirm-best",
                                      "confirm-rounds",
                                      "confirm-seconds",
                                      "calibration",
                                      "calibration-out",
                                      "seed",
                                      "no-noise",
                                      "fidelity",
                                      "duration",
                                      "faults",
                                      "facts",
                                      "requests",
                                      "pool",
                                      "num-prompts",
                                      "patience",
                                      "client-retries",
                                      "client-back-off",
                                      "adapters",
                                      "adapter-skew",
                                      "adapter-base-share",
                                      "assumed-service-seconds",
                                      "network-latency",
                                      "network-loss",
                                      "facts-delay",
                                      "facts-lost",
                                      "speculative-acceptance"};

bool is_knob(const cli::Flag& flag, bool is_of_url) {
  if (flag.name == "--help" || flag.name == "--config" || flag.name == "--print-config") {
    return false;
  }
  const std::string key = cli::config_name(flag.name);
  return std::ranges::find(kNone, key) == std::end(kNone) && (is_of_url || !is_load_knob(key));
}

// "did you mean 'x'?", or some that there are.
std::string knobs_text(const std::string& key, const std::vector<cli::Flag>& flags,
                       bool is_of_url) {
  std::vector<std::string> names;
  for (const cli::Flag& flag : flags) {
    if (is_knob(flag, is_of_url)) names.push_back(cli::config_name(flag.name));
  }
  const std::optional<std::string> near = cli::nearest(key, names);
  if (near) return fmt::format("did you mean '{}'?", *near);
  return "vary settings of a deployment, as max-num-seqs, max-num-batched-tokens, kv-cache-dtype, "
         "replicas or router";
}

bool is_eight_bit(std::string_view kv) {
  return kv == "int8" || kv == "fp8";
}

std::optional<std::string> record_text(const std::string& model, const std::string& format) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(model, unknown)) return std::nullopt;
  const Result<checkpoint::Checkpoint> files = checkpoint::Checkpoint::open(model);
  if (!files.ok()) return std::nullopt;
  for (const node::FormatRecord& one : node::kept_records(node::measurements_folder(), *files)) {
    if (one.format == format) return one.text();
  }
  return std::nullopt;
}

}  // namespace

bool is_load_knob(const std::string& key) {
  return std::ranges::find(kLoad, key) != std::end(kLoad);
}

Result<void> check_knobs(const std::vector<Variation>& axes, const std::vector<cli::Flag>& flags,
                         bool is_of_url) {
  for (const Variation& axis : axes) {
    const cli::Flag* const flag = cli::flag_named(flags, axis.key).flag;
    if (flag != nullptr && is_knob(*flag, is_of_url)) continue;
    std::string why = "there is no such setting";
    if (flag != nullptr) why = "that is no setting of a deployment";
    if (flag != nullptr && is_load_knob(cli::config_name(flag->name))) {
      why = "that is the load's, which is the same for all (--confirm URL varies it)";
    }
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--vary {}: {}; {}", base::one_line(axis.key), why,
                             knobs_text(axis.key, flags, is_of_url)),
                 "vary"};
  }
  return {};
}

std::string quality_note(const cli::Arguments& arguments, const Settings& settings) {
  std::string kv = arguments.text("--kv-cache-dtype");
  for (const auto& [key, value] : settings) {
    if (key == "kv-cache-dtype") kv = value;
  }
  if (!is_eight_bit(kv)) return {};
  const std::string& model = arguments.text("MODEL");
  const std::optional<std::string> record = record_text(model, "kv-" + kv);
  if (record) return fmt::format("kv-cache-dtype={}: {}", kv, *record);
  return fmt::format(
      "kv-cache-dtype={0}: what it costs {1} in quality is not known here, and these figures say "
      "nothing of it; `pelton perplexity MODEL --text FILE --against-kv-cache-dtype {0}` makes a "
      "record",
      kv, base::one_line(model));
}

}  // namespace pelton::apps
