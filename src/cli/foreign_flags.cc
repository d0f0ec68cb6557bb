#include "cli/foreign_flags.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/wording.h"

namespace pelton::cli {
namespace {

const ForeignFlag* find_foreign(const Verb& verb, std::string_view name) {
  const auto found = std::ranges::find_if(verb.foreign, [&](const ForeignFlag& flag) {
    return std::ranges::find(flag.names, name) != flag.names.end();
  });
  return found == verb.foreign.end() ? nullptr : &*found;
}

bool is_taken(const ForeignFlag& flag, const std::string& value) {
  return std::ranges::any_of(
      flag.taken, [&](const std::string& taken) { return taken == "*" || taken == value; });
}

Error refusal(const ForeignFlag& flag, const std::string& shown) {
  const std::string taken =
      flag.taken.empty() ? "" : fmt::format(" (taken: {})", fmt::join(flag.taken, ", "));
  return usage_error(fmt::format("{} is not supported{}: {}", shown, taken, flag.why), shown);
}

}  // namespace

Result<NativeWords> native_words(const Verb& verb, const std::vector<std::string>& words) {
  NativeWords native;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    const ForeignFlag* const flag =
        word.starts_with('-') ? find_foreign(verb, word.substr(0, equals)) : nullptr;
    if (flag == nullptr) {
      native.words.push_back(word);
      continue;
    }
    const std::string name = word.substr(0, equals);
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (flag->takes_value) {
      if (i + 1 == words.size()) return usage_error(fmt::format("{} wants a value", name), name);
      value = words[++i];
    }
    if (flag->is_positional) {
      native.words.push_back(std::move(value));
      continue;
    }
    const std::string shown = flag->takes_value ? fmt::format("{} {}", name, value) : name;
    if (!is_taken(*flag, value)) return refusal(*flag, shown);
    native.notes.push_back(fmt::format("{} changes nothing here: {}", shown, flag->why));
  }
  return native;
}

}  // namespace pelton::cli
