#include "tokenizer/piece_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/sentence_pieces.h"

namespace pelton::tokenizer {
namespace {

using Type = PieceModel::Type;

class PartsBuilder {
 public:
  PartsBuilder(const PieceModel& model, const std::string& name)
      : model_(model), name_(name), pieces_(model.pieces.size()) {
    pieces_.byte_tokens.fill(kNoToken);
  }

  Result<TokenizerParts> build() {
    if (model_.pieces.size() > static_cast<size_t>(kTokenIdsMax)) {
      return bad_tokenizer(name_, "pieces", fmt::format("over {} pieces", kTokenIdsMax));
    }
    if (model_.kind == PieceModel::Kind::kUnigram) pieces_.unigram.emplace();
    for (size_t i = 0; i < model_.pieces.size(); ++i) TRY(add(static_cast<TokenId>(i)));
    TRY(finish_bytes());
    TRY(finish_normalizer());
    MergeTable merges = model_.kind == PieceModel::Kind::kBpe
                            ? MergeTable::of_order(pieces_.spelled, pieces_.lookup, by_score())
                            : MergeTable(0);
    return TokenizerParts{.tokens = std::move(tokens_),
                          .lookup = TokenLookup(0),
                          .merges = std::move(merges),
                          .whole_pieces_first = false,
                          .split_patterns = {},
                          .added = std::move(added_),
                          .sentence_pieces = std::move(pieces_)};
  }

 private:
  Error bad(TokenId id, const std::string& what) const {
    return bad_tokenizer(name_, fmt::format("pieces[{}]", id), what);
  }

  Result<void> add(TokenId id) {
    const PieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type == Type::kUnused) return {};
    if (piece.text.empty() || piece.text.size() > kTokenBytesMax) {
      return bad(id,
                 fmt::format("has {} bytes, expected 1 to {}", piece.text.size(), kTokenBytesMax));
    }
    if (!base::is_valid_utf8(piece.text)) return bad(id, "is not UTF-8");
    if (!std::isfinite(piece.score)) return bad(id, "has a score that is no number");
    if (piece.type == Type::kByte) return add_byte(id, piece.text);
    CHECK(tokens_.set(id, piece.type == Type::kControl ? piece.text : with_spaces(piece.text)));
    if (piece.type == Type::kUnknown) {
      if (pieces_.unknown == kNoToken) pieces_.unknown = id;
      return {};
    }
    if (piece.type == Type::kControl || piece.type == Type::kUserDefined) {
      const bool is_word = piece.type == Type::kUserDefined;
      added_.push_back({.id = id, .text = piece.text, .special = !is_word});
      if (is_word && !pieces_.words.add(piece.text, id)) return bad(id, "is there twice");
      return {};
    }
    return add_normal(id, piece);
  }

  Result<void> add_byte(TokenId id, const std::string& text) {
    const std::optional<uint8_t> byte = byte_of(text);
    if (!byte) return bad(id, fmt::format("is a byte's, and \"{}\" is not <0x00>", text));
    if (pieces_.byte_tokens[*byte] != kNoToken) return bad(id, "is there twice");
    pieces_.byte_tokens[*byte] = id;
    const char letter = static_cast<char>(*byte);
    CHECK(tokens_.set(id, {&letter, 1}));
    return {};
  }

  Result<void> add_normal(TokenId id, const PieceModel::Piece& piece) {
    CHECK(pieces_.spelled.set(id, piece.text));
    const bool is_new = pieces_.unigram ? pieces_.unigram->add(piece.text, id, piece.score)
                                        : pieces_.lookup.insert(pieces_.spelled, id) == kNoToken;
    if (!is_new) return bad(id, fmt::format("\"{}\" is there twice", piece.text));
    return {};
  }

  // All bytes, or none and an unknown piece.
  Result<void> finish_bytes() {
    const auto missing =
        std::count(pieces_.byte_tokens.begin(), pieces_.byte_tokens.end(), kNoToken);
    pieces_.has_bytes = missing == 0;
    if (missing != 0 && missing != 256) {
      return bad_tokenizer(name_, "pieces", fmt::format("{} of 256 bytes have none", missing));
    }
    if (missing == 0 || pieces_.unknown != kNoToken) return {};
    return bad_tokenizer(name_, "pieces",
                         "neither bytes nor an unknown piece: not every text could be encoded");
  }

  Result<void> finish_normalizer() {
    using Prefix = SentencePieces::Prefix;
    pieces_.prefix = model_.prefixes_space ? Prefix::kAlways : Prefix::kNever;
    pieces_.prefix_where_missing = model_.prefix_where_missing;
    pieces_.removes_extra_spaces = model_.removes_extra_spaces;
    if (model_.charsmap.empty()) return {};
    Result<Charsmap> map = Charsmap::parse(model_.charsmap);
    if (!map.ok()) return bad_tokenizer(name_, "precompiled_charsmap", map.error().message);
    pieces_.charsmap = std::move(*map);
    return {};
  }

  // Of equals the lower id.
  std::vector<TokenId> by_score() const {
    std::vector<TokenId> order(static_cast<size_t>(pieces_.spelled.size()));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return model_.pieces[static_cast<size_t>(a)].score >
             model_.pieces[static_cast<size_t>(b)].score;
    });
    return order;
  }

  const PieceModel& model_;
  const std::string& name_;
  TokenBytes tokens_;
  SentencePieces pieces_;
  std::vector<AddedToken> added_;
};

}  // namespace

Result<TokenizerParts> parts_of(const PieceModel& model, const std::string& name) {
  return PartsBuilder(model, name).build();
}

}  // namespace pelton::tokenizer
