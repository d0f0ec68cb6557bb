// Reads SentencePiece's own model files (tokenizer.model): a ModelProto in protobuf's wire format.
// Pure.
//
// Source: sentencepiece's src/sentencepiece_model.proto; protobuf.dev/programming-guides/encoding.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/piece_model.h"

namespace pelton::tokenizer {

// Errors: kBadCheckpoint naming the byte; kUnsupported for a model of words or characters, and for
// spaces that stay behind words or are not written as "▁".
Result<PieceModel> read_sentencepiece_file(std::string_view bytes, const std::string& name);

}  // namespace pelton::tokenizer
