#include "apps/autoscale_flags.h"

namespace pelton::apps {
namespace {

using autoscaler::PoolPolicy;

std::optional<double> number_if_given(const cli::Arguments& arguments, const char* flag) {
  if (!arguments.has(flag)) return std::nullopt;
  return arguments.number(flag);
}

cli::Flag number_flag(std::string name, std::string value, std::string help, double least,
                      double most) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .kind = cli::Flag::Kind::kNumber,
          .least = least,
          .most = most,
          .only_with = {{"--autoscale"}}};
}

}  // namespace

std::vector<cli::Flag> autoscale_flags() {
  std::vector<cli::Flag> flags = {
      {.name = "--autoscale",
       .value = "RULE",
       .help =
           "replicas start and stop: Pelton's autoscaler, or Knative's arithmetic; --replicas are "
           "ready at the beginning",
       .choices = {"concurrency", "knative"}},
      number_flag("--min-replicas", "N", "never fewer; default 1", 0, 10'000),
      number_flag("--max-replicas", "N", "never more; default 8", 1, 10'000),
      number_flag("--start-seconds", "S", "from an order until a replica is ready; default 30",
                  0.001, 86'400),
      number_flag("--scale-down-delay", "S", "how long a load must be gone; default by the start",
                  0, 3600),
      number_flag("--concurrency-target", "N", "requests at a replica; default --max-num-seqs",
                  0.01, 1e6),
      number_flag("--target-utilization", "SHARE",
                  "of that; default: more is kept free in small fleets", 0.01, 1)};
  for (cli::Flag& flag : flags) {
    if (flag.name == "--min-replicas" || flag.name == "--max-replicas") {
      flag.kind = cli::Flag::Kind::kInteger;
    }
  }
  return flags;
}

Result<std::optional<simulator::Autoscaling>> read_autoscaling(
    const cli::Arguments& arguments, int replicas, const engine::ExecutorCapacity& capacity) {
  if (!arguments.has("--autoscale")) return std::optional<simulator::Autoscaling>();
  simulator::Autoscaling asked{.replicas = replicas};
  PoolPolicy& policy = asked.policy;
  const bool knative = arguments.text("--autoscale") == "knative";
  policy.rule = knative ? PoolPolicy::Rule::kKnative : PoolPolicy::Rule::kConcurrency;
  policy.replicas_min =
      arguments.has("--min-replicas") ? static_cast<int>(arguments.integer("--min-replicas")) : 1;
  policy.replicas_max =
      arguments.has("--max-replicas") ? static_cast<int>(arguments.integer("--max-replicas")) : 8;
  policy.concurrency_target =
      number_if_given(arguments, "--concurrency-target").value_or(capacity.sequences_max);
  policy.target_utilization = number_if_given(arguments, "--target-utilization");
  policy.scale_down_delay_s = number_if_given(arguments, "--scale-down-delay");
  asked.start_s = number_if_given(arguments, "--start-seconds").value_or(asked.start_s);
  TRY(policy.check());
  return std::optional(asked);
}

}  // namespace pelton::apps
