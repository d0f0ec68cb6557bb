#include "apps/sleep_flags.h"

#include <string>

#include <fmt/format.h>

#include "base/duration.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> sleep_flags() {
  return {
      {.name = "--sleep-after",
       .value = "DURATION",
       .help = "give a model's memory back so long after its last request (90s, 5m, 1h30m), and "
               "load it again for the next one; a request's keep_alive says otherwise",
       .may_be_empty = false},
      {.name = "--enable-sleep-mode",
       .help = "let callers do that by POST /sleep and /wake_up",
       .kind = Flag::Kind::kSwitch}};
}

Result<std::optional<int64_t>> sleep_after_ns(const cli::Arguments& arguments) {
  constexpr int64_t kLeastNs = 1'000'000'000;
  if (!arguments.has("--sleep-after")) return std::optional<int64_t>();
  const std::string& text = arguments.text("--sleep-after");
  const std::optional<int64_t> ns = base::parse_duration_ns(text);
  if (ns && *ns >= kLeastNs) return ns;
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("--sleep-after is a span of at least 1s, like 90s, 5m or 1h30m, not '{}'", text),
      "sleep-after"};
}

}  // namespace pelton::apps
