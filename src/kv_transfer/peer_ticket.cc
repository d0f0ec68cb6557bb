#include "kv_transfer/peer_ticket.h"

#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "base/digest.h"

namespace pelton::kv_transfer {
namespace {

constexpr std::string_view kVersion = "1";
constexpr size_t kMacDigits = 64;
// Clocks of one fleet differ by no more than that.
constexpr int64_t kSkewMs = 5'000;
constexpr int64_t kSweepMs = 1'000;

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

bool from_hex(std::string_view digits, std::string& into) {
  into.clear();
  if (digits.size() % 2 != 0) return false;
  for (size_t i = 0; i < digits.size(); i += 2) {
    unsigned value = 0;
    const char* const begin = digits.data() + i;
    const auto [end, error] = std::from_chars(begin, begin + 2, value, 16);
    if (error != std::errc() || end != begin + 2) return false;
    into += static_cast<char>(value);
  }
  return true;
}

// In the same time whatever they hold.
bool are_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string mac_of(std::string_view key, std::string_view text) {
  return base::hmac_sha256(key, fmt::format("ticket {}", text));
}

Error refused(std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("the ticket {}", why), "ticket"};
}

}  // namespace

std::string grant_of(std::span<const kv::BlockHash> names) {
  base::Digest digest(base::Digest::Kind::kSha256);
  for (const kv::BlockHash& name : names) {
    std::array<char, 16> bytes{};
    for (size_t i = 0; i < 8; ++i) {
      bytes[i] = static_cast<char>(name.low >> (8 * i));
      bytes[8 + i] = static_cast<char>(name.high >> (8 * i));
    }
    digest.update({bytes.data(), bytes.size()});
  }
  return digest.finish();
}

std::string PeerTicket::seal(std::string_view key) const {
  const std::string text =
      fmt::format("{}.{}.{}.{}.{}.{}.{}", kVersion, to_hex(source), to_hex(target), to_hex(grant),
                  to_hex(request_id), expires_ms, to_hex(nonce));
  return text + "." + mac_of(key, text);
}

Result<PeerTicket> PeerTicket::open(std::string_view text, std::span<const std::string> keys) {
  if (text.size() > kTextMax) return refused("is too long");
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return refused("is none");
  const std::string_view signed_text = text.substr(0, dot);
  const std::string_view mac = text.substr(dot + 1);
  bool is_ours = false;
  for (const std::string& key : keys) {
    is_ours = are_equal(mac, mac_of(key, signed_text)) || is_ours;
  }
  if (mac.size() != kMacDigits || !is_ours) return refused("is not one of this fleet's");
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= signed_text.size();) {
    const size_t end = std::min(signed_text.find('.', at), signed_text.size());
    parts.push_back(signed_text.substr(at, end - at));
    at = end + 1;
  }
  if (parts.size() != 7 || parts[0] != kVersion) return refused("is of another version");
  PeerTicket ticket;
  const std::array<std::string*, 4> texts = {&ticket.source, &ticket.target, &ticket.grant,
                                             &ticket.request_id};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!from_hex(parts[i + 1], *texts[i])) return refused("is none");
  }
  const std::string_view expiry = parts[5];
  const auto [end, error] =
      std::from_chars(expiry.data(), expiry.data() + expiry.size(), ticket.expires_ms);
  if (error != std::errc() || end != expiry.data() + expiry.size()) return refused("is none");
  if (!from_hex(parts[6], ticket.nonce)) return refused("is none");
  return ticket;
}

Result<void> UsedTickets::use(const PeerTicket& ticket, const Shown& shown) {
  if (ticket.source != shown.source) return refused("is for another worker's blocks");
  if (ticket.target != shown.target) return refused("is another worker's");
  if (ticket.expires_ms <= shown.now_ms) return refused("has expired");
  if (ticket.expires_ms > shown.now_ms + PeerTicket::kLifeMs + kSkewMs) {
    return refused("is good for too long");
  }
  std::lock_guard lock(mutex_);
  if (shown.steady_ms - swept_ms_ >= kSweepMs) {
    swept_ms_ = shown.steady_ms;
    std::erase_if(uses_, [&](const auto& one) {
      const Use& use = one.second;
      return use.expires_ms <= shown.now_ms && shown.steady_ms - use.steady_ms >= kKeptMs;
    });
  }
  if (uses_.contains(ticket.nonce)) return refused("was used before");
  if (uses_.size() >= kMax) return refused("is one too many");
  uses_.emplace(ticket.nonce, Use{ticket.expires_ms, shown.steady_ms});
  return {};
}

}  // namespace pelton::kv_transfer
