// A tokenizer.json as read, before it is understood: the two large tables in compact form, the rest
// as Json. Reading keeps no more than the file's own size and does not depend on the order of keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token_id.h"

namespace pelton::tokenizer {

struct TokenizerJsonDraft {
  struct VocabEntry {
    uint32_t begin;  // in vocab_text
    uint32_t length;
    TokenId id;  // in [0, kTokenIdsMax)
  };
  struct Merge {
    uint32_t begin;  // in merge_bytes; left, then right
    uint16_t left_length;
    uint16_t right_length;
  };

  std::string vocab_text;  // keys of model.vocab as they stand there
  std::vector<VocabEntry> vocab;
  std::vector<float> scores;  // by entry, where model.vocab is a list of pieces with scores
  std::string
      merge_bytes;  // model.merges, out of the byte alphabet; with byte_fallback as they are
  std::vector<Merge> merges;
  Json model;     // the small members of "model" that matter
  Json document;  // added_tokens, normalizer, pre_tokenizer
  bool has_model = false;

  std::string_view text(const VocabEntry& entry) const {
    return std::string_view(vocab_text).substr(entry.begin, entry.length);
  }
  std::string_view left(const Merge& merge) const {
    return std::string_view(merge_bytes).substr(merge.begin, merge.left_length);
  }
  std::string_view right(const Merge& merge) const {
    return std::string_view(merge_bytes)
        .substr(merge.begin + merge.left_length, merge.right_length);
  }
  std::string_view merged(const Merge& merge) const {
    return std::string_view(merge_bytes)
        .substr(merge.begin, merge.left_length + size_t{merge.right_length});
  }
};

// Error: kBadCheckpoint naming the field.
Result<TokenizerJsonDraft> read_tokenizer_json_draft(std::string_view text,
                                                     const std::string& name);

}  // namespace pelton::tokenizer
