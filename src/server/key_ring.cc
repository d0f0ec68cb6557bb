#include "server/key_ring.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "base/digest.h"

namespace pelton::server {
namespace {

constexpr size_t kKeyBytesMax = 512;
constexpr size_t kTenantBytesMax = 64;
// Accounts grow by tokens divided by weight: far outside these, one request would outweigh all that
// others will ever spend.
constexpr double kWeightMin = 1e-3;
constexpr double kWeightMax = 1e3;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \t\r";
  for (;;) {
    const size_t begin = line.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

bool is_plain(std::string_view word, size_t bytes_max) {
  return word.size() <= bytes_max &&
         std::all_of(word.begin(), word.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

std::optional<double> weight_of(std::string_view word) {
  double weight = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  if (!(weight >= kWeightMin && weight <= kWeightMax)) return std::nullopt;
  return weight;
}

}  // namespace

void KeyRing::add(std::string_view key) {
  tenants_.emplace(base::sha256(key), "");
}

Result<void> KeyRing::add_file(std::string_view text, const std::string& file_name) {
  int line_number = 0;
  const auto bad = [&](std::string what) {
    return Error{ErrorCode::kBadConfig, fmt::format("{}:{}: {}", file_name, line_number, what), ""};
  };
  while (!text.empty()) {
    ++line_number;
    const size_t line_end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, line_end));
    text.remove_prefix(std::min(line_end + 1, text.size()));
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words.size() > 3) return bad("more than a key, a tenant and a weight");
    if (!is_plain(words[0], kKeyBytesMax)) {
      return bad(fmt::format("a key is at most {} printable characters", kKeyBytesMax));
    }
    if (words.size() > 1 && !is_plain(words[1], kTenantBytesMax)) {
      return bad(
          fmt::format("a tenant's name is at most {} printable characters", kTenantBytesMax));
    }
    const std::string hash = base::sha256(words[0]);
    const std::string tenant =
        words.size() > 1 ? std::string(words[1]) : "key-" + hash.substr(0, 12);
    if (words.size() > 2) {
      const std::optional<double> weight = weight_of(words[2]);
      if (!weight) {
        return bad(fmt::format("a weight is a number from {} to {}", kWeightMin, kWeightMax));
      }
      const auto known = std::find_if(weights_.begin(), weights_.end(),
                                      [&](const auto& pair) { return pair.first == tenant; });
      if (known != weights_.end() && known->second != *weight) {
        return bad(fmt::format("tenant '{}' has another weight above", tenant));
      }
      if (known == weights_.end()) weights_.emplace_back(tenant, *weight);
    }
    if (!tenants_.emplace(hash, tenant).second) return bad("this key is there already");
    if (tenants_.size() > kKeysMax) return bad(fmt::format("more than {} keys", kKeysMax));
  }
  return {};
}

const std::string* KeyRing::tenant_of(std::string_view key) const {
  const auto found = tenants_.find(base::sha256(key));
  return found == tenants_.end() ? nullptr : &found->second;
}

}  // namespace pelton::server
