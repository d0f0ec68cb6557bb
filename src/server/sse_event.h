// One server-sent event around JSON that is written in place: append_json writes straight into the
// bytes that go out.
#pragma once

#include <string>
#include <string_view>

namespace pelton::server {

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
// Comments keep proxies from closing a stream on which nothing happens.
inline constexpr std::string_view kSseComment = ": waiting\n\n";

// JSON holds no raw line breaks, so one "data:" line is enough.
template <typename AppendJson>
void append_sse_event(std::string& out, const AppendJson& append_json) {
  out += "data: ";
  append_json(out);
  out += "\n\n";
}

}  // namespace pelton::server
