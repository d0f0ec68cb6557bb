#include "tokenizer/word_piece_parts.h"

#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::tokenizer {

Result<TokenizerParts> word_piece_parts(WordPieces pieces, WordPieceVocabulary vocabulary,
                                        const std::string& name) {
  TokenBytes tokens;
  for (const AddedToken& token : vocabulary.added) {
    if (!tokens.set(token.id, token.text)) {
      return bad_tokenizer(name, "added_tokens", fmt::format("id {} is there twice", token.id));
    }
  }
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const std::string_view text = vocabulary.texts[i];
    const auto id = static_cast<TokenId>(i);
    if (text.empty()) continue;
    if (text.size() > kTokenBytesMax || !base::is_valid_utf8(text)) {
      return bad_tokenizer(name, fmt::format("vocab[{}]", i),
                           fmt::format("is no text of at most {} bytes", kTokenBytesMax));
    }
    if (!pieces.spelled.set(id, text) || pieces.lookup.insert(pieces.spelled, id) != kNoToken) {
      return bad_tokenizer(name, fmt::format("vocab[{}]", i),
                           fmt::format("\"{}\" is there twice", text));
    }
    if (!tokens[id].empty()) continue;  // an added one's text stands already
    const bool goes_on = text.starts_with(pieces.continuation) && text != pieces.continuation;
    const std::string bytes =
        goes_on ? std::string(text.substr(pieces.continuation.size())) : " " + std::string(text);
    if (!tokens.set(id, bytes)) return bad_tokenizer(name, fmt::format("vocab[{}]", i), "is twice");
  }
  pieces.unknown = pieces.lookup.find(pieces.spelled, vocabulary.unknown);
  if (pieces.unknown == kNoToken) {
    return bad_tokenizer(name, "vocab",
                         fmt::format("has no \"{}\" for unknown words", vocabulary.unknown));
  }
  return TokenizerParts{.tokens = std::move(tokens),
                        .lookup = TokenLookup(0),
                        .merges = MergeTable(0),
                        .whole_pieces_first = false,
                        .split_patterns = {},
                        .added = std::move(vocabulary.added),
                        .word_pieces = std::move(pieces)};
}

}  // namespace pelton::tokenizer
