#include "server/encrypted_reasoning.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "base/base64.h"
#include "base/digest.h"

namespace pelton::server {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kShownDigits = 8;

std::string or_random(std::string key) {
  return key.empty() ? base::random_bytes(kKeyBytes) : std::move(key);
}

std::string prefix_of(const std::string& key) {
  return fmt::format("pelton1.{}.", base::hmac_sha256(key, "which key").substr(0, kShownDigits));
}

}  // namespace

EncryptedReasoning::EncryptedReasoning(std::string key)
    : key_(or_random(std::move(key))), cipher_(key_), prefix_(prefix_of(key_)) {}

std::string EncryptedReasoning::encrypt(std::string_view text, std::string_view tenant) const {
  return prefix_ + base::base64(cipher_.seal({.text = text, .context = tenant}));
}

std::variant<std::string, EncryptedReasoning::Unread> EncryptedReasoning::decrypt(
    std::string_view token, std::string_view tenant) const {
  if (!token.starts_with(prefix_)) return Unread::kForeign;
  const std::optional<std::string> sealed = base::from_base64(token.substr(prefix_.size()));
  if (!sealed) return Unread::kForged;
  std::optional<std::string> text = cipher_.open({.bytes = *sealed, .context = tenant});
  if (!text) return Unread::kForged;
  return *std::move(text);
}

Result<std::string> EncryptedReasoning::read_returned(const Returned& returned,
                                                      std::vector<std::string>& warnings) const {
  auto read = decrypt(returned.token, returned.tenant);
  if (auto* text = std::get_if<std::string>(&read)) return std::move(*text);
  if (std::get<Unread>(read) == Unread::kForged) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' could not be verified: it is not what this server made for "
                             "this key; send the item without it",
                             returned.field),
                 returned.field};
  }
  if (warnings.size() < api::kFieldWarningsMax) {
    warnings.push_back(api::unread_warning(returned.field, "encrypted with another key"));
  }
  return std::string();
}

}  // namespace pelton::server
