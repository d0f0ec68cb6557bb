// A model that answers by the book: for tests of real clients and for trying the server without
// weights (`pelton serve MODEL --executor modelled:FILE`). The file is JSON:
//
//   {"step_ms": 0, "context": 4096, "slots": 8, "blocks": 600, "host_blocks": 300, "checks": false,
//    "rules": [{"when": "weather", "then": "Sunny.<|return|>"},
//              {"when": "count", "then": ["As asked: ", {"text": "one more ", "times": 500}]}]}
//
// Of the rules whose "when" stands in the prompt, the one whose words stand last answers; "" always
// stands at its beginning. "then" is what the model samples, with its chat format's control tokens.
// An answer that does not end in <|return|> or <|call|> gets a <|return|>.
//
// A piece {"counted": 1} makes answers that say whose they are and how far they came: with "when"
// "count for " and a prompt "… count for 4711 300 20 …" it writes "4711a0 4711a1 … 4711a299 ", and
// {"counted": 2} writes "4711b0 … 4711b19 ". Where what was computed before is not what was
// written, a "!" is.
//
// A piece {"checked": 1} makes answers of which a client can check that each token is the right
// one: with "when" "check " and a prompt "… check 4711 300 …" it writes 300 letters, of which
// letter i is 'a' + random_bits(random_bits(seed, 4711), i) % 26 (base/random.h), seed being the
// request's, plus the answer's number where there are several. A "!" as above.
//
// "step_ms" is what a step takes; to it come "us_per_prefill_token" for each token of a prompt,
// "us_per_row" for each sequence and "us_per_context_token" for each token that a sequence has.
// "clock_scale": all of that times this.
//
// "abort_on": a prompt with these words ends the process, as a request that kills its server would.
//
// "blocks", "host_blocks": room for keys and values, and to swap them to, of either group; without,
// every slot may be full at once. "checks": all that a plan promises is CHECKed at every step.
// "fail_every": each so manyth step fails.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "engine/modelled_executor.h"
#include "tokenizer/tokenizer.h"

namespace pelton::server {

class FaultInjection;

// Options of the executor that follows this script. `tokenizer`, `clock` and `faults` (null: there
// are none to be asked for) must outlive it.
// Errors: kBadConfig, naming the file and the field.
Result<engine::ModelledExecutor::Options> scripted_executor(std::string_view json,
                                                            const std::string& file_name,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            const base::Clock& clock,
                                                            const FaultInjection* faults = nullptr);

}  // namespace pelton::server
