// What a request says of a stream, before anything else is read of it. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

namespace pelton::api {

struct StreamAsked {
  std::optional<bool> stream;  // the body's "stream", where it is a boolean
  bool is_sse = false;         // "stream_format" is "sse", as of speech
};

// Nothing where the body is no object of JSON. A pass over the text that keeps nothing.
std::optional<StreamAsked> stream_asked(std::string_view body);

}  // namespace pelton::api
