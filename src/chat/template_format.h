// A chat format that is a model's own template for prompts, and a dialect for its turns. The
// template's text becomes tokens as a whole; control tokens are recognised in it only where none of
// it is input, so that nothing a user writes can open or close a turn.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/dialect.h"
#include "chat/format.h"
#include "chat/prompt_template.h"

namespace pelton::chat {

// `tokenizer` outlives it. `stops`: the model's own; at least what ends a turn should be among
// them.
std::shared_ptr<const ChatFormat> template_format(const tokenizer::Tokenizer& tokenizer,
                                                  PromptTemplate prompt_template, Dialect dialect);

}  // namespace pelton::chat
