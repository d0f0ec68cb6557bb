#include "cli/completion.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "cli/wording.h"

namespace pelton::cli {
namespace {

enum class Wants { kNothing, kWord, kFile, kFolder, kModel };

Wants wants(std::string_view value) {
  if (value.empty()) return Wants::kNothing;
  if (value == "MODEL") return Wants::kModel;
  if (value == "FILE" || value == "OUT") return Wants::kFile;
  if (value == "FOLDER" || value == "DIR") return Wants::kFolder;
  return Wants::kWord;
}

std::string verb_function(const Verb& verb) {
  std::string name = verb.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// First words, and for each that has verbs below it, those.
std::vector<std::string> first_words(const std::vector<Verb>& verbs) {
  std::vector<std::string> words = {"--help", "--version", "help", "version"};
  for (const Verb& verb : verbs) {
    const std::string first = split_words(verb.name).front();
    if (std::find(words.begin(), words.end(), first) == words.end()) words.push_back(first);
  }
  return words;
}

std::vector<std::string> words_below(const std::vector<Verb>& verbs, const std::string& first) {
  std::vector<std::string> words;
  for (const Verb& verb : verbs) {
    const std::vector<std::string> parts = split_words(verb.name);
    const bool is_below = parts.size() > 1 && parts[0] == first;
    if (is_below && std::find(words.begin(), words.end(), parts[1]) == words.end()) {
      words.push_back(parts[1]);
    }
  }
  return words;
}

// The word is a verb by itself, whatever stands below it.
bool is_verb(const std::vector<Verb>& verbs, const std::string& word) {
  return std::ranges::find(verbs, word, &Verb::name) != verbs.end();
}

// One line of the case that fills COMPREPLY.
std::string bash_reply(Wants what, const std::vector<std::string>& choices) {
  if (!choices.empty()) {
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", fmt::join(choices, " "));
  }
  switch (what) {
    case Wants::kFile:
      return "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\"))";
    case Wants::kFolder:
      return "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\"))";
    case Wants::kModel:
      return "_pelton_models";
    case Wants::kNothing:
    case Wants::kWord:
      break;
  }
  return "COMPREPLY=()";
}

std::string bash_verb(const Verb& verb) {
  std::string out = fmt::format("_pelton_verb_{}() {{\n  case $prev in\n", verb_function(verb));
  std::vector<std::string> all = {"--help"};
  for (const Flag& flag : verb.flags) {
    const std::vector<std::string> names = flag.names();
    all.insert(all.end(), names.begin(), names.end());
    if (flag.kind == Flag::Kind::kSwitch) continue;
    out += fmt::format("    {}) {}; return ;;\n", fmt::join(names, " | "),
                       bash_reply(wants(flag.value), flag.choices));
  }
  out += "  esac\n  if [[ $cur == -* ]]; then\n";
  out += fmt::format("    COMPREPLY=($(compgen -W '{}' -- \"$cur\"))\n    return\n  fi\n",
                     fmt::join(all, " "));
  const bool some = !verb.positionals.empty();
  out += fmt::format("  {}\n}}\n", some ? bash_reply(wants(verb.positionals.front().name),
                                                     verb.positionals.front().choices)
                                        : "COMPREPLY=()");
  return out;
}

// Within '[...]' of an _arguments specification, in single quotes.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(Wants what, const std::vector<std::string>& choices) {
  if (!choices.empty()) return fmt::format("({})", fmt::join(choices, " "));
  switch (what) {
    case Wants::kFile:
      return "_files";
    case Wants::kFolder:
      return "_files -/";
    case Wants::kModel:
      return "_pelton_models";
    case Wants::kNothing:
    case Wants::kWord:
      break;
  }
  return "";
}

std::string zsh_verb(const Verb& verb) {
  std::string out = fmt::format("_pelton_verb_{}() {{\n  _arguments -S \\\n    '--help[this text]'",
                                verb_function(verb));
  for (const Flag& flag : verb.flags) {
    for (const std::string& name : flag.names()) {
      out += fmt::format(" \\\n    '{}{}[{}]", flag.many ? "*" : "", name, zsh_text(flag.help));
      if (flag.kind != Flag::Kind::kSwitch) {
        out += fmt::format(":{}:{}", zsh_text(flag.value),
                           zsh_action(wants(flag.value), flag.choices));
      }
      out += "'";
    }
  }
  for (const Positional& positional : verb.positionals) {
    out += fmt::format(" \\\n    '{}:{}:{}'", positional.many ? "*" : "", zsh_text(positional.name),
                       zsh_action(wants(positional.name), positional.choices));
  }
  return out + "\n}\n";
}

std::string fish_text(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// What may stand there: nothing but these, or files too.
std::string fish_action(Wants what, const std::vector<std::string>& choices) {
  if (!choices.empty())
    return fmt::format(" -x -a {}", fish_text(fmt::to_string(fmt::join(choices, " "))));
  switch (what) {
    case Wants::kFile:
      return " -r -F";
    case Wants::kFolder:
      return " -x -a '(__fish_complete_directories)'";
    case Wants::kModel:
      return " -x -a '(__pelton_models)'";
    case Wants::kWord:
      return " -x";
    case Wants::kNothing:
      break;
  }
  return "";
}

std::string fish_verb(const std::string& program, const Verb& verb) {
  const std::string begin = fmt::format("complete -c {} -n '__pelton_in {}'", program, verb.name);
  std::string out = fmt::format("{} -l help -d 'this text'\n", begin);
  for (const Flag& flag : verb.flags) {
    for (const std::string& name : flag.names()) {
      const bool is_switch = flag.kind == Flag::Kind::kSwitch;
      const bool is_long = name.starts_with("--");
      out += fmt::format(
          "{} {} {}{} -d {}\n", begin, is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1),
          is_switch ? "" : fish_action(wants(flag.value), flag.choices), fish_text(flag.help));
    }
  }
  for (const Positional& positional : verb.positionals) {
    const Wants what = wants(positional.name);
    if (what == Wants::kWord && positional.choices.empty()) continue;
    out += fmt::format("{}{}\n", begin, fish_action(what, positional.choices));
  }
  return out;
}

}  // namespace

std::string bash_completion(const CommandLine::Program& program, const std::vector<Verb>& verbs) {
  std::string out = fmt::format(
      "# bash completion of {0} {1}; `{0} completion bash` prints it.\n"
      "_pelton_models() {{\n"
      "  compopt -o filenames\n"
      "  COMPREPLY=($(compgen -W \"$(\"${{COMP_WORDS[0]}}\" completion models 2>/dev/null)\" -- "
      "\"$cur\") $(compgen -d -- \"$cur\"))\n"
      "}}\n",
      program.name, program.version);
  for (const Verb& verb : verbs) out += bash_verb(verb);
  out +=
      "_pelton() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
      "  # \"--flag=value\" comes in three words.\n"
      "  if [[ $cur == = ]]; then\n    cur=\n"
      "  elif [[ $prev == = ]]; then\n    prev=${COMP_WORDS[COMP_CWORD - 2]}\n  fi\n"
      "  local first=1\n"
      "  [[ ${COMP_WORDS[1]} == help ]] && first=2\n"
      "  if ((COMP_CWORD <= first)); then\n";
  out += fmt::format("    COMPREPLY=($(compgen -W '{}' -- \"$cur\"))\n    return\n  fi\n",
                     fmt::join(first_words(verbs), " "));
  out += "  case ${COMP_WORDS[first]} in\n";
  for (const std::string& first : first_words(verbs)) {
    const std::vector<std::string> below = words_below(verbs, first);
    if (!below.empty()) {
      out += fmt::format(
          "    {0})\n      if ((COMP_CWORD == first + 1)){2}; then\n"
          "        COMPREPLY=($(compgen -W '{1}' -- \"$cur\"))\n"
          "      elif declare -F \"_pelton_verb_{0}_${{COMP_WORDS[first + 1]}}\" >/dev/null; then\n"
          "        \"_pelton_verb_{0}_${{COMP_WORDS[first + 1]}}\"\n{3}      fi\n      ;;\n",
          first, fmt::join(below, " "), is_verb(verbs, first) ? " && [[ $cur != -* ]]" : "",
          is_verb(verbs, first) ? fmt::format("      else\n        _pelton_verb_{}\n", first) : "");
    } else if (!first.starts_with('-') && first != "help" && first != "version") {
      out += fmt::format("    {0}) _pelton_verb_{0} ;;\n", first);
    }
  }
  return out + "  esac\n}\n" + fmt::format("complete -F _pelton {}\n", program.name);
}

std::string zsh_completion(const CommandLine::Program& program, const std::vector<Verb>& verbs) {
  std::string out = fmt::format(
      "#compdef {0}\n# zsh completion of {0} {1}; `{0} completion zsh` prints it.\n"
      "_pelton_models() {{\n"
      "  local -a models\n"
      "  models=(${{(f)\"$(_call_program models {0} completion models 2>/dev/null)\"}})\n"
      "  compadd -a models\n  _files -/\n"
      "}}\n",
      program.name, program.version);
  for (const Verb& verb : verbs) out += zsh_verb(verb);
  out += fmt::format(
      "_pelton() {{\n  if ((CURRENT == 2)); then\n    compadd -- {}\n    return\n  fi\n"
      "  case $words[2] in\n",
      fmt::join(first_words(verbs), " "));
  for (const std::string& first : first_words(verbs)) {
    const std::vector<std::string> below = words_below(verbs, first);
    if (!below.empty()) {
      out += fmt::format(
          "    {0})\n      if ((CURRENT == 3)){2}; then\n        compadd -- {1}\n"
          "      elif (($+functions[_pelton_verb_{0}_$words[3]])); then\n"
          "        local below=$words[3]\n        shift 2 words\n        ((CURRENT -= 2))\n"
          "        _pelton_verb_{0}_$below\n{3}      fi\n      ;;\n",
          first, fmt::join(below, " "), is_verb(verbs, first) ? " && [[ $words[3] != -* ]]" : "",
          is_verb(verbs, first)
              ? fmt::format("      else\n        shift words\n        ((CURRENT--))\n"
                            "        _pelton_verb_{}\n",
                            first)
              : "");
    } else if (!first.starts_with('-') && first != "help" && first != "version") {
      out += fmt::format(
          "    {0})\n      shift words\n      ((CURRENT--))\n      _pelton_verb_{0}\n      ;;\n",
          first);
    }
  }
  return out + "  esac\n}\n_pelton \"$@\"\n";
}

std::string fish_completion(const CommandLine::Program& program, const std::vector<Verb>& verbs) {
  std::string out = fmt::format(
      "# fish completion of {0} {1}; `{0} completion fish` prints it.\n"
      "function __pelton_models\n"
      "  {0} completion models 2>/dev/null\n  __fish_complete_directories (commandline -ct)\n"
      "end\n"
      "function __pelton_in  # are we behind these words?\n"
      "  set -l words (commandline -opc)\n  set -l last (math 1 + (count $argv))\n"
      "  test (count $words) -ge $last; and test \"$words[2..$last]\" = \"$argv\"\n"
      "end\n"
      "function __pelton_at  # are these all the words so far?\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2..]\" = \"$argv\"\n"
      "end\n"
      "complete -c {0} -f\n",
      program.name, program.version);
  for (const std::string& first : first_words(verbs)) {
    out += fmt::format("complete -c {} -n __pelton_at -a {}\n", program.name, fish_text(first));
    for (const std::string& below : words_below(verbs, first)) {
      out += fmt::format("complete -c {} -n '__pelton_at {}' -a {}\n", program.name, first, below);
    }
  }
  for (const Verb& verb : verbs) out += fish_verb(program.name, verb);
  return out;
}

}  // namespace pelton::cli
