// A model's chat template, compiled: a conversation -> the text of a prompt. Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "chat/conversation.h"
#include "chat/template_messages.h"
#include "jinja/template.h"

namespace pelton::chat {

// What a model's files say of their template.
struct TemplateSource {
  std::string from;       // for messages: "/models/x/chat_template.jinja"
  std::string text;       // Jinja
  std::string for_tools;  // another one, where functions are offered; empty: the same
  std::string bos_token;
  std::string eos_token;
};

class PromptTemplate {
 public:
  static constexpr size_t kBytesMax = jinja::Template::kSourceBytesMax;

  // Error kBadCheckpoint: the file, the line, what is wrong.
  static Result<PromptTemplate> compile(TemplateSource source);

  // As transformers' apply_chat_template: `messages`, `tools`, `documents`,
  // `add_generation_prompt`, `bos_token`, `eos_token` and the conversation's template arguments.
  // Error kInvalidArgument, with the template's own words if it raised an exception.
  Result<jinja::Text> render(const Conversation& conversation) const;

  const TemplateSource& source() const { return source_; }
  // By kind ("variables", "filters", "tests", "functions", "methods", "statements") the names that
  // it makes use of, of either text; in the order of the alphabet.
  Json features() const;
  // Whether an expression of either text reads a variable of this name.
  bool names(std::string_view variable) const { return names_.contains(variable); }

 private:
  PromptTemplate(TemplateSource source, jinja::Template plain, jinja::Template for_tools);

  TemplateSource source_;
  jinja::Template plain_;
  jinja::Template for_tools_;
  std::set<std::string, std::less<>> names_;
  MessageShape shape_;  // that it takes messages in
};

}  // namespace pelton::chat
