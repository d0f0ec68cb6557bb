// How a model spells a call of a function: one CallSyntax for each dialect, as data. What is
// between the opening marker and the closing one is a section; it is read as a whole, once it is
// there. Pure functions; any thread.
//
//   hermes        <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>
//   deepseek_r1 <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{...}
//                 \n```<｜tool▁call▁end｜>...<｜tool▁calls▁end｜>
//   deepseek_v31
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>...
//   llama3_json   {"name": "f", "parameters": {...}}, also behind <|python_tag|>, where it may be
//                 f.call(a=1), too
//   pythonic      [f(a=1), g()]
//   mistral       [TOOL_CALLS][{"name": "f", "arguments": {...}}]
//   mistral_args  [TOOL_CALLS]f[ARGS]{...}
//   qwen3_coder
//   <tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call> phi4_mini
//   <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>
//
// Source: the models' published chat templates, and what they sample.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/conversation.h"

namespace pelton::chat {

struct WrittenCall {
  std::string name;
  std::string arguments;  // the model's own text where it wrote an object
  bool complete = true;   // false: it was cut off
};

struct WrittenCalls {
  std::vector<WrittenCall> calls;  // never empty
  std::string rest;                // text behind them
};

enum class SectionEnd : uint8_t {
  kClosed,   // by its marker
  kByModel,  // the turn has ended
  kCutOff,   // nothing more came
};

struct CallSection {
  std::string_view text;
  SectionEnd end = SectionEnd::kClosed;
  // Whose schemas say of what type a value is, where the syntax does not; may be null.
  const std::vector<FunctionTool>* functions = nullptr;
};

// Whether a turn that begins so is a call without an opening marker.
enum class BeginsCall : uint8_t { kNo, kUndecided, kYes };

struct CallSyntax {
  std::string_view name;
  std::string_view opening;  // "": none
  std::string_view closing;  // "": the turn's end
  // The closing marker within a string of JSON is text of that string. False: only in a section
  // that begins as JSON does.
  bool json_strings = true;
  BeginsCall (*begins)(std::string_view text) = nullptr;  // null: never
  // Nothing: it is no call, and stays text.
  std::optional<WrittenCalls> (*read)(const CallSection& section) = nullptr;
  // A call that the model is made to write: before_name NAME before_arguments JSON behind.
  std::string_view before_name;
  std::string_view before_arguments;
  std::string_view behind;
  std::string_view between;                   // it and another one behind it; "": one is all
  std::span<const std::string_view> markers;  // in any of these
  bool types_by_schema = false;
};

// By its name here, or vLLM's for the same; null: there is none of that name. "plain" has no calls.
const CallSyntax* find_call_syntax(std::string_view name);
// "hermes, deepseek_r1, ..." for messages.
std::string call_syntax_names();

// The syntax that a template teaches, by the marker in its text that says so; plain, with no
// marker, if it teaches none.
struct TaughtSyntax {
  const CallSyntax& syntax;
  std::string_view marker;
};
TaughtSyntax call_syntax_of(std::string_view chat_template);

// The readers; of what stands in a section.
std::optional<WrittenCalls> read_hermes_call(const CallSection& section);
std::optional<WrittenCalls> read_json_calls(const CallSection& section);     // [{...}, {...}]
std::optional<WrittenCalls> read_mistral_calls(const CallSection& section);  // both forms
std::optional<WrittenCalls> read_llama_calls(const CallSection& section);
std::optional<WrittenCalls> read_deepseek_calls(const CallSection& section);
std::optional<WrittenCalls> read_pythonic_calls(const CallSection& section);
std::optional<WrittenCalls> read_qwen3_coder_calls(const CallSection& section);
BeginsCall begins_json_call(std::string_view text);
BeginsCall begins_pythonic_call(std::string_view text);
// name(a=1, b="x") from `at`, which is moved behind it; nothing if it is no such call.
std::optional<WrittenCall> read_python_call(std::string_view text, size_t& at);

}  // namespace pelton::chat
