// A long text in pieces that are said one after the other. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::speech {

// Characters of a piece, some 25 s of speech: a model that was trained on single utterances loses
// its thread in much longer ones.
inline constexpr size_t kPieceCharsMax = 400;

// Pieces of at most `chars_max` characters (code points), each as long as it can be: cut behind the
// end of a sentence, where there is none behind a comma or its like, where there is none at a
// blank, else anywhere between characters. Blanks around pieces are dropped, a text of blanks gives
// none. "One. Two? Three!" by 9 is "One. Two?" and "Three!". `text` is UTF-8.
std::vector<std::string> text_pieces(std::string_view text, size_t chars_max);

}  // namespace pelton::speech
