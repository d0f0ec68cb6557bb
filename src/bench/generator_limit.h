// Whether the generator, not the server, was the limit of a run. A pure function of what it saw of
// itself.
#pragma once

#include <string>

#include "bench/thread_watch.h"
#include "report/serve_result.h"

namespace pelton::bench {

// A sentence for the user; empty: it was not. `median_answer_ms` is of the requests answered:
// lateness that is nothing beside it misleads nobody.
std::string generator_limit(const report::GeneratorWatch& watch,
                            const ThreadWatch::Busiest& busiest, double median_answer_ms);

}  // namespace pelton::bench
