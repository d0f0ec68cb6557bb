// A form is foreign bytes: whatever comes, each part lies within the body.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "net/multipart_form.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(all.find('\n'), all.size());  // the type, then the body
  const std::string_view body = all.substr(std::min(line + 1, all.size()));
  const auto parts = net::parse_form(all.substr(0, line), body);
  if (!parts.ok()) return 0;
  CHECK(parts->size() <= net::kFormPartsMax);
  for (const net::FormPart& part : *parts) {
    CHECK(part.content.empty() ||
          (part.content.data() >= body.data() &&
           part.content.data() + part.content.size() <= body.data() + body.size()));
  }
  return 0;
}
