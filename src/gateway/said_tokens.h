// What one choice of an answer has said so far, as its workers reported: what another worker is
// given to go on from. One owner. Four bytes a token unless log-probabilities came with them.
#pragma once

#include <cstddef>
#include <cstdint>
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

  bool finished() const { return !end_.empty(); }
  size_t count() const { return ids_.size() + scored_.size(); }
  // As frames for the next worker.
  void append_frames(uint16_t choice, std::string& out) const;

 private:
  std::vector<TokenId> ids_;  // one of the two is empty
  std::vector<cluster::WireToken> scored_;
  std::string end_;  // a ChoiceEnd as it came
};

}  // namespace pelton::gateway
