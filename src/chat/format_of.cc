#include "chat/format_of.h"

#include "chat/chatml_format.h"
#include "chat/harmony_format.h"

namespace pelton::chat {

Result<std::shared_ptr<const ChatFormat>> format_of(const tokenizer::Tokenizer& tokenizer) {
  if (auto harmony = harmony_format(tokenizer); harmony.ok()) return harmony;
  if (auto chatml = chatml_format(tokenizer); chatml.ok()) return chatml;
  return Error{.code = ErrorCode::kUnsupported,
               .message =
                   "the tokenizer has the control tokens of no chat format known here: "
                   "neither Harmony's (<|start|>, <|message|>) nor ChatML's (<|im_start|>)",
               .field = "tokenizer"};
}

}  // namespace pelton::chat
