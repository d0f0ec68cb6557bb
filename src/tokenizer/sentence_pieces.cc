#include "tokenizer/sentence_pieces.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

using Draft = TokenizerJsonDraft;

constexpr std::string_view kSpaceMark = "▁";

// What normalizer and pre-tokenizer say of spaces.
class SpaceRules {
 public:
  explicit SpaceRules(const std::string& name) : name_(name) {}

  Result<void> read(const Draft& draft) {
    TRY(read_normalizer(draft.document.find("normalizer"), "normalizer"));
    TRY(read_pre_tokenizer(draft.document.find("pre_tokenizer"), "pre_tokenizer"));
    if (marks_spaces_) return {};
    return unsupported_tokenizer(name_, "normalizer", "does not write spaces as \"▁\"");
  }

  SentencePieces::Prefix prefix() const { return prefix_; }
  bool where_missing() const { return where_missing_; }

 private:
  Result<void> read_normalizer(const Json* step, const std::string& field) {
    if (step == nullptr || step->is_null()) return {};
    const std::string type = step->string("type").value_or("");
    if (type == "Sequence") {
      const Json* steps = step->find("normalizers");
      if (steps == nullptr || !steps->is_array()) {
        return bad_tokenizer(name_, field + ".normalizers", "is not an array");
      }
      for (const Json& inner : steps->as_array()) TRY(read_inner(inner, field));
      return {};
    }
    return read_inner(*step, field);
  }

  Result<void> read_inner(const Json& step, const std::string& field) {
    const std::string type = step.string("type").value_or("");
    if (type == "Prepend" && step.string("prepend") == kSpaceMark) {
      prefix_ = SentencePieces::Prefix::kAlways;
      return {};
    }
    const Json* pattern = step.find("pattern");
    if (type == "Replace" && pattern != nullptr && pattern->string("String") == " " &&
        step.string("content") == kSpaceMark) {
      marks_spaces_ = true;
      return {};
    }
    return unsupported_tokenizer(name_, field,
                                 fmt::format("\"{}\"; known are Prepend and Replace of spaces by "
                                             "\"▁\"",
                                             type));
  }

  Result<void> read_pre_tokenizer(const Json* step, const std::string& field) {
    if (step == nullptr || step->is_null()) return {};
    const std::string type = step->string("type").value_or("");
    const Json* pattern = step->find("pattern");
    // There are no spaces any more.
    if (type == "Split" && pattern != nullptr && pattern->string("String") == " ") return {};
    if (type != "Metaspace") {
      return unsupported_tokenizer(name_, field + ".type",
                                   fmt::format("\"{}\", expected Metaspace or null", type));
    }
    if (step->boolean("split").value_or(true)) {
      return unsupported_tokenizer(name_, field + ".split", "is true, expected false");
    }
    const bool adds = step->boolean("add_prefix_space").value_or(true);
    const std::string scheme = step->string("prepend_scheme").value_or(adds ? "always" : "never");
    // Behind a Prepend every text has its "▁".
    const bool prepends = prefix_ == SentencePieces::Prefix::kAlways;
    where_missing_ = !prepends;
    if (scheme == "always") prefix_ = SentencePieces::Prefix::kAlways;
    if (scheme == "first" && !prepends) prefix_ = SentencePieces::Prefix::kFirst;
    marks_spaces_ = true;
    return {};
  }

  const std::string& name_;
  bool marks_spaces_ = false;
  SentencePieces::Prefix prefix_ = SentencePieces::Prefix::kNever;
  bool where_missing_ = false;
};

class PieceReader {
 public:
  PieceReader(const Draft& draft, const std::string& name)
      : draft_(draft), name_(name), pieces_(draft.vocab.size()) {
    pieces_.byte_tokens.fill(kNoToken);
  }

  Result<void> read(const std::vector<AddedToken>& added) {
    std::vector<const AddedToken*> by_id;
    for (const AddedToken& token : added) {
      if (!tokens_.set(token.id, token.text)) {
        return bad_tokenizer(name_, "added_tokens", fmt::format("id {} is there twice", token.id));
      }
      by_id.resize(std::max(by_id.size(), static_cast<size_t>(token.id) + 1));
      by_id[static_cast<size_t>(token.id)] = &token;
    }
    for (const Draft::VocabEntry& entry : draft_.vocab) {
      const size_t index = static_cast<size_t>(entry.id);
      TRY(read_entry(entry, index < by_id.size() ? by_id[index] : nullptr));
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      if (pieces_.byte_tokens[byte] != kNoToken) continue;
      return bad_tokenizer(name_, "model.vocab", fmt::format("there is no token <0x{:02X}>", byte));
    }
    return {};
  }

  Result<MergeTable> read_merges() const {
    MergeTable merges(draft_.merges.size());
    for (size_t i = 0; i < draft_.merges.size(); ++i) {
      const Draft::Merge& merge = draft_.merges[i];
      const TokenId left = pieces_.lookup.find(pieces_.spelled, draft_.left(merge));
      const TokenId right = pieces_.lookup.find(pieces_.spelled, draft_.right(merge));
      const TokenId merged = pieces_.lookup.find(pieces_.spelled, draft_.merged(merge));
      if (left == kNoToken || right == kNoToken || merged == kNoToken) {
        return bad_tokenizer(name_, fmt::format("model.merges[{}]", i),
                             "is not of tokens of the vocabulary");
      }
      if (!merges.add(left, right, merged)) {
        return bad_tokenizer(name_, fmt::format("model.merges[{}]", i), "is there twice");
      }
    }
    return merges;
  }

  TokenBytes take_tokens() { return std::move(tokens_); }
  SentencePieces take_pieces() { return std::move(pieces_); }

 private:
  Result<void> read_entry(const Draft::VocabEntry& entry, const AddedToken* added) {
    const std::string_view text = draft_.text(entry);
    if (text.size() > kTokenBytesMax) {
      return bad_tokenizer(name_, "model.vocab",
                           fmt::format("token {} has {} bytes, the limit is {}", entry.id,
                                       text.size(), kTokenBytesMax));
    }
    if (added != nullptr && added->special) return {};
    if (const std::optional<uint8_t> byte = byte_of(text)) {
      const char letter = static_cast<char>(*byte);
      if (pieces_.byte_tokens[*byte] != kNoToken || !set(entry.id, {&letter, 1}, added)) {
        return bad_tokenizer(name_, "model.vocab", fmt::format("{} is there twice", text));
      }
      pieces_.byte_tokens[*byte] = entry.id;
      return {};
    }
    if (!set(entry.id, with_spaces(text), added) || !pieces_.spelled.set(entry.id, text) ||
        pieces_.lookup.insert(pieces_.spelled, entry.id) != kNoToken) {
      return bad_tokenizer(name_, "model.vocab", fmt::format("\"{}\" is there twice", text));
    }
    return {};
  }

  // An added token's text stands already.
  bool set(TokenId id, std::string_view bytes, const AddedToken* added) {
    return added != nullptr || tokens_.set(id, bytes);
  }

  const Draft& draft_;
  const std::string& name_;
  TokenBytes tokens_;
  SentencePieces pieces_;
};

// What a text becomes before it is cut: replaced by the charsmap, spaces as asked for, as "▁".
std::string normalized(const SentencePieces& pieces, std::string_view text, bool at_start) {
  std::string replaced;
  if (pieces.charsmap) {
    for (size_t at = 0; at < text.size();) {
      const std::optional<Charsmap::Match> match = pieces.charsmap->match(text.substr(at));
      const size_t size = match ? match->length : base::utf8_step(text.substr(at)).bytes;
      replaced += match ? match->with : text.substr(at, size);
      at += size;
    }
    if (!base::is_valid_utf8(replaced)) replaced = base::replace_invalid_utf8(replaced);
    text = replaced;
  }
  if (pieces.removes_extra_spaces) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    text = text.substr(0, text.find_last_not_of(' ') + 1);
  }
  std::string out;
  if (text.empty()) return out;
  using Prefix = SentencePieces::Prefix;
  const bool has_own = text.starts_with(' ') || text.starts_with(kSpaceMark);
  const bool may_begin =
      pieces.prefix == Prefix::kAlways || (pieces.prefix == Prefix::kFirst && at_start);
  if (may_begin && !(pieces.prefix_where_missing && has_own)) out += kSpaceMark;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ' ') {
      out += text[at];
    } else if (!pieces.removes_extra_spaces || text[at - 1] != ' ') {
      out += kSpaceMark;
    }
  }
  return out;
}

// A character's tokens, where it is none itself.
void add_unknown(const SentencePieces& pieces, std::string_view character,
                 std::vector<TokenId>& out) {
  if (!pieces.has_bytes) return out.push_back(pieces.unknown);
  for (const char byte : character) out.push_back(pieces.byte_tokens[static_cast<uint8_t>(byte)]);
}

void encode_unigram(const SentencePieces& pieces, std::string_view text,
                    std::vector<TokenId>& out) {
  std::vector<Unigram::Part> parts;
  pieces.unigram->split(text, parts);
  bool was_unknown = false;
  for (const Unigram::Part& part : parts) {
    const bool is_unknown = part.id == kNoToken;
    if (!is_unknown) {
      out.push_back(part.id);
    } else if (pieces.has_bytes || !was_unknown) {
      add_unknown(pieces, part.text, out);
    }
    was_unknown = is_unknown;
  }
}

void encode_pairs(const SentencePieces& pieces, const BytePairEncoder& merges,
                  std::string_view text, std::vector<TokenId>& out) {
  std::vector<TokenId> parts;
  parts.reserve(text.size());
  while (!text.empty()) {
    const size_t size = base::utf8_step(text).bytes;
    const TokenId id = pieces.lookup.find(pieces.spelled, text.substr(0, size));
    if (id != kNoToken) {
      parts.push_back(id);
    } else if (pieces.has_bytes || parts.empty() || parts.back() != pieces.unknown) {
      add_unknown(pieces, text.substr(0, size), parts);
    }
    text.remove_prefix(size);
  }
  merges.merge(parts, out);
}

}  // namespace

// The byte that "<0x41>" stands for.
std::optional<uint8_t> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, failed] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  if (failed != std::errc() || end != text.data() + 5) return std::nullopt;
  return byte;
}

std::string with_spaces(std::string_view piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const size_t mark = std::min(piece.find(kSpaceMark, at), piece.size());
    out += piece.substr(at, mark - at);
    if (mark < piece.size()) out += ' ';
    at = mark + kSpaceMark.size();
  }
  return out;
}

bool is_sentence_pieces(const Draft& draft) {
  return draft.model.boolean("byte_fallback").value_or(false);
}

Result<TokenizerParts> read_sentence_pieces(const Draft& draft, std::vector<AddedToken> added,
                                            const std::string& name) {
  SpaceRules spaces(name);
  TRY(spaces.read(draft));
  PieceReader reader(draft, name);
  TRY(reader.read(added));
  TRY_ASSIGN(MergeTable merges, reader.read_merges());
  SentencePieces pieces = reader.take_pieces();
  pieces.prefix = spaces.prefix();
  pieces.prefix_where_missing = spaces.where_missing();
  return TokenizerParts{.tokens = reader.take_tokens(),
                        .lookup = TokenLookup(0),
                        .merges = std::move(merges),
                        .whole_pieces_first = false,
                        .normal_form_c = false,
                        .split_patterns = {},
                        .added = std::move(added),
                        .sentence_pieces = std::move(pieces)};
}

void encode_sentence_pieces(const SentencePieces& pieces, const BytePairEncoder& merges,
                            std::string_view text, bool at_start, std::vector<TokenId>& out) {
  const std::string marked = normalized(pieces, text, at_start);
  const std::string_view all = marked;
  const auto encode = [&](std::string_view part) {
    if (part.empty()) return;
    if (pieces.unigram) return encode_unigram(pieces, part, out);
    encode_pairs(pieces, merges, part, out);
  };
  size_t done = 0;
  while (const auto word = pieces.words.next(all, done)) {
    encode(all.substr(done, word->begin - done));
    out.push_back(word->id);
    done = word->begin + word->length;
  }
  encode(all.substr(done));
}

}  // namespace pelton::tokenizer
