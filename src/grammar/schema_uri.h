// As much of RFC 3986 as JSON Schema's identifiers need: references are resolved within one
// document, nothing is ever fetched. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pelton::grammar {

// `reference` as seen from `base` (5.2.2, without the fragment's own syntax): from http://a/b/c,
// ../d#x is http://a/d#x, and #x is http://a/b/c#x.
std::string resolved_uri(std::string_view base, std::string_view reference);

struct SplitUri {
  std::string_view resource;
  std::string_view fragment;  // without '#'
};
SplitUri split_uri(std::string_view uri);

// %-escapes undone; empty if one is broken.
std::optional<std::string> percent_decoded(std::string_view text);

// One step of a JSON pointer, ~0 and ~1 undone (a~1b~0 is a/b~); empty if a ~ is broken.
std::optional<std::string> pointer_step(std::string_view token);
// The other way: `/` and the escaped name.
std::string pointer_token(std::string_view name);

}  // namespace pelton::grammar
