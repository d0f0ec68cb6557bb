#include "cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "cli/exit_code.h"
#include "cli/human_size.h"

namespace pelton::cli {
namespace {

constexpr size_t kHelpColumn = 34;
constexpr size_t kHelpWidth = 100;

Error usage(std::string message, std::string field = {}) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
}

// Levenshtein's distance, a row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::optional<std::string> near = nearest(word, candidates);
  return near ? fmt::format("; did you mean '{}'?", *near) : "";
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, space - at));
    at = space + 1;
  }
  return words;
}

// "  left            right, wrapped\n"
void help_row(std::string& out, std::string_view left, const std::string& right) {
  std::string line = fmt::format("  {}", left);
  if (line.size() + 2 > kHelpColumn) {
    out += line + "\n";
    line.clear();
  }
  line.resize(std::max(line.size(), kHelpColumn), ' ');
  bool first = true;
  for (const std::string& word : split_words(right)) {
    if (!first && line.size() + 1 + word.size() > kHelpWidth) {
      out += line + "\n";
      line.assign(kHelpColumn, ' ');
      first = true;
    }
    if (!first) line += ' ';
    line += word;
    first = false;
  }
  out += line + "\n";
}

Result<double> to_number(const Flag& flag, const std::string& text) {
  double number = 0;
  if (flag.kind == Flag::Kind::kSize) {
    const Result<int64_t> size = parse_size(text);
    if (!size) return usage(fmt::format("{}: {}", flag.name, size.error().message), flag.name);
    number = static_cast<double>(*size);
  } else {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = number == std::floor(number);
    const bool integer = flag.kind == Flag::Kind::kInteger;
    if (failure != std::errc{} || end != text.data() + text.size() || !std::isfinite(number) ||
        (integer && !whole)) {
      return usage(fmt::format("{} wants {}, not '{}'", flag.name,
                               integer ? "a whole number" : "a number", text),
                   flag.name);
    }
  }
  if (number < flag.least || number > flag.most) {
    return usage(
        fmt::format("{} must be between {} and {}, not {}", flag.name, flag.least, flag.most, text),
        flag.name);
  }
  return number;
}

Result<void> check_choice(const Flag& flag, const std::string& text) {
  if (flag.choices.empty()) return {};
  if (std::find(flag.choices.begin(), flag.choices.end(), text) != flag.choices.end()) return {};
  return usage(
      fmt::format("{} is one of {}, not '{}'", flag.name, fmt::join(flag.choices, ", "), text),
      flag.name);
}

// What an unexpected word deserves to hear.
Error unexpected_word(const Verb& verb, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') {
    return usage(fmt::format("unexpected argument '{}'", word));
  }
  std::vector<std::string> names{"--help"};
  for (const Flag& flag : verb.flags) {
    names.push_back(flag.name);
    names.insert(names.end(), flag.aliases.begin(), flag.aliases.end());
  }
  const std::string name = word.substr(0, word.find('='));
  return usage(fmt::format("unknown flag '{}'{}", name, did_you_mean(name, names)), name);
}

// "--name,--alias", as CLI11 wants it.
std::string all_names(const Flag& flag) {
  std::string names = flag.name;
  for (const std::string& alias : flag.aliases) names += "," + alias;
  return names;
}

constexpr std::string_view kPrefix = "PELTON_";

// The first of these variables that says something; null: none does.
const char* environment_value(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

// What the environment says of a flag, under any of its names.
const char* environment_value(const Flag& flag, std::string_view other_prefix) {
  std::vector<std::string> variables = {environment_name(flag.name)};
  for (const std::string& alias : flag.aliases) variables.push_back(environment_name(alias));
  if (!other_prefix.empty()) {
    const size_t count = variables.size();
    for (size_t i = 0; i < count; ++i) {
      variables.push_back(std::string(other_prefix) + variables[i].substr(kPrefix.size()));
    }
  }
  variables.insert(variables.end(), flag.variables.begin(), flag.variables.end());
  return environment_value(variables);
}

struct RawFlag {
  std::string text;
  std::vector<std::string> list;  // of one that may have many
  bool is_on = false;
  CLI::Option* option = nullptr;
};

struct RawWords {
  std::vector<std::vector<std::string>> positionals;
  std::vector<RawFlag> flags;
  std::vector<std::string> extra;
  bool help = false;
};

// The one place where CLI11 is at work: it splits the words. What they mean is checked by us.
Result<RawWords> split_by_cli11(const Verb& verb, const std::vector<std::string>& words) {
  RawWords raw;
  raw.positionals.resize(verb.positionals.size());
  raw.flags.resize(verb.flags.size());
  try {
    CLI::App app;
    app.set_help_flag();
    app.add_flag("-h,--help", raw.help);
    app.allow_extras();
    for (size_t i = 0; i < verb.positionals.size(); ++i) {
      std::vector<std::string>& to = raw.positionals[i];
      if (verb.positionals[i].many) {
        app.add_option(verb.positionals[i].name, to);
      } else {
        to.resize(1);  // a single text leaves what comes after it to the complaints below
        app.add_option(verb.positionals[i].name, to.front());
      }
    }
    for (size_t i = 0; i < verb.flags.size(); ++i) {
      const Flag& flag = verb.flags[i];
      RawFlag& to = raw.flags[i];
      const std::string names = all_names(flag);
      if (flag.kind == Flag::Kind::kSwitch) {
        to.option = app.add_flag(names, to.is_on);
      } else if (flag.many) {
        to.option = app.add_option(names, to.list);
      } else {
        to.option = app.add_option(names, to.text)->take_last();
      }
    }
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 pops from the back
    app.parse(reversed);
    raw.extra = app.remaining();
    for (RawFlag& flag : raw.flags) {
      flag.is_on = flag.option->count() > 0;
      flag.option = nullptr;
    }
  } catch (const CLI::Error& error) {
    return usage(error.what());
  }
  return raw;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string environment_name(std::string_view flag) {
  std::string name(kPrefix);
  for (const char c : flag.substr(flag.find_first_not_of('-'))) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

const Arguments::Value& Arguments::at(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end(), name);
  return found->second;
}

bool Arguments::has(std::string_view name) const {
  return at(name).given;
}
const std::string& Arguments::text(std::string_view name) const {
  return at(name).text;
}

int64_t Arguments::integer(std::string_view name) const {
  CHECK(at(name).given, name);
  return at(name).integer;
}

double Arguments::number(std::string_view name) const {
  CHECK(at(name).given, name);
  return at(name).number;
}

const std::vector<std::string>& Arguments::list(std::string_view name) const {
  return at(name).list;
}

CommandLine::CommandLine(Program program, std::vector<Verb> verbs)
    : program_(std::move(program)), verbs_(std::move(verbs)) {}

int CommandLine::run(int argc, const char* const* argv) const {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  Result<Request> request = parse(words);
  if (!request) {
    std::fprintf(stderr, "%s: %s\n", program_.name.c_str(), request.error().message.c_str());
    return exit_code(request.error());
  }
  if (request->verb == nullptr) {
    std::fputs(request->text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? kExitOk : kExitFailure;
  }
  const Result<void> outcome = request->verb->run(request->arguments);
  std::fflush(stdout);
  if (outcome.ok()) return kExitOk;
  std::fprintf(stderr, "%s: %s\n", program_.name.c_str(), outcome.error().message.c_str());
  return exit_code(outcome.error());
}

Result<CommandLine::Request> CommandLine::parse(const std::vector<std::string>& words) const {
  Request request;
  if (words.empty()) return usage("what shall I do? Try '" + program_.name + " --help'");
  if (words[0] == "--help" || words[0] == "-h" || (words[0] == "help" && words.size() == 1)) {
    request.text = help();
    return request;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    request.text = fmt::format("{} {}\n", program_.name, program_.version);
    return request;
  }
  size_t used = 0;
  std::vector<std::string> names;
  std::vector<std::string> below;
  const size_t first = words[0] == "help" ? 1 : 0;
  for (const Verb& verb : verbs_) {
    names.push_back(verb.name);
    const std::vector<std::string> parts = split_words(verb.name);
    if (parts[0] == words[first] && parts.size() > 1) below.push_back(verb.name);
    const bool matches = parts.size() <= words.size() - first &&
                         std::equal(parts.begin(), parts.end(), words.begin() + first);
    if (matches && parts.size() > used) {
      request.verb = &verb;
      used = parts.size();
    }
  }
  if (request.verb == nullptr) {
    if (!below.empty()) {
      return usage(
          fmt::format("'{}' wants a verb of its own: {}", words[first], fmt::join(below, ", ")));
    }
    const char* kind = words[first].starts_with('-') ? "flag" : "verb";
    return usage(
        fmt::format("unknown {} '{}'{}", kind, words[first], did_you_mean(words[first], names)));
  }
  const Verb& verb = *request.verb;
  TRY_ASSIGN(const RawWords raw, split_by_cli11(verb, {words.begin() + first + used, words.end()}));
  if (raw.help || first == 1) {
    request.verb = nullptr;
    request.text = help(verb);
    return request;
  }
  if (!raw.extra.empty()) return unexpected_word(verb, raw.extra.front());
  for (size_t i = 0; i < verb.positionals.size(); ++i) {
    Arguments::Value& value = request.arguments.values_[verb.positionals[i].name];
    std::vector<std::string> words_given = raw.positionals[i];
    if (words_given.empty() || words_given.front().empty()) {
      const char* environment = environment_value(verb.positionals[i].variables);
      words_given.clear();
      if (environment != nullptr) words_given.emplace_back(environment);
    }
    if (words_given.empty()) {
      if (!verb.positionals[i].required) continue;
      return usage(fmt::format("{} is missing; see '{} {} --help'", verb.positionals[i].name,
                               program_.name, verb.name));
    }
    value.given = true;
    value.text = words_given.front();
    value.list = std::move(words_given);
  }
  for (size_t i = 0; i < verb.flags.size(); ++i) {
    const Flag& flag = verb.flags[i];
    Arguments::Value& value = request.arguments.values_[flag.name];
    value.given = raw.flags[i].is_on;
    value.text =
        flag.many ? fmt::format("{}", fmt::join(raw.flags[i].list, " ")) : raw.flags[i].text;
    const char* environment = environment_value(flag, verb.other_prefix);
    if (!value.given && environment != nullptr) {
      value.text = environment;
      value.given = flag.kind != Flag::Kind::kSwitch || value.text != "0";
    }
    if (flag.kind == Flag::Kind::kSwitch) continue;
    if (!value.given && !flag.default_text.empty()) {
      value.given = true;
      value.text = flag.default_text;
    }
    if (!value.given && flag.required) {
      return usage(
          fmt::format("{} is missing; see '{} {} --help'", flag.name, program_.name, verb.name),
          flag.name);
    }
    if (!value.given) continue;
    if (flag.many) {
      value.list = raw.flags[i].list;
      if (value.list.empty()) value.list = split_words(value.text);  // from the environment
    }
    TRY(check_choice(flag, value.text));
    if (flag.kind != Flag::Kind::kText) {
      TRY_ASSIGN(value.number, to_number(flag, value.text));
      value.integer = static_cast<int64_t>(value.number);
    }
  }
  return request;
}

namespace {

// "MODEL", or "[MODEL]" if it may be left out.
std::string shown_name(const Positional& positional) {
  const std::string name = positional.name + (positional.many ? " ..." : "");
  return positional.required ? name : fmt::format("[{}]", name);
}

}  // namespace

std::string CommandLine::help() const {
  std::string out = fmt::format("{} {}: {}\n\nusage: {} VERB ...\n\nVerbs\n", program_.name,
                                program_.version, program_.summary, program_.name);
  for (const Verb& verb : verbs_) {
    std::string left = verb.name;
    for (const Positional& positional : verb.positionals)
      left += fmt::format(" {}", shown_name(positional));
    help_row(out, left, verb.summary);
  }
  out += fmt::format("\n'{} VERB --help' tells more. '--version' prints the version.\n",
                     program_.name);
  out += "\nExamples\n";
  for (const std::string& example : program_.examples) out += "  " + example + "\n";
  out +=
      "\nExit codes\n  0 fine   1 failed while running   2 wrong usage   3 bad configuration\n"
      "  4 model not found or unreadable   5 does not fit in memory   6 address in use   130 "
      "Ctrl-C\n";
  return out;
}

std::string CommandLine::help(const Verb& verb) const {
  std::string out = fmt::format("{}\n\nusage: {} {}", verb.summary, program_.name, verb.name);
  for (const Positional& positional : verb.positionals)
    out += fmt::format(" {}", shown_name(positional));
  for (const Flag& flag : verb.flags) {
    if (flag.required) out += fmt::format(" {} {}", flag.name, flag.value);
  }
  out += " [flags]\n";
  if (!verb.about.empty()) out += "\n" + verb.about + "\n";
  if (!verb.positionals.empty()) {
    out += "\nArguments\n";
    for (const Positional& positional : verb.positionals) {
      help_row(out, positional.name, positional.help);
    }
  }
  out += "\nFlags\n";
  for (const Flag& flag : verb.flags) {
    std::string right = flag.help;
    if (!flag.choices.empty()) right += fmt::format(" ({})", fmt::join(flag.choices, "|"));
    if (!flag.aliases.empty()) right += fmt::format("; also {}", fmt::join(flag.aliases, ", "));
    if (!flag.default_text.empty()) right += fmt::format(" [default: {}]", flag.default_text);
    help_row(out, flag.name + (flag.value.empty() ? "" : " " + flag.value), right);
  }
  help_row(out, "--help", "this text");
  out += "\nEvery flag can also be set in the environment: --some-flag is $PELTON_SOME_FLAG.\n";
  if (!verb.examples.empty()) {
    out += "\nExamples\n";
    for (const std::string& example : verb.examples) out += "  " + example + "\n";
  }
  return out;
}

}  // namespace pelton::cli
