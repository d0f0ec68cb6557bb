#include "apps/kv_event_flags.h"

#include <random>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "apps/listener_flags.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kEndpoint = "kv-events-endpoint";
constexpr std::string_view kArray = "array";

Error refused(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::string(kEndpoint)};
}

}  // namespace

std::vector<cli::Flag> kv_event_flags() {
  return {
      {.name = "--kv-events-endpoint",
       .value = "ENDPOINT",
       .help = "publish there what the prefix cache holds, as vLLM does (ZMQ), for routers that "
               "read it, as tcp://*:5557. Prompts' tokens leave the process by it",
       .may_be_empty = false,
       .not_with = {{"--enable-prefix-caching", {"false"}}}},
      {.name = "--kv-events-form",
       .value = "FORM",
       .help = "as events are since June 2026, or as older readers want them",
       .default_text = "map",
       .choices = {"map", std::string(kArray)},
       .only_with = {{"--kv-events-endpoint"}}}};
}

std::optional<uint64_t> kv_events_seed(const cli::Arguments& arguments) {
  if (!arguments.knows("--kv-events-endpoint") || !arguments.has("--kv-events-endpoint")) {
    return std::nullopt;
  }
  static const uint64_t seed = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return seed;
}

Result<std::unique_ptr<server::KvEventPublisher>> open_kv_events(const cli::Arguments& arguments,
                                                                 uint64_t block_seed,
                                                                 const base::Clock& clock,
                                                                 base::Log& log) {
  const std::string& endpoint = arguments.text("--kv-events-endpoint");
  if (!endpoint.starts_with(kTcp) || endpoint.rfind(':') < kTcp.size()) {
    return refused(
        fmt::format("--kv-events-endpoint is like tcp://127.0.0.1:5557, not '{}'", endpoint));
  }
  if (arguments.integer("--replicas") > 1) {
    return refused("--kv-events-endpoint is one replica's; start a server for each");
  }
  const std::string host = endpoint.substr(kTcp.size(), endpoint.rfind(':') - kTcp.size());
  if (!is_local(host)) {
    log.warning(
        fmt::format("--kv-events-endpoint {}: anyone who reaches it can read prompts' "
                    "tokens",
                    endpoint));
  }
  const bool is_array = arguments.text("--kv-events-form") == kArray;
  auto opened = server::KvEventPublisher::open(
      {.endpoint = endpoint,
       .form = is_array ? cluster::VllmForm::kArray : cluster::VllmForm::kMap,
       .block_seed = block_seed},
      clock);
  if (!opened.ok()) {
    Error error = opened.error();
    error.field = kEndpoint;
    return error;
  }
  return opened;
}

}  // namespace pelton::apps
