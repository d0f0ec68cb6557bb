// The alphabet in which byte-level tokenizer.json files write bytes as printable characters: 188
// bytes stand for themselves (as Latin-1), the other 68 in increasing order for U+0100 and on.
#pragma once

#include <string>
#include <string_view>

namespace pelton::tokenizer {

// Appends the letters of `bytes`, as UTF-8.
void append_byte_letters(std::string_view bytes, std::string& out);

// Appends the bytes that `letters` (valid UTF-8) stand for; false if one is not of the alphabet.
[[nodiscard]] bool append_letter_bytes(std::string_view letters, std::string& out);

}  // namespace pelton::tokenizer
