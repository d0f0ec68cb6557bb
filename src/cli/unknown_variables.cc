#include "cli/unknown_variables.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/wording.h"

namespace pelton::cli {
namespace {

bool is_one_of(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::any_of(names, [name](std::string_view one) {
    return one.ends_with('*') ? name.starts_with(one.substr(0, one.size() - 1)) : name == one;
  });
}

// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
bool is_service_link(std::string_view name, std::string_view value) {
  constexpr std::string_view kMarks[] = {"_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"};
  const auto is_in = [name](std::string_view mark) {
    return name.find(mark) != std::string_view::npos;
  };
  return value.starts_with("tcp://") || value.starts_with("udp://") ||
         std::ranges::any_of(kMarks, is_in);
}

// Without the prefix that all have: it would make any two of them near.
std::vector<std::string> known_names(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& variable) {
    if (variable.starts_with(kVariablePrefix)) {
      names.push_back(variable.substr(kVariablePrefix.size()));
    }
  };
  for (const Verb& verb : verbs) {
    for (const Flag& flag : verb.flags) {
      for (const std::string& variable : flag.variables) add(variable);
      for (const std::string& name : flag.names()) {
        if (name.starts_with("--")) add(environment_name(name));
      }
    }
    for (const Positional& positional : verb.positionals) {
      for (const std::string& variable : positional.variables) add(variable);
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> unknown_variables(const std::vector<Verb>& verbs,
                                           const std::vector<std::string>& others) {
  std::vector<std::string> sentences;
  const std::vector<std::string> known = known_names(verbs);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view given(*at);
    if (!given.starts_with(kVariablePrefix)) continue;
    const std::string_view name = given.substr(0, given.find('='));
    const std::string_view value = given.substr(std::min(name.size() + 1, given.size()));
    const std::string_view rest = name.substr(kVariablePrefix.size());
    if (is_one_of(known, rest) || is_one_of(others, name) || is_service_link(name, value)) continue;
    const std::optional<std::string> near = nearest(rest, known);
    sentences.push_back(
        fmt::format("${} is not known, and changes nothing{}", name,
                    near ? fmt::format("; did you mean ${}{}?", kVariablePrefix, *near) : ""));
  }
  std::ranges::sort(sentences);
  return sentences;
}

}  // namespace pelton::cli
