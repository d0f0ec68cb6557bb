// `--executor modelled:FILE`: answers from a script instead of a model, through the real tokenizer,
// scheduler and server; for client tests and for trying tools without weights. FILE is a JSON array
// of
//
//   {"match": "weather", "reply": "<|channel|>final<|message|>Sunny.<|return|>"}
//
// The entry whose `match` stands last in the prompt's text answers (of equals, the later entry);
// control tokens in `reply` are control tokens. After its end the reply's last token repeats.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/modelled_executor.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

// `tokenizer` outlives the function. Errors: kNotFound, kBadConfig (names file and entry).
Result<engine::ModelledExecutor::TokenFunction> read_scripted_replies(
    const std::string& file, const tokenizer::Tokenizer& tokenizer);

}  // namespace pelton::node
