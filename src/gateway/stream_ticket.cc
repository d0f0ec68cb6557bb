#include "gateway/stream_ticket.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "base/digest.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kLabel = "pelton stream ticket 1";
constexpr size_t kMacSize = 32;  // of hexadecimal: 128 bits
constexpr size_t kDigestSize = 16;

Error bad(std::string_view header, std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}': {}", header, what),
               std::string(header)};
}

// The number that the text begins with, which is taken off; none: it begins with none.
template <typename Number>
std::optional<Number> take_number(std::string_view& text, int base) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || text.starts_with('-')) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

std::string mac(std::string_view secret, const StreamTicket& ticket, const StreamTicket::Of& of) {
  return base::hmac_sha256(secret, fmt::format("{}\n{}\n{:x}\n{}\n{}\n{}\n{}", kLabel,
                                               ticket.created_ms, ticket.seed, of.tenant,
                                               of.request_id, of.path, base::sha256(of.body)))
      .substr(0, kMacSize);
}

// In a time that does not depend on where they differ.
bool is_equal(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  int difference = 0;
  for (size_t i = 0; i < one.size(); ++i) difference |= one[i] ^ other[i];
  return difference == 0;
}

}  // namespace

std::string StreamTicket::seal(std::string_view secret, const Of& of) const {
  return fmt::format("{}-{:x}-{}", created_ms, seed, mac(secret, *this, of));
}

Result<StreamTicket> StreamTicket::open(std::string_view text, std::string_view secret,
                                        const Of& of) {
  constexpr std::string_view kNone =
      "is no ticket for this stream: of the same key's tenant, x-request-id, path and body, as "
      "gateways with the same secret give it";
  const std::optional<int64_t> created_ms = take_number<int64_t>(text, 10);
  if (!created_ms || !take(text, '-')) return bad(kResumeHeader, kNone);
  const std::optional<uint64_t> seed = take_number<uint64_t>(text, 16);
  if (!seed || !take(text, '-')) return bad(kResumeHeader, kNone);
  const StreamTicket ticket{.created_ms = *created_ms, .seed = *seed};
  if (!is_equal(text, mac(secret, ticket, of))) return bad(kResumeHeader, kNone);
  return ticket;
}

std::string StreamPlace::text() const {
  std::string text;
  for (const Choice& choice : choices) {
    fmt::format_to(std::back_inserter(text), "{}{}{}", text.empty() ? "" : ".", choice.tokens,
                   choice.finished ? "f" : "");
  }
  return fmt::format("{}-{:016x}", text.empty() ? "0" : text, digest);
}

Result<StreamPlace> StreamPlace::parse(std::string_view text) {
  constexpr std::string_view kNone = "is no place in a stream: the last event's 'id'";
  StreamPlace place;
  do {
    const std::optional<size_t> tokens = take_number<size_t>(text, 10);
    if (!tokens || *tokens > kTokensMax || place.choices.size() == kChoicesMax) {
      return bad(kLastEventHeader, kNone);
    }
    place.choices.push_back({.tokens = *tokens, .finished = take(text, 'f')});
  } while (take(text, '.'));
  if (!take(text, '-') || text.size() != kDigestSize) return bad(kLastEventHeader, kNone);
  const std::optional<uint64_t> digest = take_number<uint64_t>(text, 16);
  if (!digest || !text.empty()) return bad(kLastEventHeader, kNone);
  place.digest = *digest;
  return place;
}

}  // namespace pelton::gateway
