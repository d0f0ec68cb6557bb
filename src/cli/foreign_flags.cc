#include "cli/foreign_flags.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/flag_value.h"
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

// A value that does not matter is not shown: it may be a secret.
std::string shown(const ForeignFlag& flag, const std::string& name, const std::string& value) {
  return flag.takes_value && !flag.taken.empty() ? fmt::format("{} {}", name, value) : name;
}

Error refusal(const ForeignFlag& flag, const std::string& what) {
  const std::string taken =
      flag.taken.empty() ? "" : fmt::format(" (taken: {})", fmt::join(flag.taken, ", "));
  return usage_error(fmt::format("{} is not supported{}: {}", what, taken, flag.why), what);
}

std::string note(const ForeignFlag& flag, const std::string& what) {
  return fmt::format("{} changes nothing here: {}", what, flag.why);
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// The same by the variables of the verb's other prefix: $OPTION_DTYPE is --dtype.
Result<void> read_variables(const Verb& verb, std::vector<std::string>& notes) {
  if (verb.other_prefix.empty()) return {};
  for (const ForeignFlag& flag : verb.foreign) {
    for (const std::string& name : flag.names) {
      if (flag.is_positional || !name.starts_with("--")) continue;
      const std::string variable =
          verb.other_prefix + environment_name(name).substr(kVariablePrefix.size());
      const char* const given = std::getenv(variable.c_str());
      const std::string value = lower_case(given == nullptr ? "" : given);
      const bool says_nothing = value.empty() || value == "auto";
      if (says_nothing || (!flag.takes_value && !switch_value(value).value_or(true))) continue;
      const std::string what = shown(flag, "$" + variable, value);
      if (!is_taken(flag, value)) return with_origin(refusal(flag, what), "$" + variable);
      notes.push_back(note(flag, what));
    }
  }
  return {};
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
    if (!is_taken(*flag, value)) return refusal(*flag, shown(*flag, name, value));
    native.notes.push_back(note(*flag, shown(*flag, name, value)));
  }
  TRY(read_variables(verb, native.notes));
  return native;
}

}  // namespace pelton::cli
