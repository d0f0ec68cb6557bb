// What an answer must look like, by whatever field a protocol says it: OpenAI's response_format
// (text.format in the Responses API), vLLM's structured_outputs and its older guided_* names, the
// names that SGLang and llama.cpp have beside the sampling's, TGI's grammar or Ollama's format.
// Values only: whether a schema can be compiled is the server's to find out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "base/json.h"

namespace pelton::api {

struct OutputFormat {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kStructuralTag };
  Kind kind = Kind::kJsonObject;
  std::string field;                 // where it stands in the request, for errors
  Json schema;                       // or the structural tag
  std::string text;                  // the regular expression or the grammar
  std::vector<std::string> choices;  // each once
  // OpenAI's name and description of a schema, which the model is shown with it; vLLM's fields show
  // it nothing.
  std::string name;
  std::string description;
  bool compact = false;  // of JSON: no whitespace between its tokens
};

inline constexpr size_t kFormatBytesMax = 1 << 20;
inline constexpr size_t kChoiceTextsMax = 100'000;

// Of a body that has response_format. Two of these fields at once are refused.
std::optional<OutputFormat> read_output_format(const Fields& body);

// "format" of the Responses API's "text": the schema's members stand in it.
std::optional<OutputFormat> read_text_format_member(const Fields& text);

// A member of an Anthropic body; its schema has no name.
std::optional<OutputFormat> read_message_format(const Fields& body, std::string_view key);

// A constraint on this very answer (vLLM's, SGLang's, llama.cpp's fields) beside a call that the
// model is made to write: one of them would be dropped. A protocol's own format (response_format,
// text.format, output_config) stands beside: it is of the answer that comes when the call's result
// is there.
void check_beside_forced_call(const Fields& body, const std::optional<OutputFormat>& format,
                              bool is_call_forced);

void refuse_two_formats(const Fields& body, std::string_view key, std::string_view other);

}  // namespace pelton::api
