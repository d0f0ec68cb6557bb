#include "apps/rank.h"

#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/exit_code.h"
#include "executor/rank_follower.h"
#include "node/weight_scrubber.h"
#include "parallel/member.h"
#include "parallel/processors.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kVerb = "rank";
constexpr std::string_view kRank = "--rank";
constexpr std::string_view kLeader = "--leader-process";

// A leader that is gone takes its followers along, also those that are stopped and could not see it
// themselves. False: it had gone before this was said.
bool ends_with(int leader) {
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == leader;
}

int number_behind(std::string_view name, int count, char** words) {
  for (int i = 2; i + 1 < count; ++i) {
    if (words[i] == name) return std::atoi(words[i + 1]);
  }
  return 0;
}

// A leader that is stopped keeps its port and its clients' connections, and nobody could start
// another: it ends here (docs/decisions/0195). It is this process's parent still, so the number is
// no other process's.
void end_silent(int leader) {
  if (::getppid() == leader) ::kill(leader, SIGKILL);
}

}  // namespace

bool is_rank(int count, char** words) {
  return count > 1 && words[1] == kVerb;
}

executor::FollowerOptions::Watch weight_scrubber_of(int rank, const base::Clock& clock,
                                                    base::Log& log) {
  return [rank, &clock, &log](const checkpoint::WeightRanges& weights,
                              int64_t period_ns) -> std::shared_ptr<const void> {
    if (period_ns == 0) return nullptr;
    using State = node::WeightScrubber::State;
    const auto on_change = [rank, &log](State state) {
      if (state != State::kDamaged) return;
      log.error(fmt::format("rank {} ends: its weights are not what they were", rank));
      _exit(cli::kExitStuck);
    };
    return std::make_shared<const node::WeightScrubber>(
        node::WeightScrubber::Options{.period_ns = period_ns,
                                      .errors = {},
                                      .error_count = [] { return int64_t{0}; },
                                      .on_change = on_change},
        weights, clock, log);
  };
}

int run_rank(int count, char** words) {
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kWarning});
  const int leader = number_behind(kLeader, count, words);
  if (leader == 0) {
    fmt::print(stderr, "pelton rank: serve --tensor-parallel-size starts its ranks itself\n");
    return cli::kExitUsage;
  }
  // Who stops the leader lets it drain, for which it needs its followers.
  // Others mean something to it alone (SIGHUP: read the keys anew), whoever else gets them.
  for (const int meant : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    std::signal(meant, SIG_IGN);
  }
  if (!ends_with(leader)) return cli::kExitFailure;
  const int rank = number_behind(kRank, count, words);
  const Result<std::unique_ptr<parallel::Member>> member =
      parallel::Member::join({.on_lost = [&](const parallel::Member::Loss& loss) {
        log.error(fmt::format("rank {} ends: {}{}", rank, loss.why,
                              loss.is_silent ? "; it is killed" : ""));
        if (loss.is_silent) end_silent(leader);
        _exit(cli::kExitStuck);
      }});
  if (!member.ok()) {
    log.error(member.error().message);
    return cli::kExitFailure;
  }
  const parallel::ProcessorScope processors((*member)->processors());
  const Result<void> followed =
      executor::follow(**member, {.watch = weight_scrubber_of(rank, clock, log)});
  if (followed.ok()) return cli::kExitOk;
  log.error(fmt::format("rank {}: {}", rank, followed.error().message));
  return cli::kExitFailure;
}

}  // namespace pelton::apps
