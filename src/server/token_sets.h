// Sets of a vocabulary's tokens by what stands in their texts, as the sampling needs them: the
// breakers of a DRY penalty. The texts are laid out once, at the first question; answers are kept,
// as clients ask with the same few lists. Of one model; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace pelton::server {

class TokenSets {
 public:
  // Bit t % 64 of word t / 64.
  using Set = std::shared_ptr<const std::vector<uint64_t>>;

  // The tokens whose text holds at least one of `texts`, none of which is empty. Takes about a
  // millisecond for four texts and 200 000 tokens, where it is not kept.
  Set containing(const std::vector<std::string>& texts, const tokenizer::Tokenizer& tokenizer);

 private:
  static constexpr size_t kKeptMax = 16;

  void lay_out(const tokenizer::Tokenizer& tokenizer);
  void add_containing(const std::string& text, std::vector<uint64_t>& set) const;

  std::mutex mutex_;
  std::string texts_;           // of all tokens, one behind the other
  std::vector<size_t> begins_;  // of each token's, and the end
  std::map<std::vector<std::string>, Set> kept_;
};

}  // namespace pelton::server
