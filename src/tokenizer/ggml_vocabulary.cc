#include "tokenizer/ggml_vocabulary.h"

#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/piece_model.h"
#include "tokenizer/sentence_pieces.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_json_draft.h"
#include "tokenizer/tokenizer_json_writer.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/word_piece_parts.h"

namespace pelton::tokenizer {
namespace {

// Adds one token of the file to what a tokenizer.json would say.
Result<void> add_token(TokenId id, std::string_view text, GgmlTokenType type,
                       const std::string& name, TokenizerFile& file) {
  const auto bad = [&](const std::string& what) {
    return bad_tokenizer(name, fmt::format("tokenizer.ggml.tokens[{}]", id), what);
  };
  if (text.size() > 4 * kTokenBytesMax) {
    return bad(fmt::format("has {} bytes, the limit is {}", text.size(), kTokenBytesMax));
  }
  if (!base::is_valid_utf8(text)) return bad("is not UTF-8");
  switch (type) {
    case GgmlTokenType::kControl:
    case GgmlTokenType::kUserDefined:
      if (text.empty()) return bad("is empty");
      file.added.push_back({id, std::string(text), type == GgmlTokenType::kControl});
      return {};
    case GgmlTokenType::kUnused:
      return {};
    case GgmlTokenType::kNormal:
      if (text.empty() || !append_letter_bytes(text, file.tokens[static_cast<size_t>(id)])) {
        return bad("is not in the byte alphabet");
      }
      return {};
    default:
      return unsupported_tokenizer(name, fmt::format("tokenizer.ggml.token_type[{}]", id),
                                   fmt::format("is {}", static_cast<int32_t>(type)));
  }
}

Result<void> add_merge(size_t index, std::string_view text, const std::string& name,
                       TokenizerFile& file) {
  const size_t space = text.find(' ');
  TokenizerFile::Merge merge;
  if (space == std::string_view::npos || !base::is_valid_utf8(text) ||
      !append_letter_bytes(text.substr(0, space), merge.left) ||
      !append_letter_bytes(text.substr(space + 1), merge.right) || merge.left.empty() ||
      merge.right.empty()) {
    return bad_tokenizer(name, fmt::format("tokenizer.ggml.merges[{}]", index),
                         "is not two texts in the byte alphabet with a space between");
  }
  file.merges.push_back(std::move(merge));
  return {};
}

Result<void> check_sizes(const GgmlVocabulary& vocabulary, const std::string& name) {
  if (!vocabulary.types.empty() && vocabulary.types.size() != vocabulary.tokens.size()) {
    return bad_tokenizer(name, "tokenizer.ggml.token_type",
                         fmt::format("has {} entries, but there are {} tokens",
                                     vocabulary.types.size(), vocabulary.tokens.size()));
  }
  if (vocabulary.tokens.size() > static_cast<size_t>(kTokenIdsMax)) {
    return bad_tokenizer(
        name, "tokenizer.ggml.tokens",
        fmt::format("has {} entries, the limit is {}", vocabulary.tokens.size(), kTokenIdsMax));
  }
  return {};
}

GgmlTokenType type_of(const GgmlVocabulary& vocabulary, size_t id) {
  return vocabulary.types.empty() ? GgmlTokenType::kNormal
                                  : static_cast<GgmlTokenType>(vocabulary.types[id]);
}

// Of pieces with scores.
Result<TokenizerParts> read_pieces(const GgmlVocabulary& vocabulary, const std::string& name) {
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    return bad_tokenizer(name, "tokenizer.ggml.scores",
                         fmt::format("has {} entries, but there are {} tokens",
                                     vocabulary.scores.size(), vocabulary.tokens.size()));
  }
  PieceModel model{
      .kind = vocabulary.model == "t5" ? PieceModel::Kind::kUnigram : PieceModel::Kind::kBpe,
      .charsmap = std::string(vocabulary.charsmap),
      .prefixes_space = vocabulary.prefixes_space,
      .removes_extra_spaces = vocabulary.removes_extra_spaces};
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto type = static_cast<int>(type_of(vocabulary, id));
    if (type < 1 || type > 6) {
      return bad_tokenizer(name, fmt::format("tokenizer.ggml.token_type[{}]", id),
                           fmt::format("is {}", type));
    }
    model.pieces.push_back({.text = std::string(vocabulary.tokens[id]),
                            .score = vocabulary.scores[id],
                            .type = static_cast<PieceModel::Type>(type)});
  }
  // Fillers that a converter calls unknown are none.
  bool has_unknown = false;
  for (PieceModel::Piece& piece : model.pieces) {
    if (piece.type != PieceModel::Type::kUnknown) continue;
    if (has_unknown) piece.type = PieceModel::Type::kUnused;
    has_unknown = true;
  }
  return parts_of(model, name);
}

// Of pieces with merges, as a tokenizer.json would have them.
Result<TokenizerParts> read_merged_pieces(const GgmlVocabulary& vocabulary,
                                          const std::string& name) {
  TokenizerJsonDraft draft;
  draft.model.set("byte_fallback", true);
  Json normalizer;
  Json pattern;
  pattern.set("String", " ");
  normalizer.set("type", "Replace").set("pattern", std::move(pattern)).set("content", "▁");
  draft.document.set("normalizer", std::move(normalizer));
  std::vector<AddedToken> added;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    const GgmlTokenType type = type_of(vocabulary, id);
    if (text.empty() || text.size() > kTokenBytesMax || !base::is_valid_utf8(text)) {
      return bad_tokenizer(name, fmt::format("tokenizer.ggml.tokens[{}]", id),
                           fmt::format("is not a text of 1 to {} bytes", kTokenBytesMax));
    }
    const bool is_control = type == GgmlTokenType::kControl;
    if (is_control || type == GgmlTokenType::kUserDefined) {
      added.push_back(
          {.id = static_cast<TokenId>(id), .text = std::string(text), .special = is_control});
      if (is_control) continue;
    }
    draft.vocab.push_back({static_cast<uint32_t>(draft.vocab_text.size()),
                           static_cast<uint32_t>(text.size()), static_cast<TokenId>(id)});
    draft.vocab_text += text;
  }
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view text = vocabulary.merges[i];
    const size_t space = text.find(' ', 1);
    const bool fits = space != std::string_view::npos && space <= kTokenBytesMax &&
                      text.size() - space - 1 <= kTokenBytesMax;
    if (!fits) {
      return bad_tokenizer(name, fmt::format("tokenizer.ggml.merges[{}]", i),
                           "is not two texts with a space between");
    }
    draft.merges.push_back({static_cast<uint32_t>(draft.merge_bytes.size()),
                            static_cast<uint16_t>(space),
                            static_cast<uint16_t>(text.size() - space - 1)});
    draft.merge_bytes += text.substr(0, space);
    draft.merge_bytes += text.substr(space + 1);
  }
  return read_sentence_pieces(draft, std::move(added), name);
}

// BERT's, whose words have a "▁" here where the vocabulary has nothing, and nothing for its "##".
Result<TokenizerParts> read_words(const GgmlVocabulary& vocabulary, const std::string& name) {
  constexpr std::string_view kBegins = "▁";
  WordPieces pieces(vocabulary.tokens.size());
  std::vector<std::string> spelled(vocabulary.tokens.size());
  std::vector<AddedToken> added;
  for (size_t id = 0; id < spelled.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    const bool is_control = type_of(vocabulary, id) == GgmlTokenType::kControl ||
                            static_cast<int64_t>(id) == vocabulary.unknown;
    if (is_control) {
      if (text.empty() || text.size() > kTokenBytesMax) {
        return bad_tokenizer(name, fmt::format("tokenizer.ggml.tokens[{}]", id), "has no text");
      }
      added.push_back({.id = static_cast<TokenId>(id), .text = std::string(text), .special = true});
      spelled[id] = text;
    } else if (text.starts_with(kBegins)) {
      spelled[id] = text.substr(kBegins.size());
    } else if (!text.empty()) {
      spelled[id] = pieces.continuation + std::string(text);
    }
  }
  if (vocabulary.unknown < 0 || vocabulary.unknown >= std::ssize(spelled)) {
    return bad_tokenizer(name, "tokenizer.ggml.unknown_token_id", "names no token");
  }
  const std::vector<std::string_view> texts(spelled.begin(), spelled.end());
  std::string unknown = spelled[static_cast<size_t>(vocabulary.unknown)];
  return word_piece_parts(
      std::move(pieces), {.texts = texts, .unknown = std::move(unknown), .added = std::move(added)},
      name);
}

}  // namespace

Result<TokenizerParts> read_ggml(const GgmlVocabulary& vocabulary, const std::string& name) {
  TRY(check_sizes(vocabulary, name));
  if (vocabulary.model == "llama" || vocabulary.model == "t5") return read_pieces(vocabulary, name);
  if (vocabulary.model == "gemma4") return read_merged_pieces(vocabulary, name);
  if (vocabulary.model == "bert") return read_words(vocabulary, name);
  TRY_ASSIGN(const std::string json, tokenizer_json_of(vocabulary, name));
  return read_tokenizer_json(json, name);
}

Result<std::string> tokenizer_json_of(const GgmlVocabulary& vocabulary, const std::string& name) {
  if (vocabulary.model != "gpt2") {
    return unsupported_tokenizer(
        name, "tokenizer.ggml.model",
        fmt::format("is \"{}\"; known are gpt2, llama, gemma4, t5 and bert",
                    base::replace_invalid_utf8(vocabulary.model)));
  }
  const NamedSplit* const split = find_split(vocabulary.split);
  if (split == nullptr) {
    return unsupported_tokenizer(
        name, "tokenizer.ggml.pre",
        fmt::format("is \"{}\"; known are {}", base::replace_invalid_utf8(vocabulary.split),
                    split_names()));
  }
  TRY(check_sizes(vocabulary, name));
  TokenizerFile file;
  file.cut_before.assign(split->patterns.begin(), split->patterns.end() - 1);
  file.split_pattern = split->patterns.back();
  file.ignore_merges = split->whole_pieces_first;
  file.merge_form = MergeForm::kStrings;
  file.tokens.resize(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto type = vocabulary.types.empty() ? GgmlTokenType::kNormal
                                               : static_cast<GgmlTokenType>(vocabulary.types[id]);
    TRY(add_token(static_cast<TokenId>(id), vocabulary.tokens[id], type, name, file));
  }
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    TRY(add_merge(i, vocabulary.merges[i], name, file));
  }
  return write_tokenizer_json(file);
}

Result<GgmlTables> ggml_tables_of(std::string_view tokenizer_json, const std::string& name,
                                  int vocab_size) {
  TRY_ASSIGN(const TokenizerJsonDraft draft, read_tokenizer_json_draft(tokenizer_json, name));
  GgmlTables tables;
  const auto count = static_cast<size_t>(vocab_size);
  tables.tokens.resize(count);
  tables.types.assign(count, static_cast<int32_t>(GgmlTokenType::kUnused));
  const auto set = [&](int64_t id, std::string_view text, GgmlTokenType type) -> Result<void> {
    if (id < 0 || id >= vocab_size) {
      return bad_tokenizer(name, "vocab",
                           fmt::format("has id {}, but the model has {} tokens", id, vocab_size));
    }
    tables.tokens[static_cast<size_t>(id)] = text;
    tables.types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
    return {};
  };
  for (const TokenizerJsonDraft::VocabEntry& entry : draft.vocab) {
    TRY(set(entry.id, draft.text(entry), GgmlTokenType::kNormal));
  }
  if (const Json* added = draft.document.find("added_tokens");
      added != nullptr && added->is_array()) {
    for (const Json& token : added->as_array()) {
      TRY(set(token.integer("id").value_or(-1), token.string("content").value_or(""),
              token.boolean("special").value_or(false) ? GgmlTokenType::kControl
                                                       : GgmlTokenType::kUserDefined));
    }
  }
  for (size_t id = 0; id < count; ++id) {
    if (tables.tokens[id].empty()) tables.tokens[id] = fmt::format("[PAD{}]", id);
  }
  for (const TokenizerJsonDraft::Merge& merge : draft.merges) {
    std::string text;
    append_byte_letters(draft.left(merge), text);
    text += ' ';
    append_byte_letters(draft.right(merge), text);
    tables.merges.push_back(std::move(text));
  }
  return tables;
}

}  // namespace pelton::tokenizer
