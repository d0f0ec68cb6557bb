// A model that answers by the book: for tests of real clients and for trying the server without
// weights (`pelton serve MODEL --executor modelled:FILE`). The file is JSON:
//
//   {"step_ms": 0, "context": 4096, "seats": 8,
//    "rules": [{"when": "weather", "then": "<|channel|>final<|message|>Sunny.<|return|>"},
//              {"when": "count", "then": ["<|channel|>final<|message|>",
//                                         {"text": "one more ", "times": 500}]}]}
//
// Of the rules whose "when" stands in the prompt, the one whose words stand last answers; "" always
// stands at its beginning. Control tokens in "then" are meant as such. An answer that does not end
// in
// <|return|> or <|call|> gets a <|return|>.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "chat/harmony_tokens.h"
#include "engine/modelled_executor.h"
#include "tokenizer/tokenizer.h"

namespace pelton::server {

// Options of the executor that follows this script. `tokenizer` and `clock` must outlive it.
// Errors: kBadConfig, naming the file and the field.
Result<engine::ModelledExecutor::Options> scripted_executor(std::string_view json,
                                                            const std::string& file_name,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            const base::Clock& clock);

}  // namespace pelton::server
