#include "tokenizer/json_pieces.h"

#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "tokenizer/piece_model.h"
#include "tokenizer/sentence_pieces.h"
#include "tokenizer/word_piece_parts.h"

namespace pelton::tokenizer {
namespace {

using Draft = TokenizerJsonDraft;
using Step = std::function<Result<void>(const Json& step, const std::string& type)>;

// A normalizer or pre-tokenizer: one, or a sequence of them under `list`.
Result<void> each_step(const Draft& draft, const char* field, const char* list,
                       const std::string& name, const Step& read) {
  const Json* all = draft.document.find(field);
  if (all == nullptr || all->is_null()) return {};
  const std::string type = all->string("type").value_or("");
  if (type != "Sequence") return read(*all, type);
  const Json* steps = all->find(list);
  if (steps == nullptr || !steps->is_array()) {
    return bad_tokenizer(name, fmt::format("{}.{}", field, list), "is not an array");
  }
  for (const Json& step : steps->as_array()) TRY(read(step, step.string("type").value_or("")));
  return {};
}

Result<void> read_unigram_normalizer(const Json& step, const std::string& type,
                                     const std::string& name, PieceModel& model) {
  if (type == "Precompiled") {
    const std::optional<std::string> bytes =
        base::from_base64(step.string("precompiled_charsmap").value_or(""));
    if (!bytes) return bad_tokenizer(name, "normalizer.precompiled_charsmap", "is not base64");
    model.charsmap = *bytes;
    return {};
  }
  const Json* pattern = step.find("pattern");
  const bool is_runs = type == "Replace" && pattern != nullptr &&
                       pattern->string("Regex") == " {2,}" && step.string("content") == " ";
  if (is_runs || type == "Strip") {
    model.removes_extra_spaces = true;
    return {};
  }
  return unsupported_tokenizer(
      name, "normalizer",
      fmt::format("\"{}\"; known are Precompiled and runs of spaces to one", type));
}

Result<void> read_unigram_splitter(const Json& step, const std::string& type,
                                   const std::string& name, PieceModel& model) {
  if (type == "WhitespaceSplit") {
    model.removes_extra_spaces = true;
    return {};
  }
  if (type != "Metaspace") {
    return unsupported_tokenizer(
        name, "pre_tokenizer",
        fmt::format("\"{}\"; known are WhitespaceSplit and Metaspace", type));
  }
  const bool adds = step.boolean("add_prefix_space").value_or(true);
  const std::string scheme = step.string("prepend_scheme").value_or(adds ? "always" : "never");
  model.prefixes_space = scheme != "never";
  model.prefix_where_missing = true;
  return {};
}

PieceModel::Type type_of(const Draft& draft, TokenId id, std::string_view text,
                         const AddedToken* added) {
  if (draft.model.integer("unk_id") == id) return PieceModel::Type::kUnknown;
  if (added != nullptr) {
    return added->special ? PieceModel::Type::kControl : PieceModel::Type::kUserDefined;
  }
  const bool has_bytes = draft.model.boolean("byte_fallback").value_or(false);
  return has_bytes && byte_of(text) ? PieceModel::Type::kByte : PieceModel::Type::kNormal;
}

// BertNormalizer, or none.
Result<void> read_bert_normalizer(const Json& step, const std::string& type,
                                  const std::string& name, WordPieces& pieces) {
  if (type != "BertNormalizer") {
    return unsupported_tokenizer(name, "normalizer",
                                 fmt::format("\"{}\", expected BertNormalizer", type));
  }
  pieces.cleans = step.boolean("clean_text").value_or(true);
  pieces.parts_ideographs = step.boolean("handle_chinese_chars").value_or(true);
  pieces.lower_cases = step.boolean("lowercase").value_or(true);
  pieces.strips_accents = step.boolean("strip_accents").value_or(pieces.lower_cases);
  return {};
}

}  // namespace

Result<TokenizerParts> read_unigram_json(const Draft& draft, const std::vector<AddedToken>& added,
                                         const std::string& name) {
  if (draft.scores.size() != draft.vocab.size()) {
    return bad_tokenizer(name, "model.vocab", "is not a list of pieces with scores");
  }
  PieceModel model{.kind = PieceModel::Kind::kUnigram, .removes_extra_spaces = false};
  TRY(each_step(draft, "normalizer", "normalizers", name,
                [&](const Json& step, const std::string& type) {
                  return read_unigram_normalizer(step, type, name, model);
                }));
  TRY(each_step(draft, "pre_tokenizer", "pretokenizers", name,
                [&](const Json& step, const std::string& type) {
                  return read_unigram_splitter(step, type, name, model);
                }));
  std::vector<const AddedToken*> by_id(draft.vocab.size());
  for (const AddedToken& token : added) {
    const auto index = static_cast<size_t>(token.id);
    if (index >= kTokenIdsMax) continue;
    if (index >= by_id.size()) by_id.resize(index + 1);
    by_id[index] = &token;
  }
  model.pieces.resize(by_id.size(), {.type = PieceModel::Type::kUnused});
  for (size_t i = 0; i < by_id.size(); ++i) {
    const bool is_piece = i < draft.vocab.size();
    if (!is_piece && by_id[i] == nullptr) continue;
    const std::string_view text = is_piece ? draft.text(draft.vocab[i]) : by_id[i]->text;
    model.pieces[i] = {.text = std::string(text),
                       .score = is_piece ? draft.scores[i] : 0,
                       .type = type_of(draft, static_cast<TokenId>(i), text, by_id[i])};
  }
  TRY_ASSIGN(TokenizerParts parts, parts_of(model, name));
  parts.added = added;  // with what they strip
  return parts;
}

Result<TokenizerParts> read_word_piece_json(const Draft& draft, std::vector<AddedToken> added,
                                            const std::string& name) {
  WordPieces pieces(draft.vocab.size());
  pieces.cleans = pieces.parts_ideographs = pieces.lower_cases = pieces.strips_accents = false;
  TRY(each_step(draft, "normalizer", "normalizers", name,
                [&](const Json& step, const std::string& type) {
                  return read_bert_normalizer(step, type, name, pieces);
                }));
  TRY(each_step(draft, "pre_tokenizer", "pretokenizers", name,
                [&](const Json&, const std::string& type) -> Result<void> {
                  if (type == "BertPreTokenizer") return {};
                  return unsupported_tokenizer(
                      name, "pre_tokenizer",
                      fmt::format("\"{}\", expected BertPreTokenizer", type));
                }));
  pieces.continuation = draft.model.string("continuing_subword_prefix").value_or("##");
  const int64_t longest = draft.model.integer("max_input_chars_per_word").value_or(100);
  if (longest < 1 || longest > 1000) {
    return bad_tokenizer(name, "model.max_input_chars_per_word", "is not from 1 to 1000");
  }
  pieces.word_characters_max = static_cast<size_t>(longest);
  std::vector<std::string_view> texts;
  for (const Draft::VocabEntry& entry : draft.vocab) {
    const auto index = static_cast<size_t>(entry.id);
    if (index >= texts.size()) texts.resize(index + 1);
    if (!texts[index].empty()) {
      return bad_tokenizer(name, "model.vocab", fmt::format("id {} is there twice", entry.id));
    }
    texts[index] = draft.text(entry);
  }
  return word_piece_parts(std::move(pieces),
                          {.texts = texts,
                           .unknown = draft.model.string("unk_token").value_or("[UNK]"),
                           .added = std::move(added)},
                          name);
}

}  // namespace pelton::tokenizer
