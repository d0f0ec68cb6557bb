// Words of `pelton serve` for replicas as they were simulated. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

// What was asked of `arguments` (of a verb that has simulate's flags) and serve knows by the same
// name, without the model; all of it written, so that no variable or file says otherwise. `--seed`
// and `--replicas` mean other things there. `sequences_max`: --max-num-seqs.
std::vector<std::string> serve_words(const cli::Arguments& arguments, int sequences_max);

}  // namespace pelton::apps
