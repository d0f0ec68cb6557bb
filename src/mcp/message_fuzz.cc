// Whatever a tool server says: an answer is read as a result, as a list of tools or not at all,
// within bounds, and what is none has words.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "mcp/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> message = Json::parse(text);
  if (!message.ok()) return 0;
  const Result<Json> result = mcp::result_of(*message);
  if (!result.ok()) {
    CHECK(!result.error().message.empty() && result.error().message.size() < 400);
    return 0;
  }
  const Result<mcp::ToolResult> called = mcp::tool_result(*result);
  // A part that is left out is named by at most so many bytes; of others there is what they say.
  if (called.ok()) CHECK(called->text.size() <= 60 * text.size());
  std::vector<mcp::Tool> tools;
  const Result<std::string> next = mcp::add_tools(*result, tools);
  CHECK(tools.size() <= 256);
  for (const mcp::Tool& tool : tools) CHECK(tool.name.size() <= text.size());
  if (!next.ok()) CHECK(!next.error().message.empty());
  return 0;
}
