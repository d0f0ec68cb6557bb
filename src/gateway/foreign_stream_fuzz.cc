// Whatever a foreign server says, each of its lines is passed on, or another one instead; and what
// would go on is JSON.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gateway/foreign_load.h"
#include "gateway/foreign_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const char* const body : {R"({"stream":true,"messages":[{"role":"user","content":"Hi"}]})",
                                 R"({"stream":true,"prompt":"Hi","max_tokens":3})"}) {
    const bool is_chat = std::string_view(body).find("messages") != std::string_view::npos;
    auto stream =
        ForeignStream::of({.method = "POST",
                           .path = is_chat ? "/v1/chat/completions" : "/v1/completions",
                           .query = {},
                           .headers = {},
                           .body = body,
                           .remote = {}},
                          WorkerKind::kVllm, {.chat = true, .text = true, .tokens = true});
    CHECK(stream.has_value());
    const std::string out = stream->pass(bytes);
    CHECK(std::ranges::count(out, '\n') >= std::ranges::count(bytes, '\n'));
    if (stream->need() == ForeignNeed::kNone) continue;
    stream->go_on();
    CHECK(pelton::Json::parse(stream->body()).ok());
    stream->pass(bytes);
  }
  parse_foreign_load(WorkerKind::kVllm, bytes);
  return 0;
}
