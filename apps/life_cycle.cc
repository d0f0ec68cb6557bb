#include "apps/life_cycle.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/listener_flags.h"
#include "cli/terminal.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warning", "error"};
// What a SIGHUP changes; the rest takes a new start.
constexpr std::array<std::string_view, 7> kReloaded = {
    "--api-key", "--admin-api-key", "--api-key-file", "--tls-cert",
    "--tls-key", "--log-level",     "--tls-client-ca"};

}  // namespace

LifeCycle::LifeCycle(const Parts& parts)
    : parts_(parts),
      asks_for_keys_(parts.arguments.has("--api-key") || parts.arguments.has("--admin-api-key") ||
                     parts.arguments.has("--api-key-file")),
      asks_for_certificates_(parts.arguments.has("--tls-client-ca")),
      had_terminal_(cli::is_terminal(stderr)) {}

std::vector<Flag> life_flags() {
  return {{.name = "--drain-seconds",
           .value = "S",
           .help = "what running answers get after SIGTERM",
           .kind = Flag::Kind::kNumber,
           .default_text = "25",
           .most = 86'400},
          {.name = "--drain-delay-seconds",
           .value = "S",
           .help = "after SIGTERM /ready says 503 so long before requests are refused: the time a "
                   "balancer needs to notice",
           .kind = Flag::Kind::kNumber,
           .default_text = "0",
           .most = 3600},
          {.name = "--log-level",
           .value = "LEVEL",
           .help = "the least of what is logged",
           .default_text = "info",
           .choices = {kLevels.begin(), kLevels.end()}}};
}

void warn_of_root(base::Log& log) {
  if (::getpid() != 1 || ::geteuid() != 0) return;
  log.warning(
      "runs as root, which it needs for nothing: the image's own user is 65532 (runAsNonRoot, "
      "--user)");
}

base::LogLevel log_level(const cli::Arguments& arguments) {
  const auto found = std::find(kLevels.begin(), kLevels.end(), arguments.text("--log-level"));
  return static_cast<base::LogLevel>(found - kLevels.begin());
}

int64_t LifeCycle::drain_ms() const {
  return static_cast<int64_t>(parts_.arguments.number("--drain-seconds") * 1000);
}

void LifeCycle::wait_for_the_end() {
  while (parts_.interrupt.next() == cli::Interrupt::Event::kHangUp) {
    // A terminal that was closed says so with the same signal: nobody is left to stop us.
    if (had_terminal_ && !cli::is_terminal(stderr)) break;
    reload();
  }
  for (const auto& worker : parts_.workers) {
    worker->server().announce_drain();
    worker->grpc().set_serving(false);
  }
  // Ctrl-C comes from a person, who does not want to wait for a balancer.
  const double delay_s = parts_.arguments.number("--drain-delay-seconds");
  if (parts_.interrupt.by_terminate() && delay_s > 0) {
    parts_.log.info(
        fmt::format("stopping: not ready from now on, refusing in {} seconds", delay_s));
    std::this_thread::sleep_for(std::chrono::duration<double>(delay_s));
  }
  parts_.log.info(fmt::format("stopping: running answers get {} seconds",
                              parts_.arguments.number("--drain-seconds")));
}

void LifeCycle::reload() {
  // Whatever the configuration says: who moved the file away waits for it.
  const Result<void> reopened = parts_.reporting.reopen();
  if (!reopened) parts_.log.error("SIGHUP: the access log stays: " + reopened.error().message);
  const Result<void> done = try_reload();
  for (const auto& worker : parts_.workers) {
    worker->server().services().reload_statistics.count_reload(done.ok());
  }
  if (parts_.audit != nullptr) {
    parts_.audit->note({.who = "SIGHUP",
                        .what = "reload",
                        .target = "certificates, keys",
                        .result = done.ok() ? "done" : "refused: " + done.error().message});
  }
  if (done) {
    parts_.log.info("SIGHUP: certificates, keys and log level are read anew");
  } else {
    parts_.log.error("SIGHUP: all stays as it was: " + done.error().message);
  }
}

// All or nothing: what can fail comes first.
Result<void> LifeCycle::try_reload() {
  TRY_ASSIGN(const cli::Arguments fresh, parts_.arguments.reread());
  TRY_ASSIGN(ListenerKeys keys, listener_keys(fresh));
  if (asks_for_keys_ && keys.all.empty()) {
    return Error{ErrorCode::kBadConfig,
                 "no API key is left; a server that asks for keys goes on asking", "api-key"};
  }
  TRY_ASSIGN(const net::TlsIdentity::Files files, tls_files(fresh));
  if (files.certificate.empty() != (parts_.tls == nullptr) ||
      files.client_ca.empty() != !asks_for_certificates_) {
    return Error{ErrorCode::kBadConfig,
                 "TLS and --tls-client-ca are not turned on or off while serving", "tls-cert"};
  }
  if (parts_.tls != nullptr) TRY(parts_.tls->reload(files));
  // Beyond this point nothing is refused any more.
  parts_.gate.set_keys(std::move(keys.operators));
  asks_for_keys_ = !keys.all.empty();
  for (const auto& worker : parts_.workers) {
    const Result<void> renewed = worker->grpc().renew_certificates();
    if (!renewed) parts_.log.error(renewed.error().message);
    worker->server().set_keys(keys.all);
  }
  parts_.log.set_level(log_level(fresh));
  for (const std::string& name : fresh.changed_since(parts_.arguments)) {
    if (std::find(kReloaded.begin(), kReloaded.end(), name) != kReloaded.end()) continue;
    parts_.log.warning(fmt::format("SIGHUP: {} has changed, which takes a new start", name));
  }
  return {};
}

}  // namespace pelton::apps
