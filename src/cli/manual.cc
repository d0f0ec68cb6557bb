#include "cli/manual.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/exit_code.h"
#include "cli/wording.h"

namespace pelton::cli {
namespace {

// Text as roff takes it: no line begins with a control character, a dash is one to copy.
std::string roff(std::string_view text) {
  std::string out;
  bool at_line_begin = true;
  for (const char c : text) {
    if (at_line_begin && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    at_line_begin = c == '\n';
  }
  return out;
}

std::string bold(std::string_view text) {
  return fmt::format("\\fB{}\\fR", roff(text));
}
std::string slanted(std::string_view text) {
  return fmt::format("\\fI{}\\fR", roff(text));
}

std::string capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

std::string head(const CommandLine::Program& program, const std::string& name,
                 const std::string& summary) {
  std::string brief = summary;
  if (brief.ends_with('.')) brief.pop_back();
  return fmt::format(".TH {} 1 \"\" \"{} {}\"\n.SH NAME\n{} \\- {}\n", roff(capitals(name)),
                     program.name, program.version, roff(name), roff(brief));
}

std::string examples(const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string out = ".SH EXAMPLES\n.nf\n";
  for (const std::string& line : lines) out += roff(line) + "\n";
  return out + ".fi\n";
}

std::string positional_words(const Verb& verb) {
  std::string out;
  for (const Positional& positional : verb.positionals) {
    const std::string name = slanted(positional.name) + (positional.many ? " ..." : "");
    out += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  return out;
}

std::string flag_entry(const Flag& flag) {
  std::string out = fmt::format(".TP\n{}", bold(flag.name));
  if (!flag.value.empty()) out += " " + slanted(flag.value);
  return out + "\n" + roff(whole_help(flag)) + "\n";
}

}  // namespace

std::string manual_name(const CommandLine::Program& program, const Verb& verb) {
  std::string name = program.name + "-" + verb.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string manual(const CommandLine::Program& program, const std::vector<Verb>& verbs) {
  std::string out = head(program, program.name, program.summary);
  out += fmt::format(".SH SYNOPSIS\n{} {} ...\n.SH VERBS\n", bold(program.name), slanted("VERB"));
  for (const Verb& verb : verbs) {
    out += fmt::format(".TP\n{}{}\n{} See {}(1).\n", bold(verb.name), positional_words(verb),
                       roff(verb.summary), bold(manual_name(program, verb)));
  }
  out += ".SH EXIT STATUS\n";
  for (const ExitMeaning& exit : kExitMeanings) {
    out += fmt::format(".TP\n{}\n{}\n", static_cast<int>(exit.code), exit.meaning);
  }
  return out + examples(program.examples);
}

std::string manual(const CommandLine::Program& program, const Verb& verb) {
  std::string out = head(program, manual_name(program, verb), verb.summary);
  out += fmt::format(".SH SYNOPSIS\n{}{} [{}]\n", bold(program.name + " " + verb.name),
                     positional_words(verb), slanted("flags"));
  out += ".SH DESCRIPTION\n" + roff(verb.summary) + "\n";
  if (!verb.about.empty()) out += ".PP\n" + roff(verb.about) + "\n";
  for (const Positional& positional : verb.positionals) {
    out += fmt::format(".TP\n{}\n{}\n", slanted(positional.name), roff(positional.help));
  }
  out += ".SH OPTIONS\n";
  for (const Flag& flag : verb.flags) out += flag_entry(flag);
  out += ".SH ENVIRONMENT\nEvery flag can also be set in the environment: " + bold("--some-flag") +
         " is " + bold("PELTON_SOME_FLAG") + ".\n";
  if (verb.configurable) {
    out += ".SH FILES\nA file given with " + bold("--config") +
           " is TOML whose names are the flags' without their dashes. Flags go before the "
           "environment, and that before the file.\n";
  }
  out += examples(verb.examples);
  return out + fmt::format(".SH SEE ALSO\n{}(1)\n", bold(program.name));
}

}  // namespace pelton::cli
