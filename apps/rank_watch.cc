#include "apps/rank_watch.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/exit_code.h"

namespace pelton::apps {
namespace {

constexpr std::chrono::seconds kGrace{1};  // for the errors to reach those who wait

}  // namespace

void RankWatch::watch(engine::Engine* engine) {
  std::lock_guard lock(mutex_);
  engine_ = engine;
  if (engine_ != nullptr && lost_) leave(*lost_);
}

void RankWatch::lost(const Error& error) {
  std::lock_guard lock(mutex_);
  lost_ = error;
  if (engine_ != nullptr) leave(error);
}

void RankWatch::leave(const Error& error) {
  (void)engine_->abandon(error);  // those that the executor's own error has not ended before
  log_.error(fmt::format("{}: the group of ranks is lost; all answers end, and this process leaves",
                         error.message));
  std::this_thread::sleep_for(kGrace);
  _exit(cli::kExitStuck);
}

}  // namespace pelton::apps
