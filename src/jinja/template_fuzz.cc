// Any template, with any JSON behind its first NUL as context, ends in a text or an error within
// small limits; and what it prints of the context is known to be input.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pelton::jinja::Template;
  using pelton::jinja::Value;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find('\0');
  const pelton::Result<Template> made = Template::compile(all.substr(0, end));
  if (!made.ok()) {
    CHECK(!made.error().message.empty());
    return 0;
  }
  pelton::jinja::Dict context;
  context.members.emplace_back(Value::own("x"), Value::input("a <b> c"));
  if (end != std::string_view::npos) {
    const pelton::Result<pelton::Json> json = pelton::Json::parse(all.substr(end + 1));
    if (json.ok()) context.members.emplace_back(Value::own("messages"), Value::from_json(*json));
  }
  const Template::Options options{
      .limits = {.steps = 20'000, .bytes = 1 << 20, .output_bytes = 1 << 16, .depth = 200},
      .unix_seconds = 1'772'719'629};
  const pelton::Result<pelton::jinja::Text> text = made->render(context, options);
  if (!text.ok()) {
    CHECK(!text.error().message.empty());
    return 0;
  }
  CHECK(text->size() <= options.limits.output_bytes);
  size_t before = 0;
  for (const pelton::jinja::Text::Range& range : text->input()) {
    CHECK(range.begin >= before && range.begin < range.end && range.end <= text->size());
    before = range.end + 1;  // apart
  }
  return 0;
}
