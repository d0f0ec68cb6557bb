// What a token costs the automaton of a sequence's own text, by how often the text repeats itself.
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "base/token_id.h"
#include "speculative/suffix_automaton.h"

namespace pelton::speculative {
namespace {

// A text of a vocabulary of so many tokens.
void extend(benchmark::State& state) {
  constexpr int kTokens = 16384;
  const auto vocabulary = static_cast<double>(state.range(0));
  std::vector<TokenId> text;
  for (uint64_t i = 0; i < kTokens; ++i) {
    text.push_back(static_cast<TokenId>(base::random_unit(7, i) * vocabulary));
  }
  SuffixAutomaton automaton(kTokens);
  for (auto _ : state) {
    automaton.clear();
    for (const TokenId token : text) automaton.extend(token);
    benchmark::DoNotOptimize(automaton.match());
  }
  state.SetItemsProcessed(state.iterations() * kTokens);
}

BENCHMARK(extend)->ArgName("vocabulary")->Arg(1)->Arg(16)->Arg(1000)->Arg(200000);

}  // namespace
}  // namespace pelton::speculative
