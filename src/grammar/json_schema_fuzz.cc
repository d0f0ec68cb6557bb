// Any bytes as a schema, and what compiles walked through (fuzz_walk.h).
#include <string_view>

#include "grammar/fuzz_walk.h"
#include "grammar/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::grammar;
  const Result<Json> schema =
      Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!schema.ok()) return 0;
  SchemaOptions options;
  options.time_us_max = 10'000;
  const auto grammar = compile_json_schema(*schema, options);
  if (grammar.ok()) walk_by_drawn_tokens(*grammar, size);
  return 0;
}
