// A SentencePiece model, whatever file says it: pieces with scores, and how text is normalised.
// Plain values that the readers fill; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

struct PieceModel {
  enum class Kind : uint8_t { kUnigram = 1, kBpe = 2 };  // trainer_spec.model_type's numbers
  // SentencePiece's and ggml's numbers.
  enum class Type : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,  // a word that stands as one, whatever is around it
    kUnused = 5,
    kByte = 6,
  };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  Kind kind = Kind::kUnigram;
  std::vector<Piece> pieces;  // by id
  std::string charsmap;       // as the file has it (tokenizer/charsmap.h); empty: none
  bool prefixes_space = true;
  bool prefix_where_missing = false;  // SentencePieces::prefix_where_missing
  bool removes_extra_spaces = true;
};

// BPE joins the neighbours whose piece has the best score. Errors: kBadCheckpoint naming the piece.
Result<TokenizerParts> parts_of(const PieceModel& model, const std::string& name);

}  // namespace pelton::tokenizer
