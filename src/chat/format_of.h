// Which chat format a model has: its vocabulary and its template say, or its user.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "chat/format.h"
#include "chat/prompt_template.h"

namespace pelton::chat {

struct FormatSource {
  const tokenizer::Tokenizer& tokenizer;  // outlives the format
  std::optional<TemplateSource> chat_template = std::nullopt;
  std::span<const TokenId> stops = {};  // the configuration's
  // A user's, in place of the model's own.
  bool is_template_given = false;
  // Names of dialects; empty: what the template teaches.
  std::string reasoning_parser = {};
  std::string tool_call_parser = {};
};

// Harmony for a vocabulary that has its control tokens; else the template; else ChatML for such a
// vocabulary. Errors: kUnsupported if there is nothing of these, naming --chat-template: such a
// model goes on with text, and has no conversations; kBadCheckpoint for a template that is none;
// kInvalidArgument for a parser's name that is not of the format, and for a user's template where
// the vocabulary's own format is used.
Result<std::shared_ptr<const ChatFormat>> format_of(const FormatSource& source);
Result<std::shared_ptr<const ChatFormat>> format_of(const tokenizer::Tokenizer& tokenizer);

}  // namespace pelton::chat
