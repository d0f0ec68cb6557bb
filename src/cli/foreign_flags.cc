#include "cli/foreign_flags.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

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

void add_variables(const Flag& flag, std::string_view prefix, std::vector<std::string>& names) {
  names.insert(names.end(), flag.variables.begin(), flag.variables.end());
  for (const std::string& name : flag.names()) {
    names.push_back(std::string(prefix) + environment_name(name).substr(kVariablePrefix.size()));
  }
}

// Those with the verb's other prefix that somebody reads.
std::vector<std::string> known_variables(const Verb& verb) {
  std::vector<std::string> names;
  for (const Flag& flag : verb.flags) add_variables(flag, verb.other_prefix, names);
  for (const Positional& positional : verb.positionals) {
    names.insert(names.end(), positional.variables.begin(), positional.variables.end());
  }
  for (const ForeignFlag& flag : verb.foreign) {
    for (const std::string& name : flag.names) {
      if (!name.starts_with("--")) continue;
      names.push_back(verb.other_prefix + environment_name(name).substr(kVariablePrefix.size()));
    }
  }
  return names;
}

// A slip in a variable's name would go unseen; its value, which may be a secret, is not shown.
void note_unknown_variables(const Verb& verb, std::vector<std::string>& notes) {
  if (verb.other_prefix.empty()) return;
  const std::vector<std::string> known = known_variables(verb);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view given(*at);
    const std::string name(given.substr(0, given.find('=')));
    if (!name.starts_with(verb.other_prefix) || std::ranges::find(known, name) != known.end()) {
      continue;
    }
    notes.push_back(
        fmt::format("${} is not known, and changes nothing{}", name, did_you_mean(name, known)));
  }
}

// Of {"--tp", "1", "M", "--port", "3"}: the words {"M", "--port", "3"}. What a positional's flag
// names (--model M) is put before the first flag: behind one that takes several words it would be
// one of these. A word behind a foreign flag is the positional where there is none yet; another one
// would be taken for a second, and nobody means that of "M --enforce-eager false".
class ForeignWords {
 public:
  ForeignWords(const Verb& verb, const std::vector<std::string>& words)
      : verb_(verb), words_(words) {}

  Result<NativeWords> read() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_];
      const size_t equals = word.find('=');
      const ForeignFlag* const flag =
          is_flag(word) ? find_foreign(verb_, word.substr(0, equals)) : nullptr;
      if (flag == nullptr) {
        take_native(word);
      } else {
        TRY(take_foreign(*flag, word.substr(0, equals)));
      }
    }
    const size_t begin =
        static_cast<size_t>(std::ranges::find_if(native_.words, is_flag) - native_.words.begin());
    native_.words.insert(native_.words.begin() + static_cast<std::ptrdiff_t>(begin),
                         positionals_.begin(), positionals_.end());
    return std::move(native_);
  }

 private:
  static bool is_flag(const std::string& word) { return word.starts_with('-'); }
  // A flag, ours or another's.
  bool is_known(const std::string& word) const {
    const std::string name = word.substr(0, word.find('='));
    return find_foreign(verb_, name) != nullptr ||
           std::ranges::any_of(verb_.flags, [&](const Flag& flag) {
             const std::vector<std::string> names = flag.names();
             return std::ranges::find(names, name) != names.end();
           });
  }
  // "-tp=2" as "--tensor-parallel-size=2": CLI11 has no names of one dash and several letters.
  std::string with_long_name(const std::string& word) const {
    const std::string name = word.substr(0, word.find('='));
    if (!is_short_word(name)) return word;
    const auto meant = std::ranges::find_if(verb_.flags, [&](const Flag& flag) {
      return std::ranges::find(flag.aliases, name) != flag.aliases.end();
    });
    return meant == verb_.flags.end() ? word : meant->name + word.substr(name.size());
  }
  bool at_value() const { return at_ < words_.size() && !is_flag(words_[at_]); }

  void take_native(const std::string& word) {
    has_flag_ = has_flag_ || is_flag(word);
    if (!has_flag_) has_positional_ = true;
    native_.words.push_back(with_long_name(word));
    ++at_;
  }

  Result<void> take_foreign(const ForeignFlag& flag, const std::string& name) {
    std::string value;
    const std::string& word = words_[at_++];
    if (word.size() > name.size()) {
      value = word.substr(name.size() + 1);
    } else if (flag.takes_value) {
      if (at_ == words_.size() || is_known(words_[at_])) {
        return usage_error(fmt::format("{} wants a value", name), name);
      }
      value = words_[at_++];
    }
    while (flag.takes_list && at_value()) value += " " + words_[at_++];
    has_flag_ = true;
    if (flag.is_positional) {
      positionals_.push_back(std::move(value));
      has_positional_ = true;
    } else if (!is_taken(flag, value)) {
      return refusal(flag, shown(flag, name, value));
    } else {
      native_.notes.push_back(note(flag, shown(flag, name, value)));
    }
    return take_words_behind(flag, name);
  }

  // The word is not shown: what stands behind a flag by mistake may be a secret.
  Result<void> take_words_behind(const ForeignFlag& flag, const std::string& name) {
    if (flag.is_positional || !at_value()) return {};
    if (has_positional_) {
      return usage_error(
          fmt::format("{} takes {}, and more stands behind it; {} stands before "
                      "the flags",
                      name, flag.takes_value ? "one value" : "no value",
                      verb_.positionals.empty() ? "nothing" : verb_.positionals[0].name),
          name);
    }
    while (at_value()) positionals_.push_back(words_[at_++]);
    has_positional_ = true;
    return {};
  }

  const Verb& verb_;
  const std::vector<std::string>& words_;
  size_t at_ = 0;
  bool has_flag_ = false;
  bool has_positional_ = false;  // one is named, before the flags or by a flag
  std::vector<std::string> positionals_;
  NativeWords native_;
};

}  // namespace

bool is_short_word(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-';
}

Result<NativeWords> native_words(const Verb& verb, const std::vector<std::string>& words) {
  TRY_ASSIGN(NativeWords native, ForeignWords(verb, words).read());
  TRY(read_variables(verb, native.notes));
  note_unknown_variables(verb, native.notes);
  return native;
}

}  // namespace pelton::cli
