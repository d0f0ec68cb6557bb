// Any bytes as a README.md: its text is the end of it, and no value is longer than its line.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/model_card.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view readme(reinterpret_cast<const char*>(data), size);
  const checkpoint::ModelCard card = checkpoint::parse_model_card(readme);
  CHECK(readme.ends_with(card.text));
  for (const std::string& value : {card.license, card.license_name, card.license_link}) {
    CHECK(value.find('\n') == std::string::npos && value.size() <= 1024);
    CHECK(readme.find(value) != std::string_view::npos);
  }
  return 0;
}
