#include "server/call.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "access/request_record.h"
#include "server/generation_facts.h"
#include "server/model_admission.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

constexpr int64_t kTimeoutMsMax = 24 * 3600 * 1000;

// ASCII only, as schemes and hosts are.
bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  const auto lower = [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c); };
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

void Call::send(net::HttpResponse response) const {
  for (const auto& [name, value] : headers.fields()) response.headers.add(name, value);
  note_written(request.method == "HEAD" ? 0 : response.body.size());
  note_answered(response.status);
  exchange->send(std::move(response));
}

namespace {

// What clients that are made by Stainless (OpenAI's and Anthropic's) say of themselves, in
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
  std::optional<int64_t> deadline = transport_deadline_ns;
  const auto within = [&](int64_t ns) {
    deadline = std::min(deadline.value_or(INT64_MAX), arrived_ns + ns);
  };
  if (timeout_s) within(static_cast<int64_t>(*timeout_s * 1e9));
  const auto patience_s = client_patience_s(request.headers);
  if (patience_s && whole == Whole::kYes) within(static_cast<int64_t>(*patience_s * 1e9));
  for (const std::string_view header : {"x-request-timeout-ms", "x-request-deadline-ms"}) {
    if (!request.headers.has(header)) continue;
    const std::string_view text = request.headers.get(header);
    int64_t ms = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
    if (error != std::errc() || end != text.data() + text.size() || ms < 1 || ms > kTimeoutMsMax) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("the header '{}' must be a whole number from 1 to {}", header, kTimeoutMsMax),
          std::string(header)};
    }
    within(ms * 1'000'000);
  }
  return deadline;
}

void Call::add_warnings(const std::vector<std::string>& warnings) {
  constexpr size_t kWarningsMax = 8;
  for (size_t i = 0; i < std::min(warnings.size(), kWarningsMax); ++i) {
    headers.add("x-pelton-warning", warnings[i]);
  }
}

api::ApiError Call::reported(const Error& error) const {
  return ticket == nullptr ? api::api_error(error) : engine_error(ticket->control(), *model, error);
}

void Call::note_output(size_t tokens) const {
  if (ticket != nullptr) ticket->note_output(static_cast<int64_t>(tokens));
}

void Call::note_asked(const access::SamplingAsked& asked) const {
  if (entry != nullptr && entry->record() != nullptr) entry->record()->asked = asked;
}

void Call::note_end(const engine::StreamEnd& end) const {
  if (ticket != nullptr) server::note_end(*ticket, end);
  if (entry != nullptr && entry->record() != nullptr) add_answer(entry->record()->generation, end);
}

void Call::note_written(size_t bytes) const {
  if (entry != nullptr) entry->note_response_bytes(bytes);
}

void Call::note_answered(int status) const {
  if (entry != nullptr) entry->answered(status);
}

bool Call::is_own_url(std::string_view name) const {
  const std::string_view host = request.headers.get("Host");
  const bool secure = starts_with_ignoring_case(name, "https://");
  if (host.empty() || !(secure || starts_with_ignoring_case(name, "http://"))) return false;
  name.remove_prefix(secure ? 8 : 7);
  const std::string_view port = secure ? ":443" : ":80";
  const auto without_port = [&](std::string_view authority) {
    return authority.ends_with(port) ? authority.substr(0, authority.size() - port.size())
                                     : authority;
  };
  const std::string_view authority = without_port(name.substr(0, name.find_first_of("/?#")));
  const std::string_view own = without_port(host);
  return authority.size() == own.size() && starts_with_ignoring_case(authority, own);
}

void Call::send(const api::ApiError& error) const {
  switch (dialect) {
    case Dialect::kOpenAi:
      return send(error_reply(error));
    case Dialect::kAnthropic:
      return send(message_error_reply(error, headers.get("x-request-id")));
    case Dialect::kOllama:
      return send(ollama_error_reply(error));
  }
}

}  // namespace pelton::server
