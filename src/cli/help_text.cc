// What --help prints.
#include <algorithm>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "cli/command_line.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "cli/wording.h"

namespace pelton::cli {
namespace {

constexpr int kWidthMost = 100;  // longer lines are hard to read
constexpr int kRightLeast = 24;  // of the right column; narrower, and it goes below the left one

// "  left            right, wrapped\n"
void help_row(std::string& out, std::string_view left, const std::string& right, int width) {
  const int column = std::clamp(width / 3, 8, 34);
  const bool below = width - column < kRightLeast;
  const int indent = below ? 6 : column;
  const std::string lines = base::wrapped_text(right, width, indent);
  const int left_columns = 2 + base::text_columns(left);
  if (below || left_columns + 2 > column) {
    out += fmt::format("  {}\n{}", left, lines);
  } else {
    out += fmt::format("  {}{}", left, lines.substr(static_cast<size_t>(left_columns)));
  }
}

// Paragraphs whose lines are for a terminal of 100 columns; what is indented stays as it is.
std::string paragraph(const std::string& text, int width) {
  if (width >= kWidthMost) return text + "\n";
  std::string out;
  std::string running;
  const auto end_running = [&] {
    if (!running.empty()) out += base::wrapped_text(running, width, 0);
    running.clear();
  };
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const bool as_it_is = line.empty() || line.find("  ") != std::string::npos;
    if (as_it_is) {
      end_running();
      out += line + "\n";
    } else {
      running += (running.empty() ? "" : " ") + line;
    }
  }
  end_running();
  return out;
}

// A command line goes on in the next line behind a backslash, where it can be copied as it is.
void example_row(std::string& out, const std::string& example, int width) {
  std::string line = " ";
  for (const std::string& word : split_words(example)) {
    const bool fits = static_cast<int>(line.size() + 1 + word.size()) + 2 <= width;
    if (!fits && line.size() > 4) {
      out += line + " \\\n";
      line = "     ";
    }
    line += " " + word;
  }
  out += line + "\n";
}

std::string exit_codes(int width) {
  std::string all;
  for (const ExitMeaning& exit : kExitMeanings) {
    all +=
        fmt::format("{}{} {}", all.empty() ? "" : ", ", static_cast<int>(exit.code), exit.meaning);
  }
  return base::wrapped_text(all, width, 2);
}

// "MODEL", or "[MODEL]" if it may be left out.
std::string shown_name(const Positional& positional) {
  const std::string name = positional.name + (positional.many ? " ..." : "");
  return positional.required ? name : fmt::format("[{}]", name);
}

int help_width() {
  return std::min(Terminal(stdout).text_width(80), kWidthMost);
}

std::string verb_rows(const std::vector<Verb>& verbs, const std::string& group, int width) {
  std::string out;
  for (const Verb& verb : verbs) {
    if (!group.empty() && split_words(verb.name).front() != group) continue;
    std::string left = verb.name;
    for (const Positional& positional : verb.positionals)
      left += fmt::format(" {}", shown_name(positional));
    help_row(out, left, verb.summary, width);
  }
  return out;
}

}  // namespace

std::string CommandLine::help() const {
  const int width = help_width();
  const std::string& name = program_.name;
  std::string out = base::wrapped_text(
      fmt::format("{} {}: {}", name, program_.version, program_.summary), width, 0);
  out += fmt::format("\nusage: {} VERB ...\n\nVerbs\n", name);
  out += verb_rows(verbs_, {}, width);
  out += "\n" + base::wrapped_text(fmt::format("'{} VERB --help' says more. '--version' prints the "
                                               "version.",
                                               program_.name),
                                   width, 0);
  out += "\nExamples\n";
  for (const std::string& example : program_.examples) example_row(out, example, width);
  return out + "\nExit codes\n" + exit_codes(width);
}

std::string CommandLine::help(const std::string& group) const {
  return fmt::format("usage: {} {} VERB ...\n\nVerbs\n{}", program_.name, group,
                     verb_rows(verbs_, group, help_width()));
}

std::string CommandLine::help(const Verb& verb) const {
  const int width = help_width();
  std::string usage = fmt::format("usage: {} {}", program_.name, verb.name);
  for (const Positional& positional : verb.positionals)
    usage += fmt::format(" {}", shown_name(positional));
  for (const Flag& flag : verb.flags) {
    if (flag.required) usage += fmt::format(" {} {}", flag.name, flag.value);
  }
  std::string out = base::wrapped_text(verb.summary, width, 0) + "\n" +
                    base::wrapped_text(usage + " [flags]", width, 0);
  if (!verb.about.empty()) out += "\n" + paragraph(verb.about, width);
  if (!verb.positionals.empty()) {
    out += "\nArguments\n";
    for (const Positional& positional : verb.positionals) {
      help_row(out, positional.name, positional.help, width);
    }
  }
  out += "\nFlags\n";
  for (const Flag& flag : verb.flags) {
    help_row(out, flag.name + (flag.value.empty() ? "" : " " + flag.value), whole_help(flag),
             width);
  }
  help_row(out, "--help", "this text", width);
  out += "\n" + base::wrapped_text(
                    "Every flag can also be set in the environment: --some-flag is "
                    "$PELTON_SOME_FLAG.",
                    width, 0);
  if (!verb.examples.empty()) {
    out += "\nExamples\n";
    for (const std::string& example : verb.examples) example_row(out, example, width);
  }
  return out;
}

}  // namespace pelton::cli
