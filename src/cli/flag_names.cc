#include "cli/flag_names.h"

#include <algorithm>

namespace pelton::cli {

bool negates(const Flag& flag, std::string_view name) {
  return std::find(flag.negations.begin(), flag.negations.end(), name) != flag.negations.end();
}

NamedFlag flag_named(const std::vector<Flag>& flags, std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const Flag& flag : flags) {
    for (const std::string& one : flag.names()) {
      if (config_name(one) == dashed) return {.flag = &flag, .negated = negates(flag, one)};
    }
  }
  return {};
}

std::vector<std::string> names_like(const std::vector<Flag>& flags, std::string_view like) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) {
    for (const std::string& name : flag.names()) {
      names.push_back(config_name(name));
      if (like.find('-') != std::string_view::npos) continue;
      std::replace(names.back().begin(), names.back().end(), '-', '_');
    }
  }
  return names;
}

std::string field_name(const Flag& flag, const std::vector<Flag>& flags,
                       const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, text] : values) {
    const Flag* const meant = flag_named(flags, name).flag;
    if (meant != nullptr && meant->name == flag.name) return name;
  }
  std::string name = config_name(flag.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string with_field_names(std::string_view text, const std::vector<Flag>& flags,
                             const std::vector<std::pair<std::string, std::string>>& values) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789-";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = std::min(text.find("--", at), text.size());
    const size_t end = std::min(text.find_first_not_of(kOfNames, begin), text.size());
    out += text.substr(at, begin - at);
    const std::string_view word = text.substr(begin, end - begin);
    const bool stands_alone = begin == 0 || text[begin - 1] == ' ' || text[begin - 1] == '(';
    const auto flag = std::ranges::find_if(flags, [&](const Flag& one) {
      const std::vector<std::string> names = one.names();
      return std::ranges::find(names, word) != names.end();
    });
    if (stands_alone && flag != flags.end()) {
      out += "'" + field_name(*flag, flags, values) + "'";
    } else {
      out += word;
    }
    at = end;
  }
  return out;
}

}  // namespace pelton::cli
