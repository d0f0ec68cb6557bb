// What the files of sentence-transformers beside a model say of how its states become a text's
// vector: modules.json, 1_Pooling/config.json, config_sentence_transformers.json and
// sentence_bert_config.json. Read once; a plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::checkpoint {

enum class SentencePooling : uint8_t {
  kFirst,  // the first token's state
  kMean,   // the mean of all
  kLast,
};
std::string_view pooling_name(SentencePooling pooling);  // "cls", "mean", "last"

struct SentenceConfig {
  std::optional<SentencePooling> pooling;  // none: there is no modules.json, or no pooling in it
  bool normalises = false;                 // a Normalize module follows
  // Texts that go ahead of a query's or a document's: {"query", "query: "}.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;     // the name of the one that goes ahead of any; empty: none
  std::optional<int> tokens_max;  // max_seq_length

  // Null: there is none of that name.
  const std::string* prompt(std::string_view name) const;
};

// None of the files: an empty one. Errors: kBadCheckpoint and kUnsupported, naming file and key.
Result<SentenceConfig> read_sentence_config(const std::string& folder);

// The parts, for tests and fuzzing. `file` is for messages.
Result<SentencePooling> parse_pooling(const Json& json, const std::string& file);
Result<void> parse_prompts(const Json& json, const std::string& file, SentenceConfig& config);

}  // namespace pelton::checkpoint
