#include "access/api_keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "access/operator_keys.h"
#include "base/authenticated_cipher.h"
#include "base/digest.h"

namespace pelton::access {
namespace {

constexpr size_t kKeyBytesMax = 512;
constexpr size_t kTenantBytesMax = 64;
// Accounts grow by tokens divided by weight: far outside these, one request would outweigh all that
// others will ever spend.
constexpr double kWeightMin = 1e-3;
constexpr double kWeightMax = 1e3;
constexpr int64_t kPerMinuteMax = 1'000'000'000'000;
constexpr int64_t kConcurrentMax = 1'000'000;

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

template <typename T>
std::optional<T> number_of(std::string_view word, T least, T most) {
  T number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  if (!(number >= least && number <= most)) return std::nullopt;
  return number;
}

Error bad(std::string what) {
  return Error{ErrorCode::kBadConfig, std::move(what), ""};
}

bool is_limit(std::string_view word) {
  return word.starts_with("rpm=") || word.starts_with("tpm=") || word.starts_with("concurrent=");
}

// What a gateway reads of the line (gateway/key_scopes.h).
bool is_scope(std::string_view word) {
  return word.starts_with("models=") || word.starts_with("pool=") || word.starts_with("region=") ||
         word == "explain" || word == "gateway";
}

// Behind the key, its tenant and that one's weight.
bool is_setting(std::string_view word) {
  return is_limit(word) || is_scope(word) || word.starts_with("role=");
}

// A word NAME=VALUE that is none of ours; empty: there is none. Taken for a tenant's name or a
// weight, it would leave the key without what was meant.
std::string_view misspelt_name(std::span<const std::string_view> words) {
  for (const std::string_view word : words) {
    const std::string_view name = word.substr(0, word.find('='));
    const bool is_name = std::ranges::all_of(name, [](unsigned char c) { return std::isalpha(c); });
    if (is_name && name.size() < word.size() && !is_setting(word)) return name.substr(0, 20);
  }
  return {};
}

Result<void> read_limit(std::string_view word, admission::Limits& limits) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const bool concurrent = name == "concurrent";
  const int64_t most = concurrent ? kConcurrentMax : kPerMinuteMax;
  const std::optional<int64_t> number = number_of<int64_t>(word.substr(equals + 1), 1, most);
  if (!number) return bad(fmt::format("'{}' is a whole number from 1 to {}", name, most));
  const int64_t before = concurrent      ? limits.concurrent_requests
                         : name == "rpm" ? limits.requests_per_minute
                                         : limits.tokens_per_minute;
  if (before != 0) return bad(fmt::format("'{}' is said twice", name));
  if (concurrent) {
    limits.concurrent_requests = static_cast<int>(*number);
  } else {
    (name == "rpm" ? limits.requests_per_minute : limits.tokens_per_minute) = *number;
  }
  return {};
}

}  // namespace

ApiKeys::ApiKeys() : secret_(base::random_hex(32)) {}

std::string ApiKeys::digest_of(std::string_view key) const {
  return base::sha256(secret_ + std::string(key));
}

void ApiKeys::add(std::string_view key) {
  principals_.emplace(digest_of(key), Principal{.tenant = "", .account = base::sha256(key)});
}

void ApiKeys::add_admin(std::string_view key) {
  add(key);
  principals_.at(digest_of(key)).is_admin = true;
}

// The words of a line that has some.
Result<Principal> ApiKeys::read_principal(const std::vector<std::string_view>& words,
                                          const std::string& hash) const {
  if (!is_plain(words[0], kKeyBytesMax)) {
    return bad(fmt::format("a key is at most {} printable characters", kKeyBytesMax));
  }
  const std::string_view misspelt = misspelt_name(std::span(words).subspan(1));
  if (!misspelt.empty()) {
    return bad(
        fmt::format("'{}=' is none of rpm=, tpm=, concurrent=, role=, models=, pool=, region=, "
                    "explain and gateway, which have no value",
                    misspelt));
  }
  Principal principal{.tenant = "key-" + hash.substr(0, 12), .account = hash};
  size_t next = 1;
  if (next < words.size() && !is_setting(words[next])) {
    if (!is_plain(words[next], kTenantBytesMax)) {
      return bad(
          fmt::format("a tenant's name is at most {} printable characters", kTenantBytesMax));
    }
    principal.tenant = words[next++];
    const auto known = weights_.find(principal.tenant);
    if (known != weights_.end()) principal.weight = known->second;
    if (next < words.size() && !is_setting(words[next])) {
      const std::optional<double> weight = number_of<double>(words[next++], kWeightMin, kWeightMax);
      if (!weight) {
        return bad(fmt::format("a weight is a number from {} to {}", kWeightMin, kWeightMax));
      }
      if (known != weights_.end() && known->second != *weight) {
        return bad(fmt::format("tenant '{}' has another weight above", principal.tenant));
      }
      principal.weight = *weight;
    }
  }
  bool has_role = false;
  for (; next < words.size(); ++next) {
    if (is_scope(words[next])) continue;
    if (!is_setting(words[next])) {
      return bad(
          "more than a key, a tenant, a weight, limits (rpm=N tpm=N concurrent=N) and role=ROLE");
    }
    if (words[next].starts_with("role=")) {
      const std::optional<OperatorRole> role = role_word(words[next]);
      if (!role) return bad("'role' is 'view', 'operate', 'admin' or is not said");
      if (std::exchange(has_role, true)) return bad("'role' is there twice");
      principal.is_admin = *role == OperatorRole::kAdmin;
      continue;
    }
    TRY(read_limit(words[next], principal.limits));
  }
  return principal;
}

Result<void> ApiKeys::add_file(std::string_view text, const std::string& file_name) {
  int line_number = 0;
  const auto at_line = [&](const std::string& what) {
    return bad(fmt::format("{}:{}: {}", file_name, line_number, what));
  };
  while (!text.empty()) {
    ++line_number;
    const size_t line_end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, line_end));
    text.remove_prefix(std::min(line_end + 1, text.size()));
    if (words.empty() || words[0].starts_with('#')) continue;
    const std::string hash = base::sha256(words[0]);
    Result<Principal> principal = read_principal(words, hash);
    if (!principal.ok()) return at_line(principal.error().message);
    if (words.size() > 2 && !is_setting(words[1]) && !is_setting(words[2])) {
      weights_.emplace(principal->tenant, principal->weight);
    }
    if (!principals_.emplace(digest_of(words[0]), *std::move(principal)).second) {
      return at_line("this key is there already");
    }
    if (principals_.size() > kKeysMax) return at_line(fmt::format("more than {} keys", kKeysMax));
  }
  // A weight said once is the tenant's, whichever of its keys it stands beside.
  for (auto& [hash, principal] : principals_) {
    const auto weight = weights_.find(principal.tenant);
    if (weight != weights_.end()) principal.weight = weight->second;
  }
  return {};
}

std::string billing_account(std::string_view tenant, std::string_view user) {
  if (!tenant.empty() || user.empty()) return std::string(tenant);
  return fmt::format("user {}", user);
}

std::vector<Principal> ApiKeys::limited() const {
  std::vector<Principal> all;
  for (const auto& [hash, principal] : principals_) {
    if (principal.limits.any()) all.push_back(principal);
  }
  std::ranges::sort(all, {},
                    [](const Principal& one) { return std::tie(one.tenant, one.account); });
  return all;
}

bool ApiKeys::have_limits() const {
  return std::any_of(principals_.begin(), principals_.end(),
                     [](const auto& key) { return key.second.limits.any(); });
}

const Principal* ApiKeys::principal_of(std::string_view key) const {
  const auto found = principals_.find(digest_of(key));
  return found == principals_.end() ? nullptr : &found->second;
}

}  // namespace pelton::access
