// Which of the values that were said are in effect (ArgumentReader::settle). Of one flag the
// strongest source counts: word, environment, file, default. Between flags that do not go together:
//
//   pelton generate m --prompt x   with $PELTON_FILE    the word; the variable is not taken
//   pelton plan m --memory         with $PELTON_GPU     likewise (--memory is for either)
//   bench serve --port 1           with $PELTON_BASE_URL  --port is not_with --base-url: it yields
//   generate m --top-p 0.5         with $PELTON_TEMPERATURE=0  refused: the variable chose a way of
//                                  working, and another one is not chosen behind its back
//
// What has no effect beside the rest is refused as a word (2) and in a file (3), where it was meant
// for this verb. A variable is for all verbs and all ways of using them: it is not taken.
#include <algorithm>

#include <fmt/format.h>

#include "cli/argument_reader.h"
#include "cli/flag_value.h"
#include "cli/wording.h"

namespace pelton::cli {
namespace {

using Source = Arguments::Source;

// A number is the same however it is written: 0, 0.00.
bool is_same_value(const Flag& flag, const std::string& text, const std::string& other) {
  if (text == other) return true;
  if (flag.kind == Flag::Kind::kText || flag.kind == Flag::Kind::kSwitch) return false;
  const Result<double> number = flag_number(flag, text);
  const Result<double> others = flag_number(flag, other);
  return number && others && *number == *others;
}

// As --print-config prints what nobody has said.
bool says_the_default(const Flag& flag, const std::string& text) {
  return is_same_value(flag, text, flag.default_text);
}

}  // namespace

bool ArgumentReader::holds(const Circumstance& circumstance, const Arguments& arguments) const {
  const auto found = arguments.values_.find(circumstance.flag);
  if (found == arguments.values_.end()) return false;
  const Arguments::Value& value = found->second;
  if (circumstance.values.empty()) return value.given && value.source > Source::kDefault;
  const auto flag = std::find_if(verb_.flags.begin(), verb_.flags.end(),
                                 [&](const Flag& one) { return one.name == circumstance.flag; });
  if (flag == verb_.flags.end()) return false;
  return std::any_of(
      circumstance.values.begin(), circumstance.values.end(),
      [&](const std::string& wanted) { return is_same_value(*flag, value.text, wanted); });
}

const Circumstance* ArgumentReader::against(const Flag& flag, const Arguments& arguments) const {
  for (const Circumstance& one : flag.not_with) {
    if (holds(one, arguments)) return &one;
  }
  return nullptr;
}

bool ArgumentReader::lacks_its_circumstance(const Flag& flag, const Arguments& arguments) const {
  return !flag.only_with.empty() &&
         std::none_of(flag.only_with.begin(), flag.only_with.end(),
                      [&](const Circumstance& one) { return holds(one, arguments); });
}

// As if only the default had been said.
Result<void> ArgumentReader::drop(const std::string& name, Arguments& arguments) const {
  for (const Flag& flag : verb_.flags) {
    if (flag.name == name) return take(flag, default_of(flag), arguments);
  }
  Arguments::Value& positional = arguments.values_.at(name);
  positional = {.asked = positional.asked};
  return {};
}

Result<void> ArgumentReader::settle_groups(Arguments& arguments) const {
  for (const std::vector<std::string>& group : verb_.exclusive) {
    std::vector<std::string> given;
    Source strongest = Source::kDefault;
    for (const std::string& name : group) {
      const Arguments::Value& value = arguments.values_.at(name);
      if (!value.given || value.source <= Source::kDefault) continue;
      given.push_back(name);
      strongest = std::max(strongest, value.source);
    }
    std::vector<std::string> origins;
    for (const std::string& name : given) {
      const Arguments::Value& value = arguments.values_.at(name);
      if (value.source == strongest) {
        origins.push_back(value.origin);
      } else {
        TRY(drop(name, arguments));
      }
    }
    if (origins.size() < 2) continue;
    Error error = usage_error(
        fmt::format("{} exclude each other: give one", fmt::join(origins, " and ")), given.front());
    if (strongest != Source::kWord) error.code = ErrorCode::kBadConfig;
    return error;
  }
  return {};
}

// What does not go together with what `stronger` has said, and comes from below it.
Result<void> ArgumentReader::yield_to(Source stronger, Arguments& arguments) const {
  for (const Flag& flag : verb_.flags) {
    const Arguments::Value& value = arguments.values_.at(flag.name);
    if (!value.given || value.source <= Source::kDefault) continue;
    const Source source = value.source;
    for (const Circumstance& other : flag.not_with) {
      if (!holds(other, arguments)) continue;
      const Source others = arguments.values_.at(other.flag).source;
      const bool is_alternative = other.values.empty();
      if (source == stronger && others < stronger && is_alternative) {
        TRY(drop(other.flag, arguments));
      } else if (others == stronger && source < stronger) {
        TRY(drop(flag.name, arguments));
        break;
      }
    }
  }
  return {};
}

// Of the environment and the file. True if there was something.
Result<bool> ArgumentReader::drop_ineffective(Arguments& arguments) const {
  bool dropped = false;
  for (const Flag& flag : verb_.flags) {
    const Arguments::Value& value = arguments.values_.at(flag.name);
    const bool is_said = value.source == Source::kFile || value.source == Source::kEnvironment;
    if (!is_said || !value.given) continue;
    const Circumstance* const other = against(flag, arguments);
    const bool lacks = lacks_its_circumstance(flag, arguments);
    if (other == nullptr && !lacks) continue;
    // A word or a variable may have taken its effect away: then it merely yields.
    const bool overruled =
        lacks && std::any_of(flag.only_with.begin(), flag.only_with.end(), [&](const auto& one) {
          const auto found = arguments.values_.find(one.flag);
          return found != arguments.values_.end() && found->second.source > Source::kFile;
        });
    const bool meant = value.source == Source::kFile && !overruled;
    if (meant && !says_the_default(flag, value.text)) {
      const std::string name = config_name(flag.name);
      return with_origin(usage_error(other != nullptr ? fmt::format("{} has no effect with {}",
                                                                    name, in_words(*other))
                                                      : fmt::format("{} has an effect only with {}",
                                                                    name, in_words(flag.only_with)),
                                     name),
                         value.origin);
    }
    TRY(drop(flag.name, arguments));
    dropped = true;
  }
  return dropped;
}

Result<void> ArgumentReader::check_words(const Arguments& arguments) const {
  for (const Flag& flag : verb_.flags) {
    if (arguments.values_.at(flag.name).source != Source::kWord) continue;
    if (const Circumstance* const other = against(flag, arguments)) {
      const Arguments::Value& value = arguments.values_.at(other->flag);
      const bool is_elsewhere =
          value.source == Source::kEnvironment || value.source == Source::kFile;
      return usage_error(fmt::format("{} has no effect with {}{}", flag.name, in_words(*other),
                                     is_elsewhere ? ", which " + value.origin + " says" : ""),
                         flag.name);
    }
    if (lacks_its_circumstance(flag, arguments)) {
      return usage_error(
          fmt::format("{} has an effect only with {}", flag.name, in_words(flag.only_with)),
          flag.name);
    }
  }
  return {};
}

Result<void> ArgumentReader::settle(Arguments& arguments) const {
  TRY(settle_groups(arguments));
  TRY(yield_to(Source::kWord, arguments));
  TRY(yield_to(Source::kEnvironment, arguments));
  // Each round drops one at least.
  for (bool dropped = true; dropped;) {
    TRY_ASSIGN(dropped, drop_ineffective(arguments));
  }
  return check_words(arguments);
}

}  // namespace pelton::cli
