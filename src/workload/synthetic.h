// Prompts made of random words: lengths are what was asked for, contents are nobody's. One seed
// gives one set. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "workload/conversation.h"
#include "workload/vocabulary.h"

namespace pelton::workload {

// The most tokens that one data set may hold: some hundred megabytes of text.
inline constexpr int64_t kDatasetTokensMax = 150'000'000;

struct RandomLengths {
  int input_tokens = 1024;
  int output_tokens = 128;
  double range_ratio = 0;  // lengths are drawn from length * (1 - ratio) to length * (1 + ratio)
  int prefix_tokens = 0;   // the same for all prompts, before each, on top of input_tokens
};

// Several turns to a conversation, each with lengths of its own.
struct Turns {
  int count = 1;
  double think_s = 0;  // mean of the pauses before later turns, drawn from an exponential
};

// Errors: kInvalidArgument.
Result<std::vector<Conversation>> random_conversations(const RandomLengths& lengths,
                                                       const Turns& turns, int64_t count,
                                                       const Vocabulary& vocabulary, uint64_t seed);

struct PrefixRepetition {
  int prefix_tokens = 256;
  int suffix_tokens = 256;
  int prefix_count = 10;
  int output_tokens = 128;
};

// Each prefix begins about count / prefix_count prompts; in random order.
Result<std::vector<Conversation>> prefix_repetition(const PrefixRepetition& options, int64_t count,
                                                    const Vocabulary& vocabulary, uint64_t seed);

// Lengths that a team asks for by name: "prefill-heavy", "decode-heavy", "conversation".
Result<RandomLengths> preset_lengths(const std::string& name);

}  // namespace pelton::workload
