// Flags of other programs, as they stand in the command lines that people paste: what has no
// meaning here is taken with a note, what would mislead is refused by its name. So are the
// variables of the verb's other prefix. They are in no help and no configuration file. Used once,
// before the verb's own flags are read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::cli {

struct NativeWords {
  // Without the foreign flags, and with the long names of flags that have one like -tp.
  std::vector<std::string> words;
  std::vector<std::string> notes;  // one line each
};

// A name of one dash and several letters, as -tp.
bool is_short_word(std::string_view name);

// `words` behind the verb's name. Errors: kInvalidArgument, naming the flag.
Result<NativeWords> native_words(const Verb& verb, const std::vector<std::string>& words);

}  // namespace pelton::cli
