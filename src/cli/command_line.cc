#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include <fmt/format.h>

#include "base/check.h"
#include "cli/argument_reader.h"
#include "cli/effective_config.h"
#include "cli/exit_code.h"
#include "cli/wording.h"

namespace pelton::cli {

std::string environment_name(std::string_view flag) {
  std::string name(kVariablePrefix);
  for (const char c : flag.substr(flag.find_first_not_of('-'))) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

std::string config_name(std::string_view name) {
  std::string lower(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::vector<std::string> Flag::names() const {
  std::vector<std::string> names = {name};
  names.insert(names.end(), aliases.begin(), aliases.end());
  names.insert(names.end(), negations.begin(), negations.end());
  return names;
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

const std::string& Arguments::origin(std::string_view name) const {
  return at(name).origin;
}

std::vector<std::string> Arguments::changed_since(const Arguments& before) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) {
    const Value& was = before.at(name);
    if (value.given != was.given || value.text != was.text || value.list != was.list) {
      names.push_back(name);
    }
  }
  return names;
}

Result<Arguments> Arguments::reread() const {
  CHECK(reread_ != nullptr, "these were not given to run()");
  return reread_();
}

namespace {

std::vector<Verb> with_config_flags(std::vector<Verb> verbs) {
  for (Verb& verb : verbs) {
    if (!verb.configurable) continue;
    verb.flags.push_back({.name = std::string(kConfigFlag),
                          .value = "FILE",
                          .help = "TOML whose names are these flags' (port = 9000); flags and the "
                                  "environment go before it",
                          .in_config = false});
    verb.flags.push_back({.name = std::string(kPrintConfigFlag),
                          .help = "print what is in effect and what said so, as such a file",
                          .kind = Flag::Kind::kSwitch,
                          .in_config = false});
  }
  return verbs;
}

}  // namespace

CommandLine::CommandLine(Program program, std::vector<Verb> verbs)
    : program_(std::move(program)), verbs_(with_config_flags(std::move(verbs))) {}

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
  request->arguments.reread_ = [this, words]() -> Result<Arguments> {
    TRY_ASSIGN(Request again, parse(words));
    return std::move(again.arguments);
  };
  const Result<void> outcome = request->verb->run(request->arguments);
  std::fflush(stdout);
  if (outcome.ok()) return kExitOk;
  std::fprintf(stderr, "%s: %s\n", program_.name.c_str(), outcome.error().message.c_str());
  return exit_code(outcome.error());
}

Result<CommandLine::Found> CommandLine::find_verb(const std::vector<std::string>& words) const {
  Found found;
  std::vector<std::string> names;
  std::vector<std::string> below;
  const size_t first = words[0] == "help" ? 1 : 0;
  for (const Verb& verb : verbs_) {
    names.push_back(verb.name);
    const std::vector<std::string> parts = split_words(verb.name);
    if (parts[0] == words[first] && parts.size() > 1) below.push_back(verb.name);
    const bool matches = parts.size() <= words.size() - first &&
                         std::equal(parts.begin(), parts.end(), words.begin() + first);
    if (matches && first + parts.size() > found.words) {
      found = {.verb = &verb, .words = first + parts.size()};
    }
  }
  if (found.verb != nullptr) return found;
  if (!below.empty()) {
    return usage_error(
        fmt::format("'{}' wants a verb of its own: {}", words[first], fmt::join(below, ", ")), {});
  }
  const char* kind = words[first].starts_with('-') ? "flag" : "verb";
  return usage_error(
      fmt::format("unknown {} '{}'{}", kind, words[first], did_you_mean(words[first], names)), {});
}

Result<CommandLine::Request> CommandLine::parse(const std::vector<std::string>& words) const {
  Request request;
  if (words.empty()) {
    return usage_error("what shall I do? Try '" + program_.name + " --help'", {});
  }
  if (words[0] == "--help" || words[0] == "-h" || (words[0] == "help" && words.size() == 1)) {
    request.text = help();
    return request;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    request.text = fmt::format("{} {}\n", program_.name, program_.version);
    return request;
  }
  TRY_ASSIGN(const Found found, find_verb(words));
  if (words[0] == "help") {
    request.text = help(*found.verb);
    return request;
  }
  ArgumentReader reader(program_.name, *found.verb);
  const auto behind = words.begin() + static_cast<std::ptrdiff_t>(found.words);
  TRY_ASSIGN(ArgumentReader::Outcome read, reader.read({behind, words.end()}));
  if (read.help) {
    request.text = help(*found.verb);
    return request;
  }
  if (read.print_config) {
    request.text = effective_config(program_, *found.verb, read.arguments);
    return request;
  }
  request.verb = found.verb;
  request.arguments = std::move(read.arguments);
  return request;
}

}  // namespace pelton::cli
