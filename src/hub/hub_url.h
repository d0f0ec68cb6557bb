// URLs as libcurl reads them, so that the check and the client never disagree about where a request
// goes. Pure functions on foreign text; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::hub {

// Where a request goes to; a token is for one origin only.
struct Origin {
  std::string scheme;  // "http" or "https"
  std::string host;
  int port = 0;
  friend bool operator==(const Origin&, const Origin&) = default;
};

// Errors: kInvalidArgument for what is no absolute http(s) URL, and for one with a user name in it.
Result<Origin> origin_of(const std::string& url);

// The absolute URL that `location`, found in an answer from `base`, leads to. Errors:
// kInvalidArgument.
Result<std::string> resolve_location(const std::string& base, const std::string& location);

// Each segment percent-encoded, slashes kept.
std::string encode_path(std::string_view path);
// Slashes encoded too: one segment.
std::string encode_segment(std::string_view text);

}  // namespace pelton::hub
