// A header that HttpClient adds to what on_head reports, and no server sends: a kept connection
// broke before a byte of the answer had come, and the call, a repeatable one, was made once more.
// As a rule its server had closed it unseen, but it may have seen the request, and gone because of
// it.
#pragma once

#include <string_view>

namespace pelton::net {

inline constexpr std::string_view kSentAgainHeader = "x-pelton-sent-again";

}  // namespace pelton::net
