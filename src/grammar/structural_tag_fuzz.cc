// Any bytes as a structural tag, and what compiles walked through (fuzz_walk.h).
#include <string_view>

#include "grammar/fuzz_walk.h"
#include "grammar/structural_tag.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::grammar;
  const Result<Json> tag = Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!tag.ok()) return 0;
  const auto grammar = compile_structural_tag(*tag, {.time_us_max = 100'000});
  if (grammar.ok()) walk_by_drawn_tokens(*grammar, size);
  return 0;
}
