#include "chat/call_syntax.h"

#include <algorithm>
#include <iterator>

namespace pelton::chat {
namespace {

constexpr std::string_view kHermesMarkers[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kDeepSeekMarkers[] = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                                                 "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
                                                 "<｜tool▁sep｜>"};
constexpr std::string_view kLlamaMarkers[] = {"<|python_tag|>"};
constexpr std::string_view kMistralMarkers[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
constexpr std::string_view kPhiMarkers[] = {"<|tool_call|>", "<|/tool_call|>"};

constexpr std::string_view kJsonBeforeArguments = "\", \"arguments\": ";
constexpr std::string_view kHermesBeforeName = "<tool_call>\n{\"name\": \"";
constexpr std::string_view kHermesBehind = "}\n</tool_call>";
// What models that write Python or XML are made to write: JSON, whose schema can be followed.
constexpr std::string_view kLlamaBeforeName = "{\"name\": \"";
constexpr std::string_view kLlamaBeforeArguments = "\", \"parameters\": ";

constexpr CallSyntax kSyntaxes[] = {
    {.name = "hermes",
     .opening = "<tool_call>",
     .closing = "</tool_call>",
     .read = read_hermes_call,
     .before_name = kHermesBeforeName,
     .before_arguments = kJsonBeforeArguments,
     .behind = kHermesBehind,
     .between = "\n",
     .markers = kHermesMarkers},
    {.name = "deepseek_r1",
     .opening = "<｜tool▁calls▁begin｜>",
     .closing = "<｜tool▁calls▁end｜>",
     .read = read_deepseek_calls,
     .before_name = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .before_arguments = "\n```json\n",
     .behind = "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     .markers = kDeepSeekMarkers},
    {.name = "deepseek_v31",
     .opening = "<｜tool▁calls▁begin｜>",
     .closing = "<｜tool▁calls▁end｜>",
     .read = read_deepseek_calls,
     .before_name = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
     .before_arguments = "<｜tool▁sep｜>",
     .behind = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     .markers = kDeepSeekMarkers},
    {.name = "llama3_json",
     .opening = "<|python_tag|>",
     .closing = "",
     .begins = begins_json_call,
     .read = read_llama_calls,
     .before_name = kLlamaBeforeName,
     .before_arguments = kLlamaBeforeArguments,
     .behind = "}",
     .markers = kLlamaMarkers},
    {.name = "pythonic",
     .opening = "<|python_tag|>",
     .closing = "",
     .begins = begins_pythonic_call,
     .read = read_pythonic_calls,
     .before_name = kLlamaBeforeName,
     .before_arguments = kLlamaBeforeArguments,
     .behind = "}",
     .markers = kLlamaMarkers},
    {.name = "mistral",
     .opening = "[TOOL_CALLS]",
     .closing = "",
     .read = read_mistral_calls,
     .before_name = "[TOOL_CALLS][{\"name\": \"",
     .before_arguments = kJsonBeforeArguments,
     .behind = "}]",
     .markers = kMistralMarkers},
    {.name = "mistral_args",
     .opening = "[TOOL_CALLS]",
     .closing = "",
     .read = read_mistral_calls,
     .before_name = "[TOOL_CALLS]",
     .before_arguments = "[ARGS]",
     .behind = "",
     .markers = kMistralMarkers},
    {.name = "qwen3_coder",
     .opening = "<tool_call>",
     .closing = "</tool_call>",
     .json_strings = false,
     .read = read_qwen3_coder_calls,
     .before_name = kHermesBeforeName,
     .before_arguments = kJsonBeforeArguments,
     .behind = kHermesBehind,
     .between = "\n",
     .markers = kHermesMarkers,
     .types_by_schema = true},
    {.name = "phi4_mini",
     .opening = "<|tool_call|>",
     .closing = "<|/tool_call|>",
     .read = read_json_calls,
     .before_name = "<|tool_call|>[{\"name\": \"",
     .before_arguments = kJsonBeforeArguments,
     .behind = "}]<|/tool_call|>",
     .markers = kPhiMarkers},
    {.name = "plain"},
};

struct Alias {
  std::string_view name;
  std::string_view is;
};

// vLLM's names for --tool-call-parser.
constexpr Alias kAliases[] = {{"deepseek_v3", "deepseek_r1"},   {"llama4_json", "llama3_json"},
                              {"llama4_pythonic", "pythonic"},  {"qwen3_xml", "qwen3_coder"},
                              {"phi4_mini_json", "phi4_mini"},  {"none", "plain"},
                              {"deepseek_v3_1", "deepseek_v31"}};

}  // namespace

const CallSyntax* find_call_syntax(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.name == name) name = alias.is;
  }
  const auto* const found = std::find_if(std::begin(kSyntaxes), std::end(kSyntaxes),
                                         [&](const CallSyntax& s) { return s.name == name; });
  return found == std::end(kSyntaxes) ? nullptr : found;
}

std::string call_syntax_names() {
  std::string names;
  for (const CallSyntax& syntax : kSyntaxes) {
    if (!names.empty()) names += ", ";
    names += syntax.name;
  }
  return names;
}

TaughtSyntax call_syntax_of(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  struct Sign {
    std::string_view name;
    std::string_view marker;
    std::string_view beside = {};  // too
  };
  // The first that is there.
  constexpr Sign kSigns[] = {
      {"deepseek_r1", "tool▁calls▁begin", "```json"},
      {"deepseek_v31", "tool▁calls▁begin"},
      {"qwen3_coder", "<function=", "<parameter="},
      {"hermes", "<tool_call>"},
      {"mistral_args", "[TOOL_CALLS]", "[ARGS]"},
      {"mistral", "[TOOL_CALLS]"},
      {"phi4_mini", "<|tool_call|>"},
      {"pythonic", "func_name1("},
      {"pythonic", "function_name1("},
      {"llama3_json", "<|python_tag|>"},
      {"llama3_json", "\"parameters\"", "<|start_header_id|>"},
  };
  for (const Sign& sign : kSigns) {
    if (has(sign.marker) && has(sign.beside)) return {*find_call_syntax(sign.name), sign.marker};
  }
  return {*find_call_syntax("plain"), {}};
}

}  // namespace pelton::chat
