// What a tokenizer.json's post-processor puts before and behind a text that is a prompt by itself:
// a token that begins it, [CLS] and [SEP].
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// TemplateProcessing (its `single` form), BertProcessing, RobertaProcessing, ByteLevel (which puts
// nothing anywhere), and these in a Sequence. `value` null: none. An example, Llama 3's:
//
//   {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id":
//   "A"}}],
//    "special_tokens": {"<s>": {"ids": [1]}}}     ->  begin {1}, end {}
//
// Errors: kBadCheckpoint naming file and field; kUnsupported for other kinds.
Result<PromptFrame> read_post_processor(const Json* value, const std::string& name);

}  // namespace pelton::tokenizer
