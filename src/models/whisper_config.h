// What a Whisper checkpoint is, read from its config.json and generation_config.json and checked
// (OpenAI 2022, arXiv 2212.04356; the files of Hugging Face). A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token_id.h"

namespace pelton::models {

struct WhisperConfig {
  int hidden_size = 0;
  int mel_bands = 80;
  int vocab_size = 0;
  int source_positions = 1500;  // states of a window of 30 s
  int target_positions = 448;   // tokens of the decoder, prompt included

  struct Stack {
    int layers = 0;
    int heads = 0;
    int inner = 0;
  };
  Stack encoder;
  Stack decoder;

  bool multilingual = true;
  std::vector<std::pair<std::string, TokenId>> languages;  // "en", by id
  TokenId end_of_text = 0;
  TokenId start = 0;
  TokenId transcribe = -1;  // -1: an English-only model has no tasks
  TokenId translate = -1;
  TokenId start_of_previous = 0;
  TokenId no_speech = 0;
  TokenId no_timestamps = 0;
  TokenId timestamp_begin = 0;  // 0.00 s; one each 0.02 s
  int initial_timestamp_max = 50;
  std::vector<TokenId> suppressed;        // never said
  std::vector<TokenId> suppressed_first;  // not as the first token

  // Those of the decoder whose look at the sound follows the words, for their times; none: it is
  // not said which.
  struct Head {
    int layer = 0;
    int head = 0;
  };
  std::vector<Head> alignment_heads;

  int frames() const { return 2 * source_positions; }  // of a window's spectrogram
  // At most of everything that is allocated for a window; and of its keys and values alone, which
  // each one more in a batch has.
  int64_t workspace_bytes() const;
  int64_t kv_bytes() const;
  // The keys and values of one text's tokens, which each beam has.
  int64_t text_bytes() const;
  // Of a language's token, or -1.
  TokenId language(std::string_view name) const;
};

// `folder` is for messages. Errors: kBadCheckpoint, kUnsupported, naming file and key.
Result<WhisperConfig> parse_whisper_config(const Json& config, const Json& generation,
                                           const std::string& folder);
Result<WhisperConfig> read_whisper_config(const std::string& folder);

}  // namespace pelton::models
