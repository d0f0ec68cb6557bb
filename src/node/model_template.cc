#include "node/model_template.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/format_of.h"
#include "node/model_tokenizer.h"
#include "node/tokenizer_config.h"

namespace pelton::node {
namespace {

bool exists(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

// "bos_token": "<s>", or an object with its "content".
std::string token_text(const Json& config, std::string_view key) {
  const Json* token = config.find(key);
  if (token == nullptr) return {};
  if (token->is_string()) return token->as_string();
  return token->string("content").value_or("");
}

// A template's text, or several by name.
void take_templates(const Json& value, chat::TemplateSource& source) {
  if (value.is_string()) {
    source.text = value.as_string();
    return;
  }
  if (!value.is_array()) return;
  for (const Json& named : value.as_array()) {
    const std::string name = named.string("name").value_or("");
    const std::string text = named.string("template").value_or("");
    if (name == "default" || (source.text.empty() && name != "tool_use")) source.text = text;
    if (name == "tool_use") source.for_tools = text;
  }
  if (source.text.empty()) source.text = std::exchange(source.for_tools, {});
}

Result<void> read_folder(const std::string& folder, chat::TemplateSource& source) {
  TRY_ASSIGN(const std::optional<Json> config, read_tokenizer_config(folder));
  if (config) {
    source.bos_token = token_text(*config, "bos_token");
    source.eos_token = token_text(*config, "eos_token");
    if (const Json* value = config->find("chat_template")) {
      take_templates(*value, source);
      source.from = folder + "/tokenizer_config.json";
    }
  }
  const std::string file = folder + "/chat_template.jinja";
  if (!exists(file)) return {};
  TRY_ASSIGN(source.text, base::read_file(file, chat::PromptTemplate::kBytesMax));
  source.for_tools.clear();
  source.from = file;
  return {};
}

Result<void> read_gguf(const checkpoint::GgufMetadata& gguf, chat::TemplateSource& source) {
  TRY_ASSIGN(const auto text, gguf.text("tokenizer.chat_template"));
  TRY_ASSIGN(const std::vector<std::string_view> tokens, gguf.texts("tokenizer.ggml.tokens"));
  const auto token = [&](std::string_view key) -> Result<std::string> {
    TRY_ASSIGN(const std::optional<int64_t> id, gguf.integer(key));
    const bool is_one = id && *id >= 0 && static_cast<size_t>(*id) < tokens.size();
    return is_one ? std::string(tokens[static_cast<size_t>(*id)]) : std::string();
  };
  TRY_ASSIGN(source.bos_token, token("tokenizer.ggml.bos_token_id"));
  TRY_ASSIGN(source.eos_token, token("tokenizer.ggml.eos_token_id"));
  if (text) source.text = *text;
  source.from = gguf.path();
  return {};
}

}  // namespace

Result<std::optional<chat::TemplateSource>> read_model_template(
    const checkpoint::Checkpoint& checkpoint, const std::string& file) {
  chat::TemplateSource source;
  if (const checkpoint::GgufMetadata* gguf = checkpoint.gguf()) {
    TRY(read_gguf(*gguf, source));
  } else {
    for (const std::string& folder : checkpoint.text_folders()) {
      if (source.text.empty()) TRY(read_folder(folder, source));
    }
  }
  if (!file.empty()) {
    Result<std::string> text = base::read_file(file, chat::PromptTemplate::kBytesMax);
    if (!text.ok()) {
      return Error{text.error().code, "--chat-template " + text.error().message, "chat-template"};
    }
    source.text = *std::move(text);
    source.for_tools.clear();
    source.from = file;
    if (source.text.empty()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("--chat-template {} is empty", file),
                   "chat-template"};
    }
  }
  if (source.text.empty()) return std::optional<chat::TemplateSource>();
  return std::optional(std::move(source));
}

ChatDescription describe_chat(const checkpoint::Checkpoint& checkpoint) {
  const auto none = [](const std::string& why) {
    return ChatDescription{.choice = "none: " + why};
  };
  const auto tokenizer = read_model_tokenizer(checkpoint);
  if (!tokenizer.ok()) return none(tokenizer.error().message);
  if (*tokenizer == nullptr) return none("the model's files have no tokenizer");
  auto chat_template = read_model_template(checkpoint, "");
  if (!chat_template.ok()) return none(chat_template.error().message);
  const auto format = chat::format_of({.tokenizer = **tokenizer,
                                       .chat_template = *chat_template,
                                       .stops = checkpoint.config().eos_tokens});
  if (!format.ok()) return none(format.error().message);
  ChatDescription found{.choice = (*format)->choice(), .dialect = std::string((*format)->name())};
  if (!(*format)->runs_template()) return found;
  const auto compiled = chat::PromptTemplate::compile(**std::move(chat_template));
  if (compiled.ok()) found.features = compiled->features();
  return found;
}

}  // namespace pelton::node
