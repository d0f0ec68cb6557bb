#include "cli/effective_config.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"
#include "cli/config_file.h"

namespace pelton::cli {
namespace {

struct Line {
  std::string left;    // "port = 8000"; with "# " before it: says nothing
  std::string origin;  // "--port", "$PELTON_PORT", "pelton.toml:3", "default"
};

std::string list_of(const std::vector<std::string>& words) {
  std::string list = "[";
  for (const std::string& word : words) {
    if (list.size() > 1) list += ", ";
    list += toml_quoted(word);
  }
  return list + "]";
}

std::string value_of(const Flag& flag, const Arguments& arguments) {
  const std::string& text = arguments.text(flag.name);
  switch (flag.kind) {
    case Flag::Kind::kSwitch:
      return arguments.has(flag.name) ? "true" : "false";
    case Flag::Kind::kInteger:
      return std::to_string(arguments.integer(flag.name));
    case Flag::Kind::kNumber:
      return fmt::format("{}", arguments.number(flag.name));
    case Flag::Kind::kSize:
      return toml_quoted(text);
    case Flag::Kind::kText:
      return flag.many ? list_of(arguments.list(flag.name)) : toml_quoted(text);
  }
  return {};
}

Line line_of(const std::string& name, const std::string& origin, const std::string& value) {
  if (!base::is_valid_utf8(value)) return {"# " + name + " is not UTF-8", origin};
  return {fmt::format("{} = {}", name, value), origin};
}

}  // namespace

std::string effective_config(const CommandLine::Program& program, const Verb& verb,
                             const Arguments& arguments) {
  std::vector<Line> lines;
  std::string warnings;
  for (const Positional& positional : verb.positionals) {
    const std::string name = config_name(positional.name);
    if (arguments.has(positional.name)) {
      lines.push_back(line_of(name, arguments.origin(positional.name),
                              positional.many ? list_of(arguments.list(positional.name))
                                              : toml_quoted(arguments.text(positional.name))));
    } else {
      lines.push_back({fmt::format("# {} = \"{}\"", name, positional.name), "not set"});
    }
  }
  for (const Flag& flag : verb.flags) {
    if (!flag.in_config) continue;
    const std::string name = config_name(flag.name);
    const bool unset = !arguments.has(flag.name) && flag.kind != Flag::Kind::kSwitch;
    if (unset) {
      lines.push_back({fmt::format("# {} = {}", name, flag.value), "not set"});
    } else if (flag.secret) {
      lines.push_back({fmt::format("# {} = \"********\"", name),
                       arguments.origin(flag.name) + "; secrets are not printed"});
      warnings += fmt::format(
          "# WARNING: {0} is in effect and is left out here, as secrets are not printed: with "
          "this\n"
          "# file alone there is none. Say it beside the file, as {1} or ${2}.\n",
          name, flag.name, environment_name(flag.name));
    } else {
      lines.push_back(line_of(name, arguments.origin(flag.name), value_of(flag, arguments)));
    }
  }
  constexpr size_t kColumnMax = 48;
  size_t column = 0;
  for (const Line& line : lines) {
    if (line.left.size() <= kColumnMax) column = std::max(column, line.left.size());
  }
  std::string out = fmt::format(
      "# {} {} {}: what is in effect, and what said so. {} {} --config FILE\n"
      "# takes it back.\n",
      program.name, program.version, verb.name, program.name, verb.name);
  out += warnings;
  for (const Line& line : lines) {
    out += fmt::format("{:<{}}  # {}\n", line.left, column, line.origin);
  }
  return out;
}

}  // namespace pelton::cli
