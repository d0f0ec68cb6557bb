// What one choice of an answer has said so far, as its workers reported: what another worker is
// given to go on from. One owner. Four bytes a token unless log-probabilities came with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/token_list.h"

namespace pelton::gateway {

class SaidTokens {
 public:
  // kInvalidArgument: they do not begin where the last ones ended, or the choice had ended.
  Result<void> add(cluster::TokenList list);
  Result<void> finish(std::string choice_end);

  // What whoever says the first token found of the prompt: a PromptFound, as it came. What is found
  // later was computed for it.
  void note_found(std::string found);
  // Of the prompt, by that; none: nobody has said so.
  std::optional<int> cached_tokens() const;
  int fetched_tokens() const;  // of these, from other workers

  // What came behind its first `tokens` has not been said; `finished`: nor its end, if not.
  void cut(size_t tokens, bool finished);
  // Of the tokens, in their order: 0 of none.
  uint64_t digest() const { return digest_; }

  bool finished() const { return !end_.empty(); }
  size_t count() const { return ids_.size() + scored_.size(); }
  // As frames for the next worker.
  void append_frames(uint16_t choice, std::string& out) const;

 private:
  std::vector<TokenId> ids_;  // one of the two is empty
  std::vector<cluster::WireToken> scored_;
  uint64_t digest_ = 0;
  std::string found_;  // a PromptFound as it came
  std::string end_;    // a ChoiceEnd as it came
};

}  // namespace pelton::gateway
