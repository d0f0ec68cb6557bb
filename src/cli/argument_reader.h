// One verb's arguments out of words, variables and a configuration file, in that order. Internal to
// this room; used once, then thrown away.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "cli/config_file.h"
#include "cli/flag_names.h"

namespace pelton::cli {

inline constexpr std::string_view kConfigFlag = "--config";
inline constexpr std::string_view kPrintConfigFlag = "--print-config";

class ArgumentReader {
 public:
  // Both outlive it. `program`: its name, for messages.
  ArgumentReader(const std::string& program, const Verb& verb) : program_(program), verb_(verb) {}

  struct Outcome {
    bool help = false;
    bool print_config = false;       // then nothing is said to be missing
    std::vector<std::string> notes;  // of foreign flags
    Arguments arguments;             // unless help
  };
  // `words` behind the verb's name.
  Result<Outcome> read(const std::vector<std::string>& words);
  // with_values().
  Result<void> take_values(const std::vector<std::pair<std::string, std::string>>& values,
                           Arguments& arguments) const;

 private:
  using Source = Arguments::Source;

  // What somebody said for a flag or positional.
  struct Said {
    std::string text;
    std::vector<std::string> list;    // of one that may have many
    Source source = Source::kNobody;  // kNobody: the rest is empty
    std::string origin;
  };

  struct Option;  // a flag as CLI11 found it

  Result<void> split(const std::vector<std::string>& words);
  static Said default_of(const Flag& flag);
  static Result<Said> said_in_words(const Flag& flag, Option& option);
  Result<void> read_config_file();
  Result<void> check_config_names() const;
  Result<Said> said_of(const Positional& positional, size_t index) const;
  Result<Said> said_of(const Flag& flag, size_t index) const;
  Result<Said> in_config(const Flag& flag) const;
  Result<void> take(const Flag& flag, Said said, Arguments& arguments) const;
  Result<void> take_positionals(bool all_needed, Arguments& arguments) const;
  Result<void> take_value(const NamedFlag& meant, const std::string& text,
                          Arguments& arguments) const;
  Error missing(const std::string& name) const;

  // argument_precedence.cc: which of the values that were said are in effect.
  Result<void> settle(Arguments& arguments) const;
  Result<void> settle_groups(Arguments& arguments) const;
  Result<void> yield_to(Source stronger, Arguments& arguments) const;
  Result<bool> drop_ineffective(Arguments& arguments) const;
  Result<void> check_words(const Arguments& arguments) const;
  Result<void> drop(const std::string& name, Arguments& arguments) const;
  const Circumstance* against(const Flag& flag, const Arguments& arguments) const;
  bool lacks_its_circumstance(const Flag& flag, const Arguments& arguments) const;
  bool holds(const Circumstance& circumstance, const Arguments& arguments) const;

  const std::string& program_;
  const Verb& verb_;
  bool help_ = false;
  std::vector<Said> positionals_;  // of the words
  std::vector<Said> flags_;        // of the words
  ConfigFile config_;
};

}  // namespace pelton::cli
