// Writes tokenizer.json files in Hugging Face's byte-level BPE form, as gpt-oss' own is. For
// synthetic checkpoints and for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

enum class MergeForm {
  kPairs,    // ["a", "b"], as newer files have it
  kStrings,  // "a b", as older files have it
};

struct TokenizerFile {
  struct Merge {
    std::string left;
    std::string right;
  };
  std::vector<std::string> tokens;  // by id; an empty one is an id without a token
  std::vector<Merge> merges;        // in order of rank
  MergeForm merge_form = MergeForm::kPairs;
  bool ignore_merges = true;            // a piece that is a token is that token
  std::vector<std::string> cut_before;  // patterns that cut the text before the next does
  std::string split_pattern;
  std::vector<AddedToken> added;
  std::string begins_with;  // the added token that a text begins with; empty: none
};

std::string write_tokenizer_json(const TokenizerFile& file);

// The smallest vocabulary that has every byte and anyone's control tokens.
inline constexpr int kSyntheticVocabularyMin = 256 + 21;

// A tokenizer for random weights: any text encodes and decodes. Ids from 0 are the 256 bytes, then
// runs of lower-case letters with merges that make them; the last are Harmony's control tokens.
// They stand at 199998..200018 in a vocabulary of 201088 and nothing above, as gpt-oss has them.
// Error: kInvalidArgument if vocab_size is below kSyntheticVocabularyMin or above kTokenIdsMax.
Result<std::string> synthetic_tokenizer_json(int vocab_size);

// The same with the control tokens that models of this type (config.json's model_type) are trained
// with, <s> and </s> if the type is not known here; Qwen's markers for reasoning and calls are
// ordinary tokens. gpt-oss' stand where it has
// them, so its vocabulary has as many tokens as the model. The others have kSyntheticTokensMax at
// most: rows of the embedding above are then no token's and never sampled, and the file is some
// kilobytes.
inline constexpr int kSyntheticTokensMax = 1024;
struct SyntheticTokenizer {
  std::string json;
  std::string bos_token;  // empty: there is none
  std::string eos_token;
};
Result<SyntheticTokenizer> synthetic_tokenizer_for(std::string_view model_type, int vocab_size);

}  // namespace pelton::tokenizer
