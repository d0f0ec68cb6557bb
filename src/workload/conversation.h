// What a load asks: conversations of one turn or several, with the lengths that are wanted. Plain
// values; texts here, or token ids where a dataset fixes lengths to the token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/token_id.h"

namespace pelton::workload {

// Of an answer whose length is left to the model, where a length must be assumed.
inline constexpr int kOutputTokensOtherwise = 256;

struct Turn {
  std::string prompt;         // what the user says in this turn
  std::vector<TokenId> ids;   // the same in tokens; empty where only the text is known
  int prompt_tokens = -1;     // of `prompt` alone; -1: not known
  int output_tokens = 0;      // the longest answer wanted; 0: as long as the model likes
  double think_s = 0;         // the user's pause before this turn, after the answer before it
  std::string messages_json;  // a chat's "messages" as the dataset has them; instead of `prompt`
};

struct Conversation {
  std::vector<Turn> turns;     // at least one
  std::optional<double> at_s;  // a trace says when it began
  std::string system;          // said before the first turn; empty: nothing
};

}  // namespace pelton::workload
