#include "access/operator_keys.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/authenticated_cipher.h"
#include "base/digest.h"

namespace pelton::access {
namespace {

constexpr std::array<std::pair<std::string_view, OperatorRole>, 3> kRoles = {
    {{"view", OperatorRole::kView},
     {"operate", OperatorRole::kOperate},
     {"admin", OperatorRole::kAdmin}}};
constexpr std::string_view kWord = "role=";

// The next word of a line; empty: there is none.
std::string_view take_word(std::string_view& line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

std::string_view role_name(OperatorRole role) {
  const auto found = std::ranges::find(kRoles, role, &decltype(kRoles)::value_type::second);
  return found == kRoles.end() ? "none" : found->first;
}

std::optional<OperatorRole> role_word(std::string_view word) {
  if (!word.starts_with(kWord)) return std::nullopt;
  const auto found =
      std::ranges::find(kRoles, word.substr(kWord.size()), &decltype(kRoles)::value_type::first);
  return found == kRoles.end() ? std::nullopt : std::optional(found->second);
}

OperatorKeys::OperatorKeys() : secret_(base::random_hex(32)) {}

std::string OperatorKeys::digest_of(std::string_view key) const {
  return base::sha256(secret_ + std::string(key));
}

void OperatorKeys::add(std::string_view key, Operator whose) {
  operators_[digest_of(key)] = std::move(whose);
}

void OperatorKeys::add_file(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view key = take_word(line);
    if (key.empty() || key.starts_with('#')) continue;
    Operator whose{.name = "an operator"};
    std::string_view word = take_word(line);
    // A tenant's name comes first, and has no '=' in front of anything that is a setting.
    const bool has_name = !word.empty() && word.find('=') == std::string_view::npos &&
                          word != "explain" && word != "gateway";
    if (has_name) whose.name = word;
    for (; !word.empty(); word = take_word(line)) {
      if (const auto role = role_word(word)) whose.role = *role;
    }
    if (whose.role != OperatorRole::kNone) add(key, std::move(whose));
  }
}

const OperatorKeys::Operator* OperatorKeys::operator_of(std::string_view key) const {
  const auto found = operators_.find(digest_of(key));
  return found == operators_.end() ? nullptr : &found->second;
}

}  // namespace pelton::access
