// What `pelton tune` may vary, and what it has to say of its choice: settings of a deployment, not
// what is asked of it, drawn or written; and of a format that computes with fewer bits, what is
// known of its cost in quality. Values, pure functions but for the records that are read.
#pragma once

#include <string>
#include <vector>

#include "apps/variations.h"
#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

// The load's own settings: the same for all combinations, unless a server that runs is measured.
bool is_load_knob(const std::string& key);

// The axes by their flags' names (kv_cache_dtype is kv-cache-dtype), each a setting of a
// deployment; of a server that runs (`is_of_url`) its load may be varied, too. Errors:
// kInvalidArgument, with the nearest names that may be varied.
Result<std::vector<Variation>> named_knobs(std::vector<Variation> axes,
                                           const std::vector<cli::Flag>& flags, bool is_of_url);

// Whether what is varied, and what is given for it, can have an effect beside the rest: the
// circumstances of flags (cli::Flag::only_with, not_with), of which an axis may be one. Errors:
// kInvalidArgument.
Result<void> check_effects(const std::vector<Variation>& axes, const std::vector<cli::Flag>& flags,
                           const cli::Arguments& arguments);

// What the command line, variables and files say of the deployment, as settings; without those of
// `varied`.
Settings given_settings(const cli::Arguments& arguments, const std::vector<cli::Flag>& flags,
                        const Settings& varied);

// That accepted shares of draft tokens were assumed by nobody but this program, where any of
// `settings` or `arguments` speculates; else empty.
std::string speculation_note(const cli::Arguments& arguments, const Settings& settings);

// Where `settings` or `arguments` take keys and values in 8 bits: what a record says that costs
// this model, or that there is none and who makes it; a sentence, else empty.
std::string quality_note(const cli::Arguments& arguments, const Settings& settings);

}  // namespace pelton::apps
