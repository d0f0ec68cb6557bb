#include "cli/argument_reader.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "cli/flag_names.h"
#include "cli/flag_value.h"
#include "cli/foreign_flags.h"
#include "cli/wording.h"

namespace pelton::cli {
namespace {

// What an unexpected word deserves to hear.
Error unexpected_word(const Verb& verb, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') {
    return usage_error(fmt::format("unexpected argument '{}'", word), {});
  }
  std::vector<std::string> names{"--help"};
  for (const Flag& flag : verb.flags) {
    for (std::string& name : flag.names()) names.push_back(std::move(name));
  }
  const std::string name = word.substr(0, word.find('='));
  for (const Positional& positional : verb.positionals) {
    if (config_name(name) != config_name(positional.name)) continue;
    return usage_error(fmt::format("there is no flag '{0}': give the {1} itself, as in '{2} {1}'",
                                   name, positional.name, verb.name),
                       name);
  }
  return usage_error(fmt::format("unknown flag '{}'{}", name, did_you_mean(name, names)), name);
}

// What "--no-x=TEXT" says of x; what is no truth value stays as it is, for the complaint.
std::string negated(std::string text) {
  const std::optional<bool> is_on = switch_value(text);
  return is_on ? (*is_on ? "false" : "true") : std::move(text);
}

// The first of these variables that says something; empty: none does.
std::string telling_variable(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != '\0') return variable;
  }
  return {};
}

struct Variable {
  std::string name;
  bool negates = false;
};

// Of the environment, in the order in which they are asked.
std::vector<Variable> variables_of(const Flag& flag, std::string_view other_prefix) {
  std::vector<Variable> variables;
  for (const std::string& name : flag.names()) {
    if (!name.starts_with("--")) continue;  // "-i" is a word's only
    variables.push_back({.name = environment_name(name), .negates = negates(flag, name)});
  }
  if (!other_prefix.empty()) {
    const size_t count = variables.size();
    for (size_t i = 0; i < count; ++i) {
      variables.push_back(
          {.name = std::string(other_prefix) + variables[i].name.substr(kVariablePrefix.size()),
           .negates = variables[i].negates});
    }
  }
  for (const std::string& name : flag.variables) variables.push_back({.name = name});
  return variables;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// What a variable of another program's says, in our words; empty: it leaves it to us.
std::string in_our_words(const Flag& flag, const std::string& text) {
  const std::string lower = lower_case(text);
  for (const auto& [theirs, ours] : flag.other_choices) {
    if (lower == theirs) return ours;
  }
  const bool chosen =
      std::find(flag.choices.begin(), flag.choices.end(), lower) != flag.choices.end();
  if (chosen) return lower;
  const bool is_free = flag.kind == Flag::Kind::kText && flag.choices.empty();
  if (lower == "auto" && !is_free) return {};
  return flag.kind == Flag::Kind::kSwitch ? lower : text;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Whoever says so wherever: it is what was configured, not how the program was called.
Error empty_value(const Flag& flag, const std::string& origin) {
  const bool by_word = origin.starts_with('-');
  return Error{ErrorCode::kBadConfig,
               fmt::format("{} is empty; give {} a value, or take it away", origin,
                           by_word ? "it" : flag.name),
               config_name(flag.name)};
}

std::string_view wanted_type(const Flag& flag) {
  if (flag.many) return "a list of texts, as [\"a\", \"b\"]";
  switch (flag.kind) {
    case Flag::Kind::kSwitch:
      return "true or false";
    case Flag::Kind::kText:
      return "text in quotes";
    case Flag::Kind::kInteger:
      return "a whole number";
    case Flag::Kind::kNumber:
      return "a number";
    case Flag::Kind::kSize:
      return "a whole number, or a size in quotes";
  }
  return "";
}

bool fits(const ConfigEntry& entry, const Flag& flag) {
  using Type = ConfigEntry::Type;
  switch (entry.type) {
    case Type::kBoolean:
      return flag.kind == Flag::Kind::kSwitch;
    case Type::kNumber:
      return flag.kind == Flag::Kind::kInteger || flag.kind == Flag::Kind::kNumber ||
             flag.kind == Flag::Kind::kSize;
    case Type::kText:
      return flag.kind == Flag::Kind::kText || flag.kind == Flag::Kind::kSize;
    case Type::kList:
      return flag.many;
    case Type::kOther:
      return false;
  }
  return false;
}

// In CLI11's order, which pops from the back. It would take "--key=" for a flag whose value is the
// next word, "--switch false" for a switch and an argument, and of "--json --seed 1" the flag
// behind --json for its value.
Result<std::vector<std::string>> for_cli11(const Verb& verb,
                                           const std::vector<std::string>& words) {
  std::vector<std::string> reversed;
  const auto flag_of = [&](const std::string& name) {
    return std::find_if(verb.flags.begin(), verb.flags.end(), [&](const Flag& flag) {
      const std::vector<std::string> names = flag.names();
      return std::find(names.begin(), names.end(), name) != names.end();
    });
  };
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const std::string name = word->substr(0, word->size() - (word->ends_with('=') ? 1 : 0));
    const auto flag = flag_of(name);
    const bool is_switch = flag != verb.flags.end() && flag->kind == Flag::Kind::kSwitch;
    if (is_switch && name == *word && !reversed.empty() &&
        (reversed.back() == "true" || reversed.back() == "false")) {
      reversed.back() = name + '=' + reversed.back();
      continue;
    }
    const bool wants_value = flag != verb.flags.end() && !is_switch;
    // A text is as it is.
    const bool is_free = wants_value && (flag->value == "TEXT" || flag->value == "WORD");
    if (wants_value && !is_free && name == *word && !reversed.empty()) {
      const std::string next = reversed.back().substr(0, reversed.back().find('='));
      if (next == "--help" || next == "-h" || flag_of(next) != verb.flags.end()) {
        return usage_error(fmt::format("{0} wants a value, and {1} behind it is a flag; {0}={1} if "
                                       "that is meant",
                                       name, next),
                           config_name(flag->name));
      }
    }
    if (wants_value && name != *word) reversed.emplace_back();
    reversed.push_back(wants_value ? name : *word);
  }
  return reversed;
}

// A group of one name in Verb::exclusive: one value of two is not what was asked for, as of tenants
// to be erased. Of all other flags the last word counts: scripts are called with more behind
// theirs.
bool may_come_once(const Verb& verb, const Flag& flag) {
  return std::ranges::find(verb.exclusive, std::vector{flag.name}) != verb.exclusive.end();
}

}  // namespace

struct ArgumentReader::Option {
  CLI::Option* option = nullptr;
  CLI::Option* negation = nullptr;  // of a switch that has one
  std::string text;
  std::vector<std::string> list;
  bool is_on = false;
  bool is_negated = false;
};

Result<ArgumentReader::Said> ArgumentReader::said_in_words(const Flag& flag, Option& option) {
  const bool given = option.option->count() > 0;
  const bool refused = option.negation != nullptr && option.negation->count() > 0;
  if (given && refused) {
    return usage_error(
        fmt::format("{} and {} exclude each other", flag.name, flag.negations.front()),
        config_name(flag.name));
  }
  if (!given && !refused) return Said{};
  Said said{.text = std::move(option.text),
            .list = std::move(option.list),
            .source = Source::kWord,
            .origin = refused ? flag.negations.front() : flag.name};
  for (const auto& [theirs, ours] : flag.other_choices) {
    if (said.text == theirs) said.text = ours;
  }
  if (flag.kind == Flag::Kind::kSwitch) {
    said.text = (refused ? !option.is_negated : option.is_on) ? "true" : "false";
  }
  return said;
}

// The one place where CLI11 is at work: it splits the words. What they mean is checked by us.
Result<void> ArgumentReader::split(const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> positionals(verb_.positionals.size());
  std::vector<Option> options(verb_.flags.size());
  std::vector<std::string> extra;
  try {
    CLI::App app;
    app.set_help_flag();
    app.add_flag("-h,--help", help_);
    app.allow_extras();
    for (size_t i = 0; i < positionals.size(); ++i) {
      if (verb_.positionals[i].many) {
        app.add_option(verb_.positionals[i].name, positionals[i]);
      } else {
        positionals[i].resize(1);  // a single text leaves what comes after it to the complaints
        app.add_option(verb_.positionals[i].name, positionals[i].front());
      }
    }
    for (size_t i = 0; i < options.size(); ++i) {
      const Flag& flag = verb_.flags[i];
      std::vector<std::string> own = {flag.name};
      std::ranges::copy_if(flag.aliases, std::back_inserter(own),
                           [](const std::string& name) { return !is_short_word(name); });
      const std::string names = fmt::format("{}", fmt::join(own, ","));
      if (!flag.negations.empty()) {
        const std::string no = fmt::format("{}", fmt::join(flag.negations, ","));
        options[i].negation = app.add_flag(no, options[i].is_negated)->take_last();
      }
      if (flag.kind == Flag::Kind::kSwitch) {
        options[i].option = app.add_flag(names, options[i].is_on)->take_last();
      } else if (flag.many) {
        options[i].option = app.add_option(names, options[i].list);
      } else {
        options[i].option = app.add_option(names, options[i].text)->take_last();
      }
    }
    TRY_ASSIGN(std::vector<std::string> reversed, for_cli11(verb_, words));
    app.parse(reversed);
    extra = app.remaining();
    for (size_t i = 0; i < options.size(); ++i) {
      const Flag& flag = verb_.flags[i];
      if (options[i].option->count() > 1 && may_come_once(verb_, flag)) {
        return usage_error(fmt::format("{} is given twice: give one", flag.name),
                           config_name(flag.name));
      }
      TRY_ASSIGN(Said said, said_in_words(flag, options[i]));
      flags_.push_back(std::move(said));
    }
  } catch (const CLI::Error& error) {
    return usage_error(error.what(), {});
  }
  for (std::vector<std::string>& given : positionals) {
    const bool some = !given.empty() && !given.front().empty();
    const std::string& name = verb_.positionals[positionals_.size()].name;
    positionals_.push_back({.text = {},
                            .list = std::move(given),
                            .source = some ? Source::kWord : Source::kNobody,
                            .origin = some ? name : ""});
  }
  if (!extra.empty() && !help_) return unexpected_word(verb_, extra.front());
  return {};
}

Result<void> ArgumentReader::read_config_file() {
  if (!verb_.configurable) return {};  // a --config of its own is another kind of file
  for (size_t i = 0; i < verb_.flags.size(); ++i) {
    if (verb_.flags[i].name != kConfigFlag) continue;
    TRY_ASSIGN(const Said said, said_of(verb_.flags[i], i));
    if (said.source == Source::kNobody) return {};
    TRY_ASSIGN(config_, read_config(said.text));
    return check_config_names();
  }
  return {};
}

Result<void> ArgumentReader::check_config_names() const {
  std::vector<std::string> names;
  for (const Positional& positional : verb_.positionals) {
    names.push_back(config_name(positional.name));
  }
  for (const Flag& flag : verb_.flags) {
    if (!flag.in_config) continue;
    for (const std::string& name : flag.names()) names.push_back(config_name(name));
  }
  for (const ConfigEntry& entry : config_.entries) {
    if (std::find(names.begin(), names.end(), entry.name) != names.end()) continue;
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}:{}: unknown name '{}'{}", config_.file, entry.line, entry.name,
                             did_you_mean(entry.name, names)),
                 entry.name};
  }
  return {};
}

Result<ArgumentReader::Said> ArgumentReader::in_config(const Flag& flag) const {
  const std::vector<std::string> names = flag.names();
  const ConfigEntry* found = nullptr;
  bool is_negated = false;
  for (const ConfigEntry& entry : config_.entries) {
    const auto meant = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return config_name(name) == entry.name;
    });
    if (meant == names.end()) continue;
    const std::string place = fmt::format("{}:{}", config_.file, entry.line);
    if (found != nullptr) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: '{}' is the same as '{}' in line {}", place, entry.name,
                               found->name, found->line),
                   entry.name};
    }
    if (!fits(entry, flag)) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: {} wants {}", place, entry.name, wanted_type(flag)),
                   entry.name};
    }
    if (entry.type == ConfigEntry::Type::kList && entry.list.empty() && !flag.may_be_empty) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: the list '{}' is empty; it wants at least one text, as "
                               "[\"a\"], or take the line away",
                               place, entry.name),
                   entry.name};
    }
    found = &entry;
    is_negated = negates(flag, *meant);
  }
  if (found == nullptr) return Said{};
  return Said{.text = is_negated ? negated(found->text) : found->text,
              .list = found->list,
              .source = Source::kFile,
              .origin = fmt::format("{}:{}", config_.file, found->line)};
}

Result<ArgumentReader::Said> ArgumentReader::said_of(const Positional& positional,
                                                     size_t index) const {
  if (positionals_[index].source == Source::kWord) return positionals_[index];
  const std::string variable = telling_variable(positional.variables);
  if (!variable.empty()) {
    return Said{.text = {},
                .list = {std::getenv(variable.c_str())},
                .source = Source::kEnvironment,
                .origin = "$" + variable};
  }
  const Flag as_text{.name = positional.name, .many = positional.many, .may_be_empty = false};
  TRY_ASSIGN(Said said, in_config(as_text));
  if (said.source != Source::kNobody && said.list.empty()) said.list = {said.text};
  return said;
}

ArgumentReader::Said ArgumentReader::default_of(const Flag& flag) {
  const bool is_switch = flag.kind == Flag::Kind::kSwitch;
  if (flag.default_text.empty() && !is_switch) return Said{};
  const bool is_off = is_switch && flag.default_text.empty();
  return Said{.text = is_off ? "false" : flag.default_text,
              .list = {},
              .source = Source::kDefault,
              .origin = "default"};
}

Result<ArgumentReader::Said> ArgumentReader::said_of(const Flag& flag, size_t index) const {
  if (flags_[index].source == Source::kWord) return flags_[index];
  for (const Variable& variable : variables_of(flag, verb_.other_prefix)) {
    const char* value = std::getenv(variable.name.c_str());
    if (value == nullptr) continue;
    const bool theirs =
        !verb_.other_prefix.empty() && variable.name.starts_with(verb_.other_prefix);
    // Nothing is left of theirs that say no more than our default: the next one may.
    std::string text = theirs ? in_our_words(flag, value) : std::string(value);
    // An empty variable says nothing, unless what would be in force then is less than was meant.
    if (text.empty() && flag.may_be_empty) continue;
    if (variable.negates) text = negated(std::move(text));
    return Said{.text = std::move(text),
                .list = {},
                .source = Source::kEnvironment,
                .origin = "$" + variable.name};
  }
  if (flag.in_config) {
    TRY_ASSIGN(Said said, in_config(flag));
    if (said.source != Source::kNobody) return said;
  }
  return default_of(flag);
}

Result<void> ArgumentReader::take(const Flag& flag, Said said, Arguments& arguments) const {
  Arguments::Value& value = arguments.values_[flag.name];
  value = {.source = said.source, .origin = said.origin};
  const bool ours =
      verb_.configurable && (flag.name == kConfigFlag || flag.name == kPrintConfigFlag);
  if (!ours && !flag.ignored) value.asked = std::make_shared<std::atomic<bool>>(false);
  if (said.source == Source::kNobody) return {};
  if (flag.kind == Flag::Kind::kSwitch) {
    const std::optional<bool> is_on = switch_value(said.text);
    if (!is_on) {
      return with_origin(
          usage_error(fmt::format("{} is true or false, not '{}'", flag.name, said.text),
                      flag.name),
          said.origin);
    }
    value.given = *is_on;
    value.text = *is_on ? "true" : "false";
    return {};
  }
  value.given = true;
  const bool says_nothing =
      said.list.empty() ? is_blank(said.text) : std::ranges::any_of(said.list, is_blank);
  if (!flag.may_be_empty && says_nothing) return empty_value(flag, said.origin);
  if (flag.many) {
    if (said.list.empty() && flag.secret) said.list = {said.text};  // blanks are a part of it
    value.list = said.list.empty() ? split_words(said.text) : std::move(said.list);
    value.text = fmt::format("{}", fmt::join(value.list, " "));
  } else {
    value.text = std::move(said.text);
  }
  const Result<void> chosen = check_choice(flag, value.text);
  if (!chosen) return with_origin(chosen.error(), said.origin);
  if (flag.kind == Flag::Kind::kText) return {};
  const Result<double> number = flag_number(flag, value.text);
  if (!number) return with_origin(number.error(), said.origin);
  value.number = *number;
  value.integer = static_cast<int64_t>(*number);
  return {};
}

Error ArgumentReader::missing(const std::string& name) const {
  return usage_error(fmt::format("{} is missing; see '{} {} --help'", name, program_, verb_.name),
                     name);
}

Result<void> ArgumentReader::take_positionals(bool all_needed, Arguments& arguments) const {
  for (size_t i = 0; i < verb_.positionals.size(); ++i) {
    const Positional& positional = verb_.positionals[i];
    TRY_ASSIGN(Said said, said_of(positional, i));
    Arguments::Value& value = arguments.values_[positional.name];
    value.source = said.source;
    value.origin = said.origin;
    value.given = said.source != Source::kNobody;
    value.asked = std::make_shared<std::atomic<bool>>(false);
    if (!value.given && positional.required && all_needed) return missing(positional.name);
    if (!value.given) continue;
    if (std::ranges::any_of(said.list, is_blank)) {
      return empty_value({.name = positional.name}, said.origin);
    }
    value.text = said.list.front();
    value.list = std::move(said.list);
    const Result<void> chosen =
        check_choice({.name = positional.name, .choices = positional.choices}, value.text);
    if (!chosen) return with_origin(chosen.error(), said.origin);
  }
  return {};
}

Result<ArgumentReader::Outcome> ArgumentReader::read(const std::vector<std::string>& words) {
  TRY_ASSIGN(NativeWords native, native_words(verb_, words));
  TRY(split(native.words));
  Outcome outcome{.help = help_};
  outcome.notes = std::move(native.notes);
  if (help_) return outcome;
  TRY(read_config_file());
  Arguments& arguments = outcome.arguments;
  for (size_t i = 0; i < verb_.flags.size(); ++i) {
    TRY_ASSIGN(Said said, said_of(verb_.flags[i], i));
    TRY(take(verb_.flags[i], std::move(said), arguments));
  }
  outcome.print_config = verb_.configurable && arguments.has(kPrintConfigFlag);
  TRY(take_positionals(!outcome.print_config, arguments));
  for (const Flag& flag : verb_.flags) {
    if (flag.required && !arguments.has(flag.name) && !outcome.print_config) {
      return missing(flag.name);
    }
  }
  TRY(settle(arguments));
  return outcome;
}

Result<void> ArgumentReader::take_value(const NamedFlag& meant, const std::string& text,
                                        Arguments& arguments) const {
  const Flag& flag = *meant.flag;
  Said said{.text = text, .source = Source::kWord, .origin = flag.name};
  if (meant.negated) said.text = negated(text);
  for (const auto& [theirs, ours] : flag.other_choices) {
    if (said.text == theirs) said.text = ours;
  }
  return take(flag, std::move(said), arguments);
}

Result<void> ArgumentReader::take_values(
    const std::vector<std::pair<std::string, std::string>>& values, Arguments& arguments) const {
  std::map<const Flag*, std::string> said_as;
  for (const auto& [name, text] : values) {
    const NamedFlag meant = flag_named(verb_.flags, name);
    if (meant.flag == nullptr) {
      return usage_error(fmt::format("there is no '{}'{}", name,
                                     did_you_mean(name, names_like(verb_.flags, name))),
                         name);
    }
    const auto [first, is_new] = said_as.emplace(meant.flag, name);
    if (!is_new) {
      return usage_error(
          fmt::format("'{}' is the same as '{}'; give one of them", name, first->second), name);
    }
    const Result<void> taken = take_value(meant, text, arguments);
    if (!taken.ok()) return Error{ErrorCode::kInvalidArgument, taken.error().message, name};
  }
  // Of what is said here; what was said before yields.
  for (const auto& [flag, name] : said_as) {
    const Circumstance* const other = against(*flag, arguments);
    if (other == nullptr) continue;
    const auto beside = said_as.find(flag_named(verb_.flags, config_name(other->flag)).flag);
    if (beside == said_as.end()) continue;
    return usage_error(fmt::format("{} has no effect with {}", name, beside->second), name);
  }
  return {};
}

Result<Arguments> with_values(const std::vector<Flag>& flags, const Arguments& arguments,
                              const std::vector<std::pair<std::string, std::string>>& values) {
  Arguments changed = arguments;
  const Verb verb{.name = {}, .flags = flags, .run = {}};
  TRY(ArgumentReader(verb.name, verb).take_values(values, changed));
  return changed;
}

}  // namespace pelton::cli
