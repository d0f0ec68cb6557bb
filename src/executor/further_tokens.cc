#include "executor/further_tokens.h"

#include <utility>

namespace pelton::executor {

void insert_further(std::span<const size_t> sequences,
                    std::span<std::vector<engine::SampledToken>> further,
                    engine::StepResult& result) {
  size_t more = 0;
  for (size_t row = 0; row < sequences.size(); ++row) more += further[row].size();
  if (more == 0) return;
  std::vector<engine::SampledToken> tokens;
  tokens.reserve(sequences.size() + more);
  for (size_t row = 0; row < sequences.size(); ++row) {
    engine::Slice& given = result.sequences[sequences[row]].tokens;
    given.first = static_cast<int32_t>(tokens.size());
    tokens.push_back(std::move(result.tokens[row]));
    given.count += static_cast<int32_t>(further[row].size());
    for (engine::SampledToken& token : further[row]) tokens.push_back(std::move(token));
    further[row].clear();
  }
  result.tokens = std::move(tokens);
}

}  // namespace pelton::executor
