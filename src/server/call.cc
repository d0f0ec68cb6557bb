#include "server/call.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "server/reply.h"
#include "server/request_record.h"

namespace pelton::server {

void Call::send(net::HttpResponse response) const {
  for (const auto& [name, value] : headers.fields()) response.headers.add(name, value);
  note_answered(response.status);
  exchange->send(std::move(response));
}

Result<std::optional<int64_t>> Call::deadline_ns() const {
  constexpr std::string_view kHeader = "x-request-timeout-ms";
  constexpr int64_t kTimeoutMsMax = 24 * 3600 * 1000;
  if (!request.headers.has(kHeader)) return std::optional<int64_t>();
  const std::string_view text = request.headers.get(kHeader);
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || end != text.data() + text.size() || ms < 1 || ms > kTimeoutMsMax) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the header '{}' must be a whole number from 1 to {}", kHeader, kTimeoutMsMax),
        std::string(kHeader)};
  }
  return std::optional<int64_t>(arrived_ns + ms * 1'000'000);
}

void Call::add_warnings(const std::vector<std::string>& warnings) {
  constexpr size_t kWarningsMax = 8;
  for (size_t i = 0; i < std::min(warnings.size(), kWarningsMax); ++i) {
    headers.add("x-pelton-warning", warnings[i]);
  }
}

void Call::note_end(const engine::StreamEnd& end) const {
  if (entry != nullptr && entry->record() != nullptr) entry->record()->generation.add(end);
}

void Call::note_answered(int status) const {
  if (entry != nullptr) entry->answered(status);
}

void Call::send(const api::ApiError& error) const {
  send(dialect == Dialect::kOpenAi ? error_reply(error)
                                   : message_error_reply(error, headers.get("x-request-id")));
}

}  // namespace pelton::server
