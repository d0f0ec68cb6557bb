// What the controller of speculation takes of a step: a choice, and what becomes of it.
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "engine/draft_controller.h"

namespace pelton::engine {
namespace {

void choose_and_note(benchmark::State& state) {
  const auto sequences = static_cast<size_t>(state.range(0));
  const auto places = static_cast<int>(state.range(1));
  DraftController controller({.tokens_max = places, .adaptive = true});
  std::vector<DraftHistory> histories(sequences);
  std::vector<DraftController::Candidate> candidates(sequences);
  uint64_t draws = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < sequences; ++i) {
      candidates[i] = {.history = &histories[i], .tokens_max = places};
    }
    controller.choose(candidates, static_cast<int>(sequences), 1 << 20);
    auto rows = static_cast<int>(sequences);
    for (size_t i = 0; i < sequences; ++i) {
      const int tokens = candidates[i].tokens;
      int accepted = 0;
      while (accepted < tokens && base::random_unit(7, draws++) < 0.8) ++accepted;
      controller.note_draft(histories[i],
                            {.granted = tokens, .drafted = tokens, .accepted = accepted});
      rows += tokens;
    }
    controller.note_step({.rows = rows, .longest_draft = places, .elapsed_ns = 1'000'000 + rows});
  }
  state.counters["guesses"] = controller.report().guesses;
}

BENCHMARK(choose_and_note)
    ->ArgNames({"sequences", "places"})
    ->Args({1, 8})
    ->Args({32, 8})
    ->Args({256, 8})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pelton::engine
