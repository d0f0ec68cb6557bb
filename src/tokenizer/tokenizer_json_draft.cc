#include "tokenizer/tokenizer_json_draft.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/json_visitor.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {
namespace {

// added_tokens of real files have some thousand entries of eight values.
constexpr size_t kSmallValuesMax = 1'000'000;
// Both the longest token in the byte alphabet (two bytes a letter) and a sane bound for keys.
constexpr size_t kTokenTextMax = kTokenBytesMax * 2;

class DraftReader : public base::JsonVisitor {
 public:
  explicit DraftReader(const std::string& name) : name_(name) {}

  bool begin_object() override;
  bool end_object() override;
  bool begin_array() override;
  bool end_array() override;
  bool key(std::string_view name) override;
  bool string(std::string_view value) override;
  bool integer(int64_t value) override;
  bool other(const Json& value) override;

  // Why the visit was stopped.
  Error take_error() { return std::move(error_); }
  bool is_object() const { return seen_object_; }
  TokenizerJsonDraft take() { return std::move(draft_); }

 private:
  enum class Place {
    kStart,
    kDocument,
    kModel,
    kVocab,
    kPieces,  // of model.vocab that is an array
    kPiece,
    kMerges,
    kMergePair,
    kOther
  };

  bool fail(const std::string& field, const std::string& what) {
    error_ = bad_tokenizer(name_, field, what);
    return false;
  }
  std::string merge_field() const { return fmt::format("model.merges[{}]", draft_.merges.size()); }
  std::string path() const { return place_ == Place::kModel ? "model." + key_ : key_; }

  bool begin_model();
  bool begin_vocab(Place place);
  bool begin_merges();
  bool wrong_kind(std::string_view found);
  bool keep_scalar(Json value);
  void begin_other();
  template <typename Event>
  bool other_event(int nesting, const Event& event);
  bool vocab_entry(int64_t id);
  bool piece_text(std::string_view text);
  bool piece_score(const Json& value);
  bool end_piece();
  bool merge_string(std::string_view text);
  bool merge_part(std::string_view letters);
  bool end_merge();

  const std::string& name_;
  TokenizerJsonDraft draft_;
  Error error_;
  Place place_ = Place::kStart;
  std::string key_;  // in the document, the model or the vocabulary
  bool seen_object_ = false;
  bool seen_vocab_ = false;
  bool seen_merges_ = false;

  // A value at `outer_` that is kept as Json or, if nobody wants it, passed over.
  Place outer_ = Place::kStart;
  int nesting_ = 0;
  bool wanted_ = false;
  base::JsonBuilder builder_{0};

  // The merge or the piece being read.
  int parts_ = 0;
  size_t lengths_[2] = {};
};

bool is_wanted_in_document(std::string_view key) {
  return key == "added_tokens" || key == "normalizer" || key == "pre_tokenizer" ||
         key == "post_processor";
}

bool is_wanted_in_model(std::string_view key) {
  static constexpr std::array<std::string_view, 9> kKeys = {"type",
                                                            "dropout",
                                                            "continuing_subword_prefix",
                                                            "byte_fallback",
                                                            "ignore_merges",
                                                            "unk_id",
                                                            "end_of_word_suffix",
                                                            "unk_token",
                                                            "max_input_chars_per_word"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

bool DraftReader::wrong_kind(std::string_view found) {
  switch (place_) {
    case Place::kStart:
      return fail("file", fmt::format("expected an object, found {}", found));
    case Place::kVocab:
      return fail("model.vocab",
                  fmt::format("the id of \"{}\" is {}, expected an integer", key_, found));
    case Place::kPieces:
    case Place::kPiece:
      return fail(fmt::format("model.vocab[{}]", draft_.vocab.size()),
                  fmt::format("expected [PIECE, SCORE], found {}", found));
    case Place::kMerges:
      return fail(merge_field(),
                  fmt::format("expected a pair or a string \"LEFT RIGHT\", found {}", found));
    case Place::kMergePair:
      return fail(merge_field(), fmt::format("expected two strings, found {}", found));
    default:
      return fail(path(), fmt::format("unexpected {}", found));
  }
}

bool DraftReader::begin_model() {
  if (draft_.has_model) return fail("model", "is there twice");
  draft_.has_model = true;
  place_ = Place::kModel;
  return true;
}

bool DraftReader::begin_vocab(Place place) {
  if (seen_vocab_) return fail("model.vocab", "is there twice");
  seen_vocab_ = true;
  place_ = place;
  return true;
}

bool DraftReader::begin_merges() {
  if (seen_merges_) return fail("model.merges", "is there twice");
  seen_merges_ = true;
  place_ = Place::kMerges;
  return true;
}

void DraftReader::begin_other() {
  outer_ = place_;
  wanted_ = place_ == Place::kModel ? is_wanted_in_model(key_) : is_wanted_in_document(key_);
  builder_ = base::JsonBuilder(kSmallValuesMax);
  place_ = Place::kOther;
  nesting_ = 0;
}

template <typename Event>
bool DraftReader::other_event(int nesting, const Event& event) {
  nesting_ += nesting;
  if (wanted_ && !event()) {
    place_ = outer_;
    return fail(path(), fmt::format("over {} values", kSmallValuesMax));
  }
  if (nesting_ == 0) {
    place_ = outer_;
    if (wanted_) return keep_scalar(builder_.take());
  }
  return true;
}

bool DraftReader::keep_scalar(Json value) {
  if (place_ == Place::kModel && is_wanted_in_model(key_)) draft_.model.set(key_, std::move(value));
  if (place_ == Place::kDocument && is_wanted_in_document(key_)) {
    draft_.document.set(key_, std::move(value));
  }
  return true;
}

bool DraftReader::begin_object() {
  switch (place_) {
    case Place::kStart:
      seen_object_ = true;
      place_ = Place::kDocument;
      return true;
    case Place::kDocument:
      if (key_ == "model") return begin_model();
      begin_other();
      break;
    case Place::kModel:
      if (key_ == "vocab") return begin_vocab(Place::kVocab);
      if (key_ == "merges") return wrong_kind("object, expected an array");
      begin_other();
      break;
    case Place::kOther:
      break;
    default:
      return wrong_kind("an object");
  }
  return other_event(1, [&] { return builder_.begin_object(); });
}

bool DraftReader::end_object() {
  if (place_ == Place::kOther) return other_event(-1, [&] { return builder_.end_object(); });
  if (place_ == Place::kVocab) {
    place_ = Place::kModel;
  } else if (place_ == Place::kModel) {
    place_ = Place::kDocument;
  }
  return true;
}

bool DraftReader::begin_array() {
  switch (place_) {
    case Place::kDocument:
      if (key_ == "model") return wrong_kind("array, expected an object");
      begin_other();
      break;
    case Place::kModel:
      if (key_ == "merges") return begin_merges();
      if (key_ == "vocab") return begin_vocab(Place::kPieces);
      begin_other();
      break;
    case Place::kPieces:
      place_ = Place::kPiece;
      parts_ = 0;
      return true;
    case Place::kMerges:
      place_ = Place::kMergePair;
      return true;
    case Place::kOther:
      break;
    default:
      return wrong_kind("an array");
  }
  return other_event(1, [&] { return builder_.begin_array(); });
}

bool DraftReader::end_array() {
  if (place_ == Place::kOther) return other_event(-1, [&] { return builder_.end_array(); });
  if (place_ == Place::kPiece) return end_piece();
  if (place_ == Place::kMergePair) {
    place_ = Place::kMerges;
    return end_merge();
  }
  place_ = Place::kModel;
  return true;
}

bool DraftReader::key(std::string_view name) {
  if (place_ == Place::kOther) {
    return other_event(0, [&] { return builder_.key(name); });
  }
  if (name.size() > kTokenTextMax) {
    return fail(place_ == Place::kVocab ? "model.vocab" : "file",
                fmt::format("a key of {} bytes, the limit is {}", name.size(), kTokenTextMax));
  }
  key_ = name;
  return true;
}

bool DraftReader::string(std::string_view value) {
  switch (place_) {
    case Place::kOther:
      return other_event(0, [&] { return builder_.string(value); });
    case Place::kPiece:
      return piece_text(value);
    case Place::kMerges:
      return merge_string(value);
    case Place::kMergePair:
      return merge_part(value);
    case Place::kDocument:
    case Place::kModel:
      if (key_ == "model" || key_ == "vocab" || key_ == "merges") return wrong_kind("string");
      return keep_scalar(Json(value));
    default:
      return wrong_kind("a string");
  }
}

bool DraftReader::integer(int64_t value) {
  if (place_ == Place::kVocab) return vocab_entry(value);
  return other(Json(value));
}

bool DraftReader::other(const Json& value) {
  switch (place_) {
    case Place::kPiece:
      return piece_score(value);
    case Place::kOther:
      return other_event(0, [&] {
        return value.is_integer() ? builder_.integer(value.as_integer()) : builder_.other(value);
      });
    case Place::kDocument:
    case Place::kModel:
      if (key_ == "model" || key_ == "vocab" || key_ == "merges") {
        return wrong_kind(value.kind_name());
      }
      return keep_scalar(value);
    default:
      return wrong_kind(value.kind_name());
  }
}

bool DraftReader::piece_text(std::string_view text) {
  if (parts_ != 0) return wrong_kind("a second string");
  if (text.empty() || text.size() > kTokenTextMax) {
    return fail(fmt::format("model.vocab[{}]", draft_.vocab.size()),
                fmt::format("a piece of {} bytes, expected 1 to {}", text.size(), kTokenTextMax));
  }
  key_ = text;
  parts_ = 1;
  return true;
}

bool DraftReader::piece_score(const Json& value) {
  if (parts_ != 1 || !value.is_number()) return wrong_kind(value.kind_name());
  parts_ = 2;
  draft_.scores.push_back(static_cast<float>(value.as_number()));
  return vocab_entry(static_cast<int64_t>(draft_.vocab.size()));
}

bool DraftReader::end_piece() {
  if (parts_ != 2) return wrong_kind("an array of another length");
  parts_ = 0;
  place_ = Place::kPieces;
  return true;
}

bool DraftReader::vocab_entry(int64_t id) {
  if (key_.empty()) return fail("model.vocab", "an empty token");
  if (id < 0 || id >= kTokenIdsMax) {
    return fail("model.vocab", fmt::format("the id of \"{}\" is {}, expected 0 to {}", key_, id,
                                           kTokenIdsMax - 1));
  }
  // Ids are checked to differ later; before that, a file must not make us store without bound.
  if (draft_.vocab.size() >= static_cast<size_t>(kTokenIdsMax)) {
    return fail("model.vocab", fmt::format("over {} tokens", kTokenIdsMax));
  }
  draft_.vocab.push_back({static_cast<uint32_t>(draft_.vocab_text.size()),
                          static_cast<uint32_t>(key_.size()), static_cast<TokenId>(id)});
  draft_.vocab_text += key_;
  return true;
}

bool DraftReader::merge_string(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return fail(merge_field(), "is not two tokens with one space between");
  }
  return merge_part(text.substr(0, space)) && merge_part(text.substr(space + 1)) && end_merge();
}

bool DraftReader::merge_part(std::string_view letters) {
  if (parts_ == 2) return fail(merge_field(), "over two strings");
  if (letters.empty()) return fail(merge_field(), "an empty token");
  if (letters.size() > kTokenTextMax) {
    return fail(merge_field(),
                fmt::format("a token of {} bytes, the limit is {}", letters.size(), kTokenTextMax));
  }
  const size_t before = draft_.merge_bytes.size();
  // SentencePiece's tokens stand as they are; all writers say so before the merges.
  if (draft_.model.boolean("byte_fallback").value_or(false)) {
    if (letters.size() > kTokenBytesMax) return fail(merge_field(), "a token is too long");
    draft_.merge_bytes += letters;
    lengths_[parts_++] = letters.size();
    return true;
  }
  if (!append_letter_bytes(letters, draft_.merge_bytes)) {
    return fail(merge_field(), fmt::format("\"{}\" is not in the byte alphabet", letters));
  }
  lengths_[parts_++] = draft_.merge_bytes.size() - before;
  return true;
}

bool DraftReader::end_merge() {
  if (parts_ != 2) return fail(merge_field(), fmt::format("{} strings, expected two", parts_));
  if (draft_.merges.size() >= static_cast<size_t>(kTokenIdsMax)) {
    return fail("model.merges", fmt::format("over {} merges", kTokenIdsMax));
  }
  parts_ = 0;
  const size_t begin = draft_.merge_bytes.size() - lengths_[0] - lengths_[1];
  draft_.merges.push_back({static_cast<uint32_t>(begin), static_cast<uint16_t>(lengths_[0]),
                           static_cast<uint16_t>(lengths_[1])});
  return true;
}

}  // namespace

Result<TokenizerJsonDraft> read_tokenizer_json_draft(std::string_view text,
                                                     const std::string& name) {
  DraftReader reader(name);
  const Result<void> visited = base::visit_json(text, reader);
  if (!visited.ok()) {
    if (visited.error().code == ErrorCode::kCancelled) return reader.take_error();
    return bad_tokenizer(name, "file", visited.error().message);
  }
  if (!reader.is_object()) return bad_tokenizer(name, "file", "expected an object");
  return reader.take();
}

}  // namespace pelton::tokenizer
