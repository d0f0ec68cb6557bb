// Any text is split into objects that together are the text, of which each put in its own
// place changes nothing; or it is refused.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "gateway/config_edit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::gateway;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<std::vector<ConfigPart>> parts = config_parts(text, "f");
  if (!parts.ok()) {
    CHECK(parts.error().code == ErrorCode::kBadConfig);
    return 0;
  }
  std::string together;
  for (const ConfigPart& part : *parts) together += part.text;
  CHECK(together == text);
  for (const ConfigPart& part : *parts) {
    if (part.kind.empty()) continue;
    const ConfigPlace place{.kind = part.kind, .name = part.name};
    const Result<std::string> same = with_object(text, "f", place, part.text);
    CHECK(same.ok() ? *same == text : same.error().code == ErrorCode::kBadConfig);
    const Result<std::string> less = without_object(text, "f", place);
    CHECK(less.ok() == same.ok());
    CHECK(!less.ok() || less->size() < text.size());
  }
  return 0;
}
