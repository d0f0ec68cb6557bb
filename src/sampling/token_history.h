// The tokens that penalties count, for one sequence. Kept only for sequences with penalties. Owned
// by the executor's slot; its thread.
#pragma once

#include <span>
#include <unordered_map>

#include "base/token_id.h"

namespace pelton::sampling {

class TokenHistory {
 public:
  struct Count {
    bool in_prompt = false;
    int in_output = 0;
  };

  void clear() { counts_.clear(); }
  void add_prompt(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) counts_[token].in_prompt = true;
  }
  void add_output(TokenId token) { ++counts_[token].in_output; }

  const std::unordered_map<TokenId, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<TokenId, Count> counts_;
};

}  // namespace pelton::sampling
