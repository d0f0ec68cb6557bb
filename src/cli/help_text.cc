// What --help prints.
#include <algorithm>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/wording.h"

namespace pelton::cli {
namespace {

constexpr size_t kHelpColumn = 34;
constexpr size_t kHelpWidth = 100;

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
    if (!flag.negations.empty()) right += fmt::format("; off: {}", fmt::join(flag.negations, ", "));
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
