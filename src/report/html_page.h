// The frame of our HTML pages: head, style, title. Pure functions.
#pragma once

#include <string>

namespace pelton::report {

inline constexpr int kPageColours = 8;  // classes s0 to s7

// Everything up to the content, which ends with "</main></body></html>".
std::string page_begin(const std::string& title);

}  // namespace pelton::report
