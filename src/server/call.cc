#include "server/call.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "server/reply.h"
#include "server/request_record.h"

namespace pelton::server {
namespace {

constexpr int64_t kTimeoutMsMax = 24 * 3600 * 1000;

}  // namespace

void Call::send(net::HttpResponse response) const {
  for (const auto& [name, value] : headers.fields()) response.headers.add(name, value);
  note_written(request.method == "HEAD" ? 0 : response.body.size());
  note_answered(response.status);
  exchange->send(std::move(response));
}

namespace {

// What clients that are made by Stainless (OpenAI's and Anthropic's) tell of themselves, in
// seconds: how long they wait for an answer to begin, or between two pieces of it. They may say
// anything.
std::optional<double> client_patience_s(const net::HttpHeaders& headers) {
  for (const std::string_view name : {"x-stainless-timeout", "x-stainless-read-timeout"}) {
    const std::string_view text = headers.get(name);
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && seconds > 0 && seconds <= kTimeoutMsMax / 1000) return seconds;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<int64_t>> Call::deadline_ns(std::optional<double> timeout_s,
                                                 Whole whole) const {
  constexpr std::string_view kHeader = "x-request-timeout-ms";
  std::optional<int64_t> deadline;
  const auto within = [&](int64_t ns) {
    deadline = std::min(deadline.value_or(INT64_MAX), arrived_ns + ns);
  };
  if (timeout_s) within(static_cast<int64_t>(*timeout_s * 1e9));
  const auto patience_s = client_patience_s(request.headers);
  if (patience_s && whole == Whole::kYes) within(static_cast<int64_t>(*patience_s * 1e9));
  if (!request.headers.has(kHeader)) return deadline;
  const std::string_view text = request.headers.get(kHeader);
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || end != text.data() + text.size() || ms < 1 || ms > kTimeoutMsMax) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the header '{}' must be a whole number from 1 to {}", kHeader, kTimeoutMsMax),
        std::string(kHeader)};
  }
  within(ms * 1'000'000);
  return deadline;
}

void Call::add_warnings(const std::vector<std::string>& warnings) {
  constexpr size_t kWarningsMax = 8;
  for (size_t i = 0; i < std::min(warnings.size(), kWarningsMax); ++i) {
    headers.add("x-pelton-warning", warnings[i]);
  }
}

api::ApiError Call::told(const Error& error) const {
  return pass == nullptr ? api::api_error(error) : pass->told(error);
}

void Call::note_output(size_t tokens) const {
  if (pass != nullptr) pass->note_output(static_cast<int64_t>(tokens));
}

void Call::note_end(const engine::StreamEnd& end) const {
  if (pass != nullptr) pass->note_end(end);
  if (entry != nullptr && entry->record() != nullptr) entry->record()->generation.add(end);
}

void Call::note_written(size_t bytes) const {
  if (entry != nullptr) entry->note_response_bytes(bytes);
}

void Call::note_answered(int status) const {
  if (entry != nullptr) entry->answered(status);
}

void Call::send(const api::ApiError& error) const {
  send(dialect == Dialect::kOpenAi ? error_reply(error)
                                   : message_error_reply(error, headers.get("x-request-id")));
}

}  // namespace pelton::server
