// The chat template that belongs to a checkpoint, and the names of its first and last tokens.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "chat/prompt_template.h"
#include "checkpoint/checkpoint.h"

namespace pelton::node {

// The first there is of: `file` (--chat-template; empty: none given), chat_template.jinja beside
// the tokenizer, "chat_template" in tokenizer_config.json (a text, or a list of named ones:
// "default", "tool_use"), a GGUF file's tokenizer.chat_template. Nothing if there is none, which is
// no error here; a file that cannot be read is one.
Result<std::optional<chat::TemplateSource>> read_model_template(
    const checkpoint::Checkpoint& checkpoint, const std::string& file);

struct ChatDescription {
  // Which chat format the checkpoint has without flags, and why, in a sentence; or why it has none.
  std::string choice;
  std::string dialect;             // how its turns are read: "hermes"; empty: no format
  std::optional<Json> features{};  // of the template that prompts are written with, if any
                                   // (PromptTemplate::features)
};
ChatDescription describe_chat(const checkpoint::Checkpoint& checkpoint);

}  // namespace pelton::node
