#include "executor/jump_forward.h"

#include <utility>

namespace pelton::executor {

void insert_jumps(std::span<const size_t> sequences, std::span<const std::vector<TokenId>> jumps,
                  engine::StepResult& result) {
  size_t more = 0;
  for (size_t row = 0; row < sequences.size(); ++row) more += jumps[row].size();
  if (more == 0) return;
  std::vector<engine::SampledToken> tokens;
  tokens.reserve(sequences.size() + more);
  for (size_t row = 0; row < sequences.size(); ++row) {
    engine::Slice& given = result.sequences[sequences[row]].tokens;
    given.first = static_cast<int32_t>(tokens.size());
    tokens.push_back(std::move(result.tokens[row]));
    for (const TokenId token : jumps[row]) tokens.push_back({.token = token});
    given.count += static_cast<int32_t>(jumps[row].size());
  }
  result.tokens = std::move(tokens);
}

}  // namespace pelton::executor
