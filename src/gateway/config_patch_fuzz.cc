// Any patch of any configuration (apart by a line of "---") leaves a text that says what RFC 7396
// makes of the value before, or is refused. A kind that a patch leaves without objects is none, and
// what a new object is called its patch need not say.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/config_changes.h"
#include "gateway/config_json.h"
#include "gateway/config_patch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::gateway;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kApart = "\n---\n";
  const size_t apart = input.find(kApart);
  if (apart == std::string_view::npos) return 0;
  const std::string_view text = input.substr(0, apart + 1);
  const Result<Json> patch = Json::parse(input.substr(apart + kApart.size()));
  const Result<Json> before = config_json(text, "f");
  if (!patch.ok() || !before.ok()) return 0;
  const Result<std::string> after = patched_config(text, "f", *patch);
  if (!after.ok()) {
    CHECK(after.error().code == ErrorCode::kInvalidArgument ||
          after.error().code == ErrorCode::kBadConfig);
    return 0;
  }
  const Json wanted = merged_json(*before, *patch);
  const Result<Json> said = config_json(*after, "f");
  CHECK(said.ok());
  for (const Json::Member& kind : wanted.as_object()) {
    const Json* found = said->find(kind.key);
    if (!is_config_list(kind.key)) {
      CHECK(found != nullptr && is_same_json(*found, kind.value));
      continue;
    }
    for (const Json::Member& one : kind.value.as_object()) {
      CHECK(found != nullptr && found->find(one.key) != nullptr);
      const Json* was = before->find(kind.key);
      const bool is_new = was == nullptr || was->find(one.key) == nullptr;
      CHECK(is_new || is_same_json(*found->find(one.key), one.value));
    }
  }
  return 0;
}
