#include "gateway/key_scopes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "gateway/config.h"

namespace pelton::gateway {
namespace {

// The next word of a line; empty: there is none.
std::string_view take_word(std::string_view& line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

// What is wrong with one of these words; empty: nothing, or it is none of them.
std::string read_word(std::string_view word, KeyScope& scope, bool& is_said) {
  if (word == "explain") {
    is_said = true;
    if (scope.may_explain) return "'explain' is said twice";
    scope.may_explain = true;
    return "";
  }
  if (word == "gateway") {
    is_said = true;
    if (scope.is_gateway) return "'gateway' is said twice";
    scope.is_gateway = true;
    return "";
  }
  if (word == "role=admin") {  // another role is refused by access::ApiKeys
    is_said = scope.is_operator = true;
    return "";
  }
  const size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  std::string_view value = word.substr(std::min(equals + 1, word.size()));
  if (name != "models" && name != "pool" && name != "region") return "";
  is_said = true;
  if (value.empty()) return fmt::format("'{}' is empty", name);
  if (name != "models") {
    std::string& into = name == "pool" ? scope.pool : scope.region;
    if (!into.empty()) return fmt::format("'{}' is said twice", name);
    if (name == "region" && value == PoolConfig::kRegionOfWorker) {
      return "'region' is one region's name; without it any may answer";
    }
    into = value;
    return "";
  }
  if (!scope.models.empty()) return "'models' is said twice";
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    if (comma == 0 || comma + 1 == value.size()) {
      return "'models' is names with a comma between each two";
    }
    scope.models.emplace_back(value.substr(0, comma));
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return "";
}

}  // namespace

Result<KeyScopes> KeyScopes::parse(std::string_view text, const std::string& file) {
  KeyScopes all;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view key = take_word(line);
    if (key.empty() || key.starts_with('#')) continue;
    KeyScope scope;
    bool is_said = false;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      const std::string wrong = read_word(word, scope, is_said);
      if (wrong.empty()) continue;
      return Error{ErrorCode::kBadConfig, fmt::format("{}:{}: {}", file, number, wrong), {}};
    }
    if (is_said) all.scopes_.emplace(base::sha256(key), std::move(scope));
  }
  return all;
}

bool KeyScopes::are_for_gateways() const {
  return std::ranges::any_of(scopes_, [](const auto& one) {
    return one.second != KeyScope{.is_operator = one.second.is_operator};
  });
}

bool KeyScopes::has_operators() const {
  return std::ranges::any_of(scopes_, [](const auto& one) { return one.second.is_operator; });
}

const KeyScope* KeyScopes::of(const std::string& account) const {
  const auto found = scopes_.find(account);
  return found == scopes_.end() ? nullptr : &found->second;
}

}  // namespace pelton::gateway
