#include "api/documented_objects.h"

#include <algorithm>

namespace pelton::api {
namespace {

using Field = DocumentedField;
using Effect = DocumentedField::Effect;

// ---- of every endpoint

constexpr Field kStreamOptionsOthers[] = {{"include_obfuscation", Effect::kNone, "", "boolean"}};
constexpr ConditionalMember kStreamOptionsConditions[] = {{"continuous_usage_stats", "true"}};
constexpr DocumentedObject kStreamOptions{
    "stream_options",        "include_usage continuous_usage_stats",
    kStreamOptionsOthers,    {},
    "include_usage",         "false",
    kStreamOptionsConditions};
constexpr DocumentedObject kRepetitionDetection{
    "repetition_detection", "max_pattern_size min_pattern_size min_count", {}, {}};
// Of chats and messages; "clear_thinking" is GLM's, which keeps what was thought in earlier turns.
constexpr Field kThinkingOthers[] = {{"clear_thinking", Effect::kStyle, "true", "boolean"}};
constexpr DocumentedObject kThinking{"thinking", "type budget_tokens display", kThinkingOthers, {}};

constexpr DocumentedObject kTextObjects[] = {kStreamOptions, kRepetitionDetection};

// ---- /v1/chat/completions

// What a part that is no text holds: the part as a whole is refused or replaced.
constexpr Field kPartOthers[] = {
    {"annotations", Effect::kNone, "", "array object"},
    {"audio_url", Effect::kNone, "", "object string"},
    {"cache_control", Effect::kNone, "", "object"},
    {"citations", Effect::kNone, "", "array object"},
    {"detail", Effect::kNone, "", "string"},
    {"file", Effect::kNone, "", "object string"},
    {"file_data", Effect::kNone, "", "string"},
    {"file_id", Effect::kNone, "", "string"},
    {"file_url", Effect::kNone, "", "string object"},
    {"filename", Effect::kNone, "", "string"},
    {"id", Effect::kNone, "", "string integer"},
    {"image_url", Effect::kNone, "", "object string"},
    {"input_audio", Effect::kNone, "", "object string"},
    {"logprobs", Effect::kNone, "", "array object"},
    {"prompt_cache_breakpoint", Effect::kNone, "", "boolean object string"},
    {"uuid", Effect::kNone, "", "string"},
    {"video_url", Effect::kNone, "", "object string"},
};

constexpr Field kChatMessageOthers[] = {
    {"annotations", Effect::kNone, "", "array object"},
    {"audio"},
    {"cache_control", Effect::kNone, "", "object"},
    {"id", Effect::kNone, "", "string integer"},
    {"images"},
    {"partial"},  // Qwen's and Kimi's "prefix"
    {"prefix"},   // DeepSeek's and Mistral's: the answer goes on from this message
    {"provider_specific_fields", Effect::kNone, "", "object"},
    {"reasoning_details", Effect::kStyle, "", "array object string"},
    {"thinking_blocks", Effect::kStyle, "", "array"},
    {"tool_name", Effect::kNone, "", "string"},  // beside tool_call_id, which says it
    {"tools"},
    {"weight", Effect::kStyle, "", "number"},  // of fine-tuning
};

constexpr ConditionalMember kChatMessageConditions[] = {
    {"name", "user tool function"},  // of a tool's result: beside tool_call_id, which says it
    {"tool_calls", "assistant"},        {"tool_call_id", "tool function"},
    {"function_call", "assistant"},     {"reasoning", "assistant"},
    {"reasoning_content", "assistant"}, {"thinking", "assistant"},
    {"refusal", "assistant"},
};

constexpr Field kCallOthers[] = {
    {"custom"},
    {"extra_content", Effect::kNone, "", "object string"},
    {"index", Effect::kNone, "", "integer"},
};
constexpr Field kCalledFunctionOthers[] = {
    {"parsed_arguments", Effect::kNone, "", "object array string number boolean"},
    {"thought_signature", Effect::kNone, "", "string"},
};

// The model sees all tools, and may call each: examples and deferred loading are hints that
// an answer stands without.
constexpr Field kToolOthers[] = {
    {"allowed_callers", Effect::kStyle, "direct", "array"},
    {"cache_control", Effect::kNone, "", "object"},
    {"defer_loading", Effect::kStyle, "", "boolean"},
    {"eager_input_streaming", Effect::kNone, "", "boolean"},
    {"input_examples", Effect::kStyle, "", "array"},
    {"output_schema", Effect::kStyle, "", "object boolean"},
};
constexpr Field kChatToolOthers[] = {
    {"allowed_callers", Effect::kStyle, "direct", "array"},
    {"cache_control", Effect::kNone, "", "object"},
    {"custom"},
    {"defer_loading", Effect::kStyle, "", "boolean"},
    {"eager_input_streaming", Effect::kNone, "", "boolean"},
    {"input_examples", Effect::kStyle, "", "array"},
};
constexpr Field kChatChoiceOthers[] = {{"custom"}, {"disable_parallel_tool_use"}};

constexpr DocumentedObject kChatObjects[] = {
    kStreamOptions,
    kRepetitionDetection,
    kThinking,
    {"messages[]",
     "role content name tool_calls tool_call_id function_call reasoning reasoning_content thinking "
     "refusal",
     kChatMessageOthers,
     {},
     "role",
     "",
     kChatMessageConditions},
    {"messages[].content[]", "type text refusal", kPartOthers, {}},
    {"messages[].tool_calls[]", "id type function", kCallOthers, {}},
    {"messages[].tool_calls[].function", "name arguments", kCalledFunctionOthers, {}},
    {"messages[].function_call", "name arguments", kCalledFunctionOthers, {}},
    {"tools[]", "type function", kChatToolOthers, "function"},
    {"tools[].function", "name description parameters strict", kToolOthers, {}},
    {"functions[]", "type name description parameters strict", kToolOthers, "function"},
    {"function_call", "name", {}, {}},
    {"tool_choice", "type function allowed_tools", kChatChoiceOthers, {}},
    {"tool_choice.function", "name", {}, {}},
    {"tool_choice.allowed_tools", "mode tools", {}, {}},
    {"tool_choice.allowed_tools.tools[]", "type function", {}, "function"},
    {"tool_choice.allowed_tools.tools[].function", "name", {}, {}},
};

// ---- /v1/messages

constexpr Field kOutputConfigOthers[] = {{"task_budget", Effect::kStyle, "", "object integer"}};
constexpr Field kSystemConfigOthers[] = {{"format"},
                                         {"task_budget", Effect::kStyle, "", "object integer"}};
constexpr Field kMessageFormatOthers[] = {{"description", Effect::kNone, "", "string"},
                                          {"name", Effect::kNone, "", "string"},
                                          {"strict", Effect::kNone, "", "boolean"}};

// An answer of ours that comes back whole has the rest.
constexpr Field kMessageOthers[] = {
    {"container", Effect::kNone, "", "object string"},
    {"id", Effect::kNone, "", "string integer"},
    {"model", Effect::kNone, "", "string"},
    {"stop_details", Effect::kNone, "", "object"},
    {"stop_reason", Effect::kNone, "", "string"},
    {"stop_sequence", Effect::kNone, "", "string"},
    {"type", Effect::kNone, "", "string"},
    {"usage", Effect::kNone, "", "object"},
};
constexpr ConditionalMember kMessageConditions[] = {
    {"clear_at", "system"},
    {"output_config", "system"},
};
constexpr Field kBlockOthers[] = {
    {"cache_control", Effect::kNone, "", "object"},
    {"caller", Effect::kNone, "", "object string"},
    {"data", Effect::kNone, "", "string object"},
    {"display", Effect::kNone, "", "string"},
    {"file_id", Effect::kNone, "", "string"},
    {"name", Effect::kNone, "", "string"},
    {"signature", Effect::kNone, "", "string"},
    {"title", Effect::kNone, "", "string"},
    {"url", Effect::kNone, "", "string"},
    {"source", Effect::kNone, "", "object string"},  // of an image and the like
};
constexpr Field kSourceOthers[] = {{"file_id", Effect::kNone, "", "string"},
                                   {"media_type", Effect::kNone, "", "string"},
                                   {"url", Effect::kNone, "", "string"}};
constexpr Field kReferenceOthers[] = {{"cache_control", Effect::kNone, "", "object"}};
constexpr Field kMessageToolOthers[] = {
    {"cache_control", Effect::kNone, "", "object"},
    {"eager_input_streaming", Effect::kNone, "", "boolean"},
    {"input_examples", Effect::kStyle, "", "array"},
};

constexpr std::string_view kBlockObeyed =
    "type text id name input tool_use_id content is_error thinking signature source title context "
    "citations tool";
// In a tool's result, or in a search result.
constexpr std::string_view kInnerBlockObeyed =
    "type text tool_name source title context citations content";

constexpr DocumentedObject kMessagesObjects[] = {
    kStreamOptions,
    kRepetitionDetection,
    kThinking,
    {"system[]", "type text", kBlockOthers, {}},
    {"messages[]",
     "role content clear_at output_config",
     kMessageOthers,
     {},
     "role",
     "",
     kMessageConditions},
    {"messages[].output_config", "effort", kSystemConfigOthers, {}},
    {"messages[].content[]", kBlockObeyed, kBlockOthers, {}},
    {"messages[].content[].source", "type data content", kSourceOthers, {}},
    {"messages[].content[].source.content[]", "type text", kBlockOthers, {}},
    {"messages[].content[].citations", "enabled", {}, {}},
    {"messages[].content[].content[]", kInnerBlockObeyed, kBlockOthers, {}},
    {"messages[].content[].content[].source", "type data content", kSourceOthers, {}},
    {"messages[].content[].content[].source.content[]", "type text", kBlockOthers, {}},
    {"messages[].content[].content[].citations", "enabled", {}, {}},
    {"messages[].content[].content[].content[]", "type text", kBlockOthers, {}},
    {"messages[].content[].tool", "type name", kReferenceOthers, {}},
    {"tools[]", "type name description input_schema strict defer_loading allowed_callers",
     kMessageToolOthers, "custom"},
    {"tool_choice", "type name disable_parallel_tool_use", {}, {}},
    {"output_config", "effort format", kOutputConfigOthers, {}},
    {"output_config.format", "type schema", kMessageFormatOthers, {}},
    {"output_format", "type schema", kMessageFormatOthers, {}},
};

// ---- /v1/responses

// Of a built-in tool's call too, which the model is not shown again: action, code, container_id,
// outputs.
constexpr Field kItemOthers[] = {
    {"action", Effect::kStyle, "", "object"},
    {"caller", Effect::kNone, "", "object string"},
    {"code", Effect::kStyle, "", "string"},
    {"container_id", Effect::kStyle, "", "string"},
    {"created_by", Effect::kNone, "", "string object"},
    {"id", Effect::kNone, "", "string"},
    {"namespace", Effect::kStyle, "", "string"},
    {"outputs", Effect::kStyle, "", "array"},
    {"status", Effect::kNone, "", "string"},
};
constexpr std::string_view kItemObeyed =
    "type role phase content call_id name arguments output summary encrypted_content";
constexpr ConditionalMember kItemConditions[] = {
    {"role", "message"},
    {"phase", "message"},
    {"content", "message reasoning"},
    {"call_id", "function_call function_call_output"},
    {"name", "function_call"},
    {"arguments", "function_call"},
    {"output", "function_call_output"},
    {"summary", "reasoning"},
    {"encrypted_content", "reasoning"},
};

constexpr DocumentedObject kResponseObjects[] = {
    kStreamOptions,
    kRepetitionDetection,
    {"input[]", kItemObeyed, kItemOthers, {}, "type", "message", kItemConditions},
    {"input[].content[]", "type text refusal", kPartOthers, {}},
    {"input[].output[]", "type text refusal", kPartOthers, {}},
    {"input[].summary[]", "type text", {}, {}},
    {"tools[]", "type name description parameters strict", kToolOthers, "function"},
    {"tool_choice", "type name mode tools", {}, {}},
    {"tool_choice.tools[]", "type name", {}, "function"},
};

}  // namespace

std::span<const DocumentedObject> documented_objects(BodyKind kind) {
  switch (kind) {
    case BodyKind::kText:
      return kTextObjects;
    case BodyKind::kChat:
    case BodyKind::kVectors:  // whose input may be a chat
      return kChatObjects;
    case BodyKind::kMessages:
      return kMessagesObjects;
    case BodyKind::kResponse:
      return kResponseObjects;
  }
  return {};
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace pelton::api
