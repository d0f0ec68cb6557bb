// UTF-8 as the WHATWG decoder (TextDecoder, Rust's from_utf8_lossy) understands it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::base {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What stands at the front of a byte string.
struct Utf8Step {
  enum class Kind : uint8_t {
    kCodePoint,   // `bytes` bytes are one code point
    kInvalid,     // the maximal invalid prefix is `bytes` bytes: one U+FFFD
    kIncomplete,  // all that is left could still become a code point
  };
  Kind kind;
  uint8_t bytes;
  uint32_t code_point;
};

// `text` must not be empty.
Utf8Step utf8_step(std::string_view text);

// How many bytes at the front are whole, valid code points.
size_t valid_utf8_prefix(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Each maximal invalid prefix becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

void append_utf8(std::string& out, uint32_t code_point);

}  // namespace pelton::base
