// Whether a request asks for a stream, before anything else is read of it. Pure; any thread.
#pragma once

#include <string_view>

namespace pelton::api {

// The body's "stream" is true; false where that cannot be said. A pass over the text that keeps
// nothing.
bool stream_asked(std::string_view body);

}  // namespace pelton::api
