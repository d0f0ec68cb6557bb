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

// Whether each axis is a setting of a deployment; of a server that runs (`is_of_url`) its load may
// be varied, too. Errors: kInvalidArgument, with the nearest names that may be varied.
Result<void> check_knobs(const std::vector<Variation>& axes, const std::vector<cli::Flag>& flags,
                         bool is_of_url);

// Where `settings` or `arguments` take keys and values in 8 bits: what a record says that costs
// this model, or that there is none and who makes it; a sentence, else empty.
std::string quality_note(const cli::Arguments& arguments, const Settings& settings);

}  // namespace pelton::apps
