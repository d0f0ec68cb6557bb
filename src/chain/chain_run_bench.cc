// What a run itself takes for a step, without the calls.
#include <string>

#include <benchmark/benchmark.h>

#include "chain/chain_run.h"

namespace pelton::chain {
namespace {

// A for_each of so many pieces, each answered at once.
void a_piece_of_a_run(benchmark::State& state) {
  const Chain chain = *parse_chain(R"(name = "c"
input = {items = "[string]"}
output = {text = "${all.text}"}
[[step]]
name = "each"
use = "model:m"
for_each = "${input.items}"
parallel = 64
with = {prompt = "${index}: ${item}"}
[[step]]
name = "all"
use = "builtin:join"
with = {parts = "${each[*].text}"}
)",
                                   "c.toml");
  Json::Array items(static_cast<size_t>(state.range(0)), Json("a piece of some text"));
  Json input{Json::Object{}};
  input.set("items", Json(std::move(items)));
  const CallAnswer answer{.fault = CallAnswer::Fault::kNone,
                          .status = 200,
                          .body = streamed_body(Endpoint::kChat, "an answer", "stop", Json()),
                          .detail = {}};
  for (auto _ : state) {
    ChainRun run(chain, input, {}, 0);
    while (!run.over()) {
      for (const StepCall& call : run.advance(0).calls) run.on_answer(call.id, answer, 0);
    }
    benchmark::DoNotOptimize(run.output());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(a_piece_of_a_run)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::chain
