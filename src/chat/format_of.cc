#include "chat/format_of.h"

#include <utility>

#include <fmt/format.h>

#include "chat/chatml_format.h"
#include "chat/harmony_format.h"
#include "chat/template_format.h"

namespace pelton::chat {
namespace {

// What ends a turn in published vocabularies, whatever the configuration says.
constexpr std::string_view kTurnEnds[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<|end|>",       "<|eot|>",
    "<|eom|>",    "<turn|>",    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"};

Error unknown_parser(std::string_view flag, const std::string& name, const std::string& known) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = fmt::format("{} is one of {}; not '{}'", flag, known, name),
          .field = std::string(flag)};
}

// What vLLM ("openai", "openai_gptoss") and SGLang ("gpt-oss") call Harmony's parsers.
constexpr std::string_view kHarmonyNames[] = {"",        "harmony",       "openai",
                                              "gpt-oss", "openai_gptoss", "gpt_oss"};

Error not_of_format(std::string_view flag, const std::string& name, std::string_view format,
                    std::string_view known) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = fmt::format("{} {}: this model's vocabulary is {}'s, whose turns are read as "
                                 "such; leave the flag away or give {}",
                                 flag, name, format, known),
          .field = std::string(flag)};
}

Result<void> check_harmony_flags(const FormatSource& source) {
  const auto is_harmony = [](const std::string& name) {
    return std::ranges::find(kHarmonyNames, name) != std::end(kHarmonyNames);
  };
  if (!is_harmony(source.tool_call_parser)) {
    return not_of_format("--tool-call-parser", source.tool_call_parser, "Harmony",
                         "openai or gpt-oss");
  }
  if (!is_harmony(source.reasoning_parser)) {
    return not_of_format("--reasoning-parser", source.reasoning_parser, "Harmony",
                         "openai_gptoss or gpt-oss");
  }
  if (!source.is_template_given) return {};
  return Error{.code = ErrorCode::kInvalidArgument,
               .message =
                   "--chat-template: this model's vocabulary is Harmony's, whose "
                   "conversations are written without a template; leave the flag away",
               .field = "--chat-template"};
}

Result<void> check_chatml_flags(const FormatSource& source) {
  if (const std::string& name = source.tool_call_parser; !name.empty()) {
    const CallSyntax* const calls = find_call_syntax(name);
    if (calls == nullptr || calls->name != "hermes") {
      return not_of_format("--tool-call-parser", name, "ChatML", "hermes");
    }
  }
  if (const std::string& name = source.reasoning_parser; !name.empty()) {
    const std::optional<ReasoningSyntax> reasoning = find_reasoning_syntax(name);
    if (!reasoning || reasoning->begin != "<think>") {
      return not_of_format("--reasoning-parser", name, "ChatML", "think or qwen3");
    }
  }
  return {};
}

Result<Dialect> dialect_of(const FormatSource& source) {
  const std::string text = source.chat_template->text + source.chat_template->for_tools;
  const TaughtSyntax taught = call_syntax_of(text);
  const CallSyntax* calls = &taught.syntax;
  std::string why_calls = taught.marker.empty() ? "the template shows no way to write them"
                                                : fmt::format("the template has {}", taught.marker);
  if (!source.tool_call_parser.empty()) {
    calls = find_call_syntax(source.tool_call_parser);
    if (calls == nullptr) {
      return unknown_parser("--tool-call-parser", source.tool_call_parser, call_syntax_names());
    }
    why_calls = "--tool-call-parser";
  }
  std::optional<ReasoningSyntax> reasoning = reasoning_syntax_of(text);
  if (!source.reasoning_parser.empty()) {
    reasoning = find_reasoning_syntax(source.reasoning_parser);
    if (!reasoning) {
      return unknown_parser("--reasoning-parser", source.reasoning_parser,
                            "think (qwen3, deepseek_r1), mistral, plain");
    }
  }
  const std::string_view why_reasoning =
      source.reasoning_parser.empty()
          ? (reasoning->marks() ? "the template has it" : "the template marks none")
          : "--reasoning-parser";
  Dialect dialect = make_dialect(*reasoning, *calls, source.tokenizer);
  dialect.why = fmt::format("calls: {} ({}); reasoning: {} ({})", calls->name, why_calls,
                            reasoning->marks() ? reasoning->begin : "none", why_reasoning);
  const auto add_stop = [&](std::optional<TokenId> id) {
    if (id && !dialect.stops_at(*id)) dialect.stops.push_back(*id);
  };
  for (const TokenId id : source.stops) add_stop(id);
  add_stop(source.tokenizer.special_id(source.chat_template->eos_token));
  for (const std::string_view end : kTurnEnds) {
    const std::optional<TokenId> id = source.tokenizer.special_id(end);
    if (id && source.tokenizer.is_special(*id)) add_stop(id);
  }
  return dialect;
}

Result<std::shared_ptr<const ChatFormat>> format_of_template(const FormatSource& source) {
  TRY_ASSIGN(Dialect dialect, dialect_of(source));
  TRY_ASSIGN(PromptTemplate made, PromptTemplate::compile(*source.chat_template));
  return template_format(source.tokenizer, std::move(made), std::move(dialect));
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> format_of(const FormatSource& source) {
  if (auto harmony = harmony_format(source.tokenizer); harmony.ok()) {
    TRY(check_harmony_flags(source));
    return harmony;
  }
  if (source.chat_template) return format_of_template(source);
  if (auto chatml = chatml_format(source.tokenizer); chatml.ok()) {
    TRY(check_chatml_flags(source));
    return chatml;
  }
  for (const auto& [flag, name] : {std::pair("--tool-call-parser", &source.tool_call_parser),
                                   std::pair("--reasoning-parser", &source.reasoning_parser)}) {
    if (name->empty()) continue;
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = fmt::format("{} {}: the model has no chat format whose turns could be "
                                        "read; --chat-template FILE gives one",
                                        flag, *name),
                 .field = flag};
  }
  return Error{.code = ErrorCode::kUnsupported,
               .message =
                   "the model's files have no chat template (chat_template.jinja, or chat_template "
                   "in tokenizer_config.json), and its vocabulary is not one of a format known "
                   "here; --chat-template FILE gives one",
               .field = "--chat-template"};
}

Result<std::shared_ptr<const ChatFormat>> format_of(const tokenizer::Tokenizer& tokenizer) {
  return format_of(FormatSource{.tokenizer = tokenizer});
}

}  // namespace pelton::chat
