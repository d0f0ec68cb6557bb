// The tokens of one sequence, counted and in order, for the penalties and what else looks back.
// Kept only for sequences whose sampling reads it. Owned by the executor's slot; its thread.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"

namespace pelton::sampling {

class TokenHistory {
 public:
  struct Count {
    bool in_prompt = false;
    int in_output = 0;
  };

  void clear() {
    counts_.clear();
    tokens_.clear();
    prompt_size_ = 0;
  }
  // Before any output.
  void add_prompt(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) counts_[token].in_prompt = true;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    prompt_size_ = tokens_.size();
  }
  void add_output(TokenId token) {
    ++counts_[token].in_output;
    tokens_.push_back(token);
  }

  const std::unordered_map<TokenId, Count>& counts() const { return counts_; }
  // Whether the last `last_n` tokens are all of them; negative: yes.
  bool is_whole(int last_n) const {
    return last_n < 0 || static_cast<size_t>(last_n) >= tokens_.size();
  }
  // Counted anew: where the last `last_n` are not all.
  std::unordered_map<TokenId, Count> counts_of_last(int last_n) const {
    std::unordered_map<TokenId, Count> counts;
    for (size_t i = tokens_.size() - static_cast<size_t>(last_n); i < tokens_.size(); ++i) {
      Count& count = counts[tokens_[i]];
      if (i < prompt_size_) {
        count.in_prompt = true;
      } else {
        ++count.in_output;
      }
    }
    return counts;
  }
  std::span<const TokenId> tokens() const { return tokens_; }  // prompt and output
  std::span<const TokenId> output() const { return tokens().subspan(prompt_size_); }

 private:
  std::unordered_map<TokenId, Count> counts_;
  std::vector<TokenId> tokens_;
  size_t prompt_size_ = 0;
};

}  // namespace pelton::sampling
