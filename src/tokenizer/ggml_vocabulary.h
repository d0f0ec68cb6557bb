// The vocabulary as GGUF files carry it (tokenizer.ggml.tokens, merges, token_type), turned into a
// tokenizer.json and back: so that both kinds of files are read by the same code and give the same
// ids. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// ggml's numbers.
enum class GgmlTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgmlVocabulary {
  // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece's BPE, by scores),
  // "gemma4" (the same, by merges), "t5" (unigram), "bert" (WordPiece).
  std::string_view model;
  std::string_view split;                    // tokenizer.ggml.pre: "gpt-4o"
  std::span<const std::string_view> tokens;  // by id; normal ones in the byte alphabet
  std::span<const std::string_view> merges;  // "left right", in order of rank
  std::span<const int32_t> types;            // as many as tokens, or none: all normal
  std::span<const float> scores = {};        // as many as tokens: of "llama" and "t5"
  std::string_view charsmap = {};            // of "t5", may be empty
  bool prefixes_space = true;
  bool removes_extra_spaces = false;
  int64_t unknown = -1;  // "bert": the token of unknown words
};

// Errors as below.
Result<TokenizerParts> read_ggml(const GgmlVocabulary& vocabulary, const std::string& name);

// Of "gpt2". `name` is the file's, for messages. Errors: kBadCheckpoint naming key and element;
// kUnsupported for another model or split pattern.
Result<std::string> tokenizer_json_of(const GgmlVocabulary& vocabulary, const std::string& name);

struct GgmlTables {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<int32_t> types;
};

// The reverse, with `vocab_size` tokens; ids without one become unused filler.
Result<GgmlTables> ggml_tables_of(std::string_view tokenizer_json, const std::string& name,
                                  int vocab_size);

}  // namespace pelton::tokenizer
