// For tests: a model that says anything its request allows, and so shows what a format lets
// through. Pure.
#pragma once

#include <bit>
#include <set>
#include <vector>

#include "base/random.h"
#include "chat/harmony_tokens.h"
#include "server/server_fixture.h"

namespace pelton::server {

// Whatever is allowed; from 60 tokens on ever likelier one that closes something.
inline TokenId any_allowed(const engine::ModelledExecutor::Seen& seen,
                           const chat::HarmonyTokens& harmony) {
  const size_t at = seen.tokens.size();
  const size_t said = at - static_cast<size_t>(seen.prompt_count);
  std::vector<TokenId> all;
  std::vector<TokenId> closing;
  static const std::set<TokenId> kClosing = {'"', '}', ']', ':', 'e', 'n', 'u', 'l'};
  for (size_t word = 0; word < seen.allowed.size(); ++word) {
    for (uint64_t bits = seen.allowed[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<TokenId>(word * 64 + std::countr_zero(bits));
      all.push_back(token);
      const bool control = token >= chat::kTinyOrdinaryTokens && token != harmony.start;
      if (control || kClosing.contains(token)) closing.push_back(token);
    }
  }
  if (all.empty()) return harmony.return_;  // nothing is asked for: it is over
  const uint64_t random = base::random_bits(seen.sampling.seed, at);
  const bool close = !closing.empty() && random % 200 < said * 2;
  const std::vector<TokenId>& from = close ? closing : all;
  return from[(random >> 20) % from.size()];
}

inline ServerFixture::Options any_options() {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
    const chat::HarmonyTokens harmony = chat::HarmonyTokens::find(tokenizer).value();
    executor.jump_tokens_max = engine::kJumpTokensMax;
    executor.next_token = [harmony](const engine::ModelledExecutor::Seen& seen) {
      return any_allowed(seen, harmony);
    };
  };
  return options;
}

}  // namespace pelton::server
