#include "apps/model_fetch.h"

#include <filesystem>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hub_cache.h"
#include "cli/human_size.h"
#include "cli/progress.h"
#include "hub/hub_names.h"

namespace pelton::apps {
namespace {

// "owner/name", which is not a path below a folder that is here: "models/mine" is a mistyped path.
bool can_be_fetched(const std::string& id) {
  const size_t slash = id.find('/');
  if (slash == std::string::npos || !hub::check_model_id(id).ok()) return false;
  std::error_code ignored;
  return !std::filesystem::exists(id.substr(0, slash), ignored);
}

}  // namespace

Result<hub::PullOptions> hub_pull_options(const std::string& model, const std::string& endpoint) {
  const auto environment = hub::AccessEnvironment::of_process();
  hub::PullOptions options;
  TRY_ASSIGN(options.access, hub::hub_access(environment, endpoint));
  options.model = checkpoint::hub_id_of(model);
  options.cache = hub::cache_folder(environment);
  return options;
}

cli::Flag offline_flag() {
  return {.name = "--offline",
          .help = "fetch nothing: a hub id must be on this machine; as HF_HUB_OFFLINE=1",
          .kind = cli::Flag::Kind::kSwitch};
}

std::function<void(const hub::RetryNote&)> retry_lines(
    const base::Clock& clock, std::function<void(const std::string& line)> say) {
  constexpr int64_t kQuietNs = 300'000'000;
  return [&clock, say = std::move(say), quiet_until_ns = std::numeric_limits<int64_t>::min()](
             const hub::RetryNote& note) mutable {
    if (clock.now_ns() < quiet_until_ns) return;
    quiet_until_ns = clock.now_ns() + kQuietNs;
    say(fmt::format("{}; trying again in {} ({} of {})", base::one_line(note.why),
                    cli::format_duration(static_cast<double>(note.wait.count()) * 1e-3),
                    note.failures + 1, note.tries_max));
  };
}

Result<void> fetch_if_missing(const std::string& model, const std::string& revision,
                              const std::function<bool()>& stopped, const base::Clock& clock,
                              base::Log& log) {
  const Result<std::string> here = checkpoint::resolve_model(model, revision);
  if (here.ok() || here.error().code != ErrorCode::kNotFound) return {};
  TRY_ASSIGN(hub::PullOptions options, hub_pull_options(model, ""));
  if (!revision.empty()) options.revision = revision;
  options.retry.on_retry =
      retry_lines(clock, [&log](const std::string& line) { log.warning(line); });
  if (options.access.offline || !can_be_fetched(options.model)) return {};
  log.info(fmt::format("{} is not on this machine: fetching it from {} into {}", options.model,
                       options.access.endpoint, options.cache));
  cli::Progress progress("fetching", cli::Progress::Unit::kBytes, clock,
                         [&log](const std::string& line) { log.info(line); });
  const Result<hub::PullReport> report =
      hub::pull(options, clock, [&](const hub::PullProgress& now) {
        if (now.bytes_total > 0) progress.update(now.bytes_done, now.bytes_total);
        return !stopped();
      });
  if (!report.ok()) {
    return Error{report.error().code,
                 fmt::format("{} is not on this machine, and cannot be fetched: {}", options.model,
                             report.error().message),
                 "MODEL"};
  }
  log.info(fmt::format("{}: {} fetched", options.model,
                       cli::format_bytes(static_cast<double>(report->bytes_fetched))));
  return {};
}

}  // namespace pelton::apps
