#include "mcp/message.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

namespace pelton::mcp {
namespace {

constexpr size_t kToolsMax = 256;
constexpr size_t kWordsShown = 300;

void add_line(std::string& text, std::string_view line) {
  if (!text.empty()) text += '\n';
  text += line;
}

void add_content(const Json& part, std::string& text) {
  const std::string type = part.string("type").value_or("");
  if (type == "text") return add_line(text, part.string("text").value_or(""));
  const Json* const resource = part.find("resource");
  if (type == "resource" && resource != nullptr && resource->string("text")) {
    return add_line(text, *resource->string("text"));
  }
  if (type == "resource_link") return add_line(text, part.string("uri").value_or(""));
  add_line(text, fmt::format("[{} left out]", type.empty() ? "part" : type.substr(0, 40)));
}

}  // namespace

Error no_answer(std::string what) {
  return {ErrorCode::kIo, "the tool server's answer is none: " + std::move(what), ""};
}

Result<Json> result_of(const Json& answer) {
  if (const Json* const error = answer.find("error")) {
    return Error{
        ErrorCode::kIo,
        "the tool server refuses: " + error->string("message").value_or("").substr(0, kWordsShown),
        ""};
  }
  const Json* const result = answer.find("result");
  if (result == nullptr || !result->is_object()) return no_answer("neither a result nor an error");
  return *result;
}

Result<ToolResult> tool_result(const Json& result) {
  const Json* const content = result.find("content");
  if (content == nullptr || !content->is_array()) return no_answer("a result without 'content'");
  ToolResult made{.is_error = result.boolean("isError").value_or(false)};
  for (const Json& part : content->as_array()) add_content(part, made.text);
  const Json* const structured = result.find("structuredContent");
  if (made.text.empty() && structured != nullptr) made.text = structured->dump();
  return made;
}

Result<std::string> add_tools(const Json& result, std::vector<Tool>& tools) {
  const Json* const listed = result.find("tools");
  if (listed == nullptr || !listed->is_array()) return no_answer("a list without 'tools'");
  for (const Json& tool : listed->as_array()) {
    const std::optional<std::string> name = tool.string("name");
    if (!name) return no_answer("a tool without a name");
    if (tools.size() == kToolsMax) return no_answer(fmt::format("more than {} tools", kToolsMax));
    const Json* const schema = tool.find("inputSchema");
    tools.push_back({.name = *name,
                     .description = tool.string("description").value_or(""),
                     .input_schema = schema == nullptr ? Json() : *schema});
  }
  return result.string("nextCursor").value_or("");
}

}  // namespace pelton::mcp
