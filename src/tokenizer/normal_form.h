// Unicode's normal form C (Unicode 14), which some tokenizers want before anything else: characters
// composed where they can be, marks in canonical order. Pure; time linear in the text (times a
// logarithm for a run of marks), at most three times its bytes.
#pragma once

#include <string>
#include <string_view>

namespace pelton::tokenizer {

// `text` itself if it is certain to be in the form already, or else `storage`, filled with the
// form. `text` is valid UTF-8.
std::string_view normal_form_c(std::string_view text, std::string& storage);

// Form D, everything decomposed, without marks that have no width of their own (Mn): "é" -> "e".
// `text` is valid UTF-8.
std::string without_accents(std::string_view text);

// Every letter that has a lower case of one code point, in it.
std::string lower_case(std::string_view text);

}  // namespace pelton::tokenizer
