#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/json_pieces.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/sentence_pieces.h"
#include "tokenizer/tokenizer_json_draft.h"

namespace pelton::tokenizer {
namespace {

using Draft = TokenizerJsonDraft;

// gpt-oss' file has 28 million bytes.
constexpr size_t kFileBytesMax = size_t{256} << 20;

// What would make this another algorithm than BPE.
Result<void> check_model(const Draft& draft, const std::string& type, const std::string& name) {
  if (type != "BPE") {
    return unsupported_tokenizer(name, "model.type",
                                 fmt::format("\"{}\", expected BPE, Unigram or WordPiece", type));
  }
  if (!draft.scores.empty()) return bad_tokenizer(name, "model.vocab", "is not an object");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!draft.model.string(key).value_or("").empty()) {
      return unsupported_tokenizer(name, fmt::format("model.{}", key), "is set");
    }
  }
  if (draft.model.number("dropout").value_or(0) != 0) {
    return unsupported_tokenizer(name, "model.dropout", "is set");
  }
  return {};
}

// Whether text is brought into form C first, as Qwen's files ask for.
Result<bool> read_normalizer(const Draft& draft, const std::string& name) {
  const Json* normalizer = draft.document.find("normalizer");
  if (normalizer == nullptr || normalizer->is_null()) return false;
  const std::string type = normalizer->string("type").value_or("set");
  if (type == "NFC") return true;
  return unsupported_tokenizer(name, "normalizer",
                               fmt::format("is {}, expected null or NFC", type));
}

Result<AddedToken> read_added_token(const Json& entry, const std::string& name,
                                    const std::string& field, bool normalized) {
  const std::optional<int64_t> id = entry.integer("id");
  if (!id || *id < 0 || *id >= kTokenIdsMax) {
    return bad_tokenizer(name, field + ".id",
                         fmt::format("is not an integer from 0 to {}", kTokenIdsMax - 1));
  }
  const std::optional<std::string> content = entry.string("content");
  if (!content || content->empty() || content->size() > kTokenBytesMax) {
    return bad_tokenizer(name, field + ".content",
                         fmt::format("is not a string of 1 to {} bytes", kTokenBytesMax));
  }
  if (entry.boolean("single_word").value_or(false)) {
    return unsupported_tokenizer(name, field + ".single_word", "is true");
  }
  // Looked for in the normalized text, behind the others. Plain ASCII, too: of ">" and a mark over
  // it form C makes one character.
  const bool in_normal_form = normalized && entry.boolean("normalized").value_or(false);
  return AddedToken{.id = static_cast<TokenId>(*id),
                    .text = *content,
                    .special = entry.boolean("special").value_or(false),
                    .strips_left = entry.boolean("lstrip").value_or(false),
                    .strips_right = entry.boolean("rstrip").value_or(false),
                    .normalized = in_normal_form};
}

Result<std::vector<AddedToken>> read_added_tokens(const Draft& draft, const std::string& name,
                                                  bool normalized) {
  std::vector<AddedToken> added;
  const Json* entries = draft.document.find("added_tokens");
  if (entries == nullptr || entries->is_null()) return added;
  if (!entries->is_array()) return bad_tokenizer(name, "added_tokens", "is not an array");
  for (const Json& entry : entries->as_array()) {
    TRY_ASSIGN(
        AddedToken token,
        read_added_token(entry, name, fmt::format("added_tokens[{}]", added.size()), normalized));
    added.push_back(std::move(token));
  }
  return added;
}

// The vocabulary: added tokens first, for where both name an id, the added one says what it is.
class VocabularyReader {
 public:
  VocabularyReader(const Draft& draft, const std::string& name)
      : draft_(draft), name_(name), lookup_(draft.vocab.size()) {}

  Result<void> read(const std::vector<AddedToken>& added) {
    tokens_.reserve(draft_.vocab.size() + added.size(), draft_.vocab_text.size());
    for (size_t i = 0; i < added.size(); ++i) {
      if (!tokens_.set(added[i].id, added[i].text)) {
        return bad_tokenizer(name_, fmt::format("added_tokens[{}].id", i),
                             fmt::format("{} is there twice", added[i].id));
      }
    }
    by_id_.resize(static_cast<size_t>(tokens_.size()));
    for (const AddedToken& token : added) by_id_[static_cast<size_t>(token.id)] = &token;
    for (const Draft::VocabEntry& entry : draft_.vocab) TRY(read_entry(entry));
    return {};
  }

  TokenBytes take_tokens() { return std::move(tokens_); }
  TokenLookup take_lookup() { return std::move(lookup_); }

 private:
  Result<void> read_entry(const Draft::VocabEntry& entry) {
    const std::string_view text = draft_.text(entry);
    scratch_.clear();
    const bool letters = append_letter_bytes(text, scratch_);
    const size_t index = static_cast<size_t>(entry.id);
    if (index < by_id_.size() && by_id_[index] != nullptr) {
      const AddedToken& added = *by_id_[index];
      if (letters && scratch_ == added.text)
        return added.special ? Result<void>{} : enter(entry.id);
      if (text == added.text) return {};
      return bad_tokenizer(name_, "model.vocab",
                           fmt::format("id {} is \"{}\" here and \"{}\" in added_tokens", entry.id,
                                       text, added.text));
    }
    if (!letters) {
      return bad_tokenizer(name_, "model.vocab",
                           fmt::format("\"{}\" is not in the byte alphabet", text));
    }
    if (scratch_.size() > kTokenBytesMax) {
      return bad_tokenizer(name_, "model.vocab",
                           fmt::format("token {} has {} bytes, the limit is {}", entry.id,
                                       scratch_.size(), kTokenBytesMax));
    }
    if (!tokens_.set(entry.id, scratch_)) {
      return bad_tokenizer(name_, "model.vocab", fmt::format("id {} is there twice", entry.id));
    }
    return enter(entry.id);
  }

  Result<void> enter(TokenId id) {
    const TokenId twin = lookup_.insert(tokens_, id);
    if (twin == kNoToken) return {};
    return bad_tokenizer(name_, "model.vocab",
                         fmt::format("ids {} and {} are the same token", twin, id));
  }

  const Draft& draft_;
  const std::string& name_;
  TokenBytes tokens_;
  TokenLookup lookup_;
  std::vector<const AddedToken*> by_id_;
  std::string scratch_;
};

// Files made from rank vocabularies (gpt-oss') list every way to cut every token, in the order of
// the tokens. Then the ids are the ranks, as in the vocabulary's own definition, where of two cuts
// of the same token the leftmost in the text comes first.
Result<MergeTable> read_merges(const Draft& draft, const std::string& name, bool ignore_merges,
                               const TokenBytes& tokens, const TokenLookup& lookup) {
  MergeTable merges(draft.merges.size());
  bool ordered = true;
  TokenId before = 0;
  for (size_t i = 0; i < draft.merges.size(); ++i) {
    const Draft::Merge& merge = draft.merges[i];
    const TokenId left = lookup.find(tokens, draft.left(merge));
    const TokenId right = lookup.find(tokens, draft.right(merge));
    const TokenId merged = lookup.find(tokens, draft.merged(merge));
    if (left == kNoToken || right == kNoToken || merged == kNoToken) {
      return bad_tokenizer(name, fmt::format("model.merges[{}]", i),
                           fmt::format("{} is not an ordinary token of the vocabulary",
                                       left == kNoToken    ? "its left side"
                                       : right == kNoToken ? "its right side"
                                                           : "its result"));
    }
    if (!merges.add(left, right, merged)) {
      return bad_tokenizer(name, fmt::format("model.merges[{}]", i), "is there twice");
    }
    ordered = ordered && before <= merged;
    before = merged;
  }
  if (!ordered || !ignore_merges) return merges;
  MergeTable of_ranks = MergeTable::of_ranks(tokens, lookup);
  return of_ranks.size() == merges.size() ? std::move(of_ranks) : std::move(merges);
}

Result<TokenizerParts> read_parts(const Draft& draft, const std::string& name) {
  const std::string type = draft.model.string("type").value_or("BPE");
  if (type == "Unigram") {
    TRY_ASSIGN(const std::vector<AddedToken> added, read_added_tokens(draft, name, false));
    return read_unigram_json(draft, added, name);
  }
  if (type == "WordPiece") {
    TRY_ASSIGN(std::vector<AddedToken> added, read_added_tokens(draft, name, false));
    return read_word_piece_json(draft, std::move(added), name);
  }
  TRY(check_model(draft, type, name));
  if (is_sentence_pieces(draft)) {
    TRY_ASSIGN(std::vector<AddedToken> added, read_added_tokens(draft, name, false));
    return read_sentence_pieces(draft, std::move(added), name);
  }
  TRY_ASSIGN(const bool normal_form_c, read_normalizer(draft, name));
  TRY_ASSIGN(std::vector<AddedToken> added, read_added_tokens(draft, name, normal_form_c));
  TRY_ASSIGN(std::vector<std::string> patterns,
             read_split_patterns(draft.document.find("pre_tokenizer"), name));
  VocabularyReader vocabulary(draft, name);
  TRY(vocabulary.read(added));
  TokenBytes tokens = vocabulary.take_tokens();
  TokenLookup lookup = vocabulary.take_lookup();
  const bool ignore_merges = draft.model.boolean("ignore_merges").value_or(false);
  TRY_ASSIGN(MergeTable merges, read_merges(draft, name, ignore_merges, tokens, lookup));
  return TokenizerParts{.tokens = std::move(tokens),
                        .lookup = std::move(lookup),
                        .merges = std::move(merges),
                        .whole_pieces_first = ignore_merges,
                        .normal_form_c = normal_form_c,
                        .split_patterns = std::move(patterns),
                        .added = std::move(added)};
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return bad_tokenizer(
        name, "size",
        fmt::format("{} bytes, the limit for a tokenizer.json is {}", text.size(), kFileBytesMax));
  }
  TRY_ASSIGN(const Draft draft, read_tokenizer_json_draft(text, name));
  if (!draft.has_model) return bad_tokenizer(name, "model", "is not there");
  TRY_ASSIGN(TokenizerParts parts, read_parts(draft, name));
  TRY_ASSIGN(parts.frame, read_post_processor(draft.document.find("post_processor"), name));
  return parts;
}

}  // namespace pelton::tokenizer
