#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include <fmt/format.h>

#include "base/check.h"
#include "base/terminal_text.h"
#include "cli/argument_reader.h"
#include "cli/effective_config.h"
#include "cli/exit_code.h"
#include "cli/unknown_variables.h"
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
  if (found->second.asked != nullptr) found->second.asked->store(true, std::memory_order_relaxed);
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

Arguments::Source Arguments::source(std::string_view name) const {
  return at(name).source;
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

std::vector<std::string> Arguments::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) {
    if (value.source == Source::kWord && value.asked != nullptr && !value.asked->load())
      names.push_back(name);
  }
  return names;
}

Error Arguments::blamed(Error error) const {
  if (error.code != ErrorCode::kInvalidArgument || error.field.empty()) return error;
  for (const auto& [name, value] : values_) {
    if (value.source == Source::kNobody || config_name(name) != config_name(error.field)) continue;
    return with_origin(std::move(error), value.origin);
  }
  return error;
}

Result<Arguments> Arguments::reread() const {
  CHECK(reread_ != nullptr, "these were not given to run()");
  return reread_();
}

namespace {

// Its words may be a server's, a file's or a model's.
ExitCode failed(const std::string& program, const Error& error) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), base::without_controls(error.message).c_str());
  return exit_code(error);
}

bool is_version(const std::string& word) {
  return word == "--version" || word == "-V" || word == "-v" || word == "version";
}

// The net below what flags say of themselves (only_with, not_with): a flag that no code has looked
// at had no effect, and whoever gave it learns that.
Result<void> all_used(const Arguments& arguments) {
  const std::vector<std::string> unread = arguments.unread();
  if (unread.empty()) return {};
  return usage_error(fmt::format("done, but without {}: it has no effect here; leave it out",
                                 fmt::join(unread, ", ")),
                     unread.front());
}

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
    return failed(program_.name, request.error());
  }
  if (request->verb == nullptr) {
    std::fputs(request->text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? kExitOk : kExitFailure;
  }
  for (const Flag& flag : request->verb->flags) {
    if (flag.ignored && request->arguments.at(flag.name).given) {
      std::fprintf(stderr, "%s: note: %s means nothing here\n", program_.name.c_str(),
                   flag.name.c_str());
    }
  }
  for (const std::string& note : unknown_variables(verbs_, program_.variables)) {
    std::fprintf(stderr, "%s: warning: %s\n", program_.name.c_str(), note.c_str());
  }
  for (const std::string& note : request->notes) {
    std::fprintf(stderr, "%s: note: %s\n", program_.name.c_str(), note.c_str());
  }
  request->arguments.reread_ = [this, words]() -> Result<Arguments> {
    TRY_ASSIGN(Request again, parse(words));
    return std::move(again.arguments);
  };
  Result<void> outcome = request->verb->run(request->arguments);
  std::fflush(stdout);
  // Of a server nobody wants to hear it at its end, which may have come before it read them all.
  if (outcome.ok() && !request->verb->configurable) outcome = all_used(request->arguments);
  if (outcome.ok()) return kExitOk;
  return failed(program_.name, request->arguments.blamed(outcome.error()));
}

bool CommandLine::is_group(const std::string& word) const {
  // One that is a verb itself says what it does itself.
  if (std::ranges::find(verbs_, word, &Verb::name) != verbs_.end()) return false;
  return std::any_of(verbs_.begin(), verbs_.end(),
                     [&](const Verb& verb) { return verb.name.starts_with(word + " "); });
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
    const std::string named = words.size() > first + 1 ? words[first] + " " + words[first + 1] : "";
    return usage_error(fmt::format("'{}' wants a verb of its own: {}{}", words[first],
                                   fmt::join(below, ", "), did_you_mean(named, below)),
                       {});
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
  if (words.size() == 1 && is_version(words[0])) {
    request.text = fmt::format("{} {}\n", program_.name, program_.version);
    return request;
  }
  if (const std::string group = words[0] == "help" ? words[1] : words[0]; is_group(group)) {
    const std::string& last = words.back();
    const bool asks = words.size() == 2 && (words[0] == "help" || last == "--help" || last == "-h");
    if (asks) {
      request.text = help(group);
      return request;
    }
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
  request.notes = std::move(read.notes);
  return request;
}

}  // namespace pelton::cli
