// Cuts a text into pieces. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace pelton::chain {

// Where pieces end by preference.
enum class PieceEnd { kAnywhere, kLine, kSentence, kParagraph };

// "characters", "lines", "sentences", "paragraphs"; none: any other word.
std::optional<PieceEnd> piece_end(std::string_view name);

struct PieceOptions {
  PieceEnd end = PieceEnd::kAnywhere;
  int64_t size = 1000;  // characters, at most
  int64_t overlap = 0;  // characters of the piece before that come again; at most half of it does
};

// Each piece ends behind the last end of that kind within its size, or, where there is none, at its
// size; without overlap the pieces are the text. Blanks around pieces are left out where they end
// at something, and pieces of blanks only.
//
// "One. Two. Three." by sentences of 10: "One. Two.", "Three."
std::vector<std::string_view> text_pieces(std::string_view text, const PieceOptions& options);

}  // namespace pelton::chain
