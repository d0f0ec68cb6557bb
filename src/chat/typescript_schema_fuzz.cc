// Any JSON is a schema: the type text of each comes to an end, in space that its own size bounds.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "chat/simplified_schema.h"
#include "chat/typescript_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const pelton::Result<pelton::Json> schema = pelton::Json::parse(text);
  if (!schema.ok()) return 0;
  const std::string type = pelton::chat::typescript_type(*schema);
  CHECK(!type.empty());
  // Every member is written at most twice, each line behind four spaces for each level above it.
  CHECK(type.size() <= 64 + 8 * size * (4 * pelton::chat::kSchemaDepthMax + 16));
  CHECK(!pelton::chat::typescript_type(pelton::chat::simplified_schema(*schema)).empty());
  return 0;
}
