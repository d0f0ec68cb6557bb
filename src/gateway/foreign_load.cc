#include "gateway/foreign_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace pelton::gateway {
namespace {

struct Names {
  std::string_view running;
  std::string_view waiting;
  std::array<std::string_view, 2> kv_used;  // as it is called now, and was before
};

Names names_of(WorkerKind kind) {
  switch (kind) {
    case WorkerKind::kVllm:
      return {.running = "vllm:num_requests_running",
              .waiting = "vllm:num_requests_waiting",
              .kv_used = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}};
    case WorkerKind::kSglang:
      return {.running = "sglang:num_running_reqs",
              .waiting = "sglang:num_queue_reqs",
              .kv_used = {"sglang:token_usage", "sglang:token_usage"}};
    case WorkerKind::kLlamaCpp:
      return {.running = "llamacpp:requests_processing",
              .waiting = "llamacpp:requests_deferred",
              .kv_used = {"llamacpp:kv_cache_usage_ratio", "llamacpp:kv_cache_usage_ratio"}};
    case WorkerKind::kPelton:
    case WorkerKind::kOpenAi:
    case WorkerKind::kRegion:
      break;
  }
  return {};
}

// The value of "NAME VALUE", "NAME{…} VALUE" or "NAME{…} VALUE TIME"; none: it is another series.
std::optional<double> value_of(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return std::nullopt;
  line.remove_prefix(name.size());
  if (line.starts_with('{')) {
    const size_t end = line.rfind('}');
    if (end == std::string_view::npos) return std::nullopt;
    line.remove_prefix(end + 1);
  }
  if (!line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  double value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string_view foreign_load_path(WorkerKind kind) {
  return names_of(kind).running.empty() ? std::string_view() : std::string_view("/metrics");
}

std::optional<ForeignLoad> parse_foreign_load(WorkerKind kind, std::string_view page) {
  constexpr double kMost = 1e6;
  const Names names = names_of(kind);
  if (names.running.empty()) return std::nullopt;
  double running = 0;
  double waiting = 0;
  ForeignLoad load;
  bool is_known = false;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    std::string_view line = page.substr(0, end);
    page.remove_prefix(std::min(end + 1, page.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto value = value_of(line, names.running)) {
      running += *value;
      is_known = true;
    } else if (const auto queued = value_of(line, names.waiting)) {
      waiting += *queued;
    }
    for (const std::string_view name : names.kv_used) {
      if (const auto used = value_of(line, name)) {
        load.kv_used = std::max(load.kv_used, std::min(*used, 1.0));
      }
    }
  }
  if (!is_known) return std::nullopt;
  load.running = static_cast<int>(std::min(running, kMost));
  load.waiting = static_cast<int>(std::min(waiting, kMost));
  return load;
}

}  // namespace pelton::gateway
