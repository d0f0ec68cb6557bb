// The command line as data: a program has verbs, a verb has positionals and flags, and everything
// else (parsing, checking, --help, suggestions, environment variables) follows from their
// descriptions. Used once, on the main thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::cli {

// That a flag was given, or that its value (the default too) is one of these; of a number however
// it is written.
struct Circumstance {
  std::string flag;
  std::vector<std::string> values = {};  // empty: given at all
};

struct Flag {
  enum class Kind {
    kSwitch,   // there or not
    kText,     // any text
    kInteger,  // within [least, most]
    kSize,     // as kInteger, with a unit: 32K, 4GiB
    kNumber,   // finite, within [least, most]
  };

  std::string name;   // "--max-tokens"; $PELTON_MAX_TOKENS stands in where it is not given
  std::string value;  // what help calls the value: "N"
  std::string help;
  Kind kind = Kind::kText;
  std::string default_text;  // shown and used; empty: none. kSwitch: "true", else it is off
  double least = 0;
  double most = 9e15;                // every whole number up to here is a double
  double bare_unit = 1;              // kSize: what a number without a unit counts
  std::vector<std::string> choices;  // where there are any, one of these
  bool required = false;
  std::vector<std::string> aliases;         // other names for the same, as other programs call it
  std::vector<std::string> negations = {};  // kSwitch: names that turn it off, as --no-log-json
  bool many = false;  // kText: may be given again, and with several words: --header A=1 B=2
  std::vector<std::string> variables = {};  // of the environment, besides those the names make
  // What other programs call a choice, and which of ours that is: in words, and in variables of the
  // verb's other prefix.
  std::vector<std::pair<std::string, std::string>> other_choices = {};
  bool secret = false;       // never shown again
  bool may_be_empty = true;  // kText: an empty value is one; else an error, exit code 3
  bool in_config = true;     // may stand in a configuration file
  // Where the flag has an effect: with any of the first, with none of the second. A word or a
  // file's value that has none is refused, a variable's is not taken (argument_precedence.cc).
  // Flags that the verb lacks never hold.
  std::vector<Circumstance> only_with = {};
  std::vector<Circumstance> not_with = {};
  bool ignored = false;  // taken so that another program's scripts run; a note says so

  // Its name and aliases, then the negations.
  std::vector<std::string> names() const;
};

// A flag of another program's that is not one of ours, as it stands in command lines that people
// paste (foreign_flags.h).
struct ForeignFlag {
  std::vector<std::string> names;
  bool takes_value = false;
  bool takes_list = false;     // takes_value, and all words behind it up to the next flag
  bool is_positional = false;  // its value is one of the verb's first positional: --model NAME
  // Values with which nothing would be other than it is; "*": any, or the bare switch. They are
  // taken with a note; all others are refused.
  std::vector<std::string> taken;
  std::string why;  // of the note or the refusal
};

struct Positional {
  std::string name;  // "MODEL"
  std::string help;
  bool required = true;                     // only the last one may be left out
  bool many = false;                        // the last one may be several words
  std::vector<std::string> variables = {};  // of the environment, where it is not given
  std::vector<std::string> choices = {};    // where there are any, one of these
};

// What the user gave for one verb, checked against its description. Asking for a flag that the verb
// does not describe is a bug and CHECKed.
class Arguments {
 public:
  // Who said a value: each goes before those above it.
  enum class Source { kNobody, kDefault, kFile, kEnvironment, kWord };

  bool knows(std::string_view name) const { return values_.contains(name); }  // the verb has it
  bool has(std::string_view name) const;                 // given, by environment, or by default
  const std::string& text(std::string_view name) const;  // "" where it is absent
  int64_t integer(std::string_view name) const;          // kInteger, kSize; CHECKs has()
  double number(std::string_view name) const;            // kNumber; CHECKs has()
  // Who said so: "--port", "$PELTON_PORT", "pelton.toml:3", "default"; empty: nobody.
  const std::string& origin(std::string_view name) const;
  Source source(std::string_view name) const;
  // The same words with today's variables and files: what has been configured meanwhile.
  Result<Arguments> reread() const;
  // Names whose values those of `before`, of the same verb, were not.
  std::vector<std::string> changed_since(const Arguments& before) const;
  // All words of a flag or positional that may have many.
  const std::vector<std::string>& list(std::string_view name) const;
  // Flags that stand on the command line and that nobody has asked for yet.
  std::vector<std::string> unread() const;

 private:
  friend class CommandLine;
  friend class ArgumentReader;
  struct Value {
    bool given = false;
    std::string text;
    std::vector<std::string> list;
    int64_t integer = 0;
    double number = 0;
    Source source = Source::kNobody;
    std::string origin;
    // Shared by copies of the arguments; null: nobody needs to ask (help, ignored).
    std::shared_ptr<std::atomic<bool>> asked;
  };
  const Value& at(std::string_view name) const;
  // An error that names a flag or positional, with where its value came from.
  Error blamed(Error error) const;

  std::map<std::string, Value, std::less<>> values_;
  std::function<Result<Arguments>()> reread_;
};

// `arguments` with other values for some of their verb's `flags`, by any of their names
// (flag_names.h): what is said while the verb runs. Each is checked as a word's would be, for
// itself. Errors: kInvalidArgument, with the name as it is given.
Result<Arguments> with_values(const std::vector<Flag>& flags, const Arguments& arguments,
                              const std::vector<std::pair<std::string, std::string>>& values);

struct Verb {
  std::string name;     // "serve"; "bench latency" is a verb below a verb
  std::string summary;  // one line
  std::string about;    // a paragraph for its own --help; may be empty
  std::vector<Positional> positionals;
  std::vector<Flag> flags;
  // Groups of names, of flags and positionals, of which one at most is in effect: the one whose
  // source goes before the others'. Two of one source are refused.
  std::vector<std::vector<std::string>> exclusive = {};
  std::vector<std::string> examples;  // whole command lines
  std::function<Result<void>(const Arguments&)> run;
  // "OPTION_": $OPTION_SOME_FLAG stands in for --some-flag too, after $PELTON_SOME_FLAG.
  // Its words may be spelled as others do: True, INFO, a flag's other_choices; "auto", where that
  // is no choice of the flag's, leaves it to us.
  std::string other_prefix;
  std::vector<ForeignFlag> foreign;
  // Takes --config FILE, whose names are the flags' and the positionals', and --print-config.
  bool configurable = false;
};

class CommandLine {
 public:
  struct Program {
    std::string name;
    std::string version;
    std::string summary;
    std::vector<std::string> examples;
    // Variables beside those of flags that somebody reads: "PELTON_CACHE"; "PELTON_TEST_*" are all
    // that begin so.
    std::vector<std::string> variables = {};
  };

  CommandLine(Program program, std::vector<Verb> verbs);

  // Parses, runs the verb, prints an error on stderr, and returns the process's exit code.
  int run(int argc, const char* const* argv) const;

  // As wide as $COLUMNS or the terminal of stdout, at most 100 columns.
  std::string help() const;
  std::string help(const Verb& verb) const;
  std::string help(const std::string& group) const;  // "bench": the verbs below it

  // What `words` (without the program's name) ask for: a verb with its arguments, or a text to
  // print (help, version). Errors: kInvalidArgument, with a suggestion where one is near.
  struct Request {
    const Verb* verb = nullptr;
    Arguments arguments;
    std::vector<std::string> notes;  // of foreign flags that were taken
    std::string text;                // to print, if verb is null
  };
  Result<Request> parse(const std::vector<std::string>& words) const;

  const Program& program() const { return program_; }
  const std::vector<Verb>& verbs() const { return verbs_; }

 private:
  struct Found {
    const Verb* verb = nullptr;
    size_t words = 0;  // of its name, and of "help" before it
  };
  Result<Found> find_verb(const std::vector<std::string>& words) const;
  bool is_group(const std::string& word) const;

  const Program program_;
  const std::vector<Verb> verbs_;
};

// "--max-tokens" -> "max-tokens", "MODEL" -> "model": as a configuration file calls it.
std::string config_name(std::string_view name);

// The candidate nearest to a mistyped word, if it is near enough to be meant.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

// "--max-tokens" -> "PELTON_MAX_TOKENS".
std::string environment_name(std::string_view flag);

}  // namespace pelton::cli
