// Any bytes as a chain file: refused with a line, or a chain that is drawn and run to an end with
// answers of the same bytes.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "chain/chain.h"
#include "chain/chain_graph.h"
#include "chain/chain_run.h"

namespace {

using namespace pelton;         // NOLINT: a program of one file
using namespace pelton::chain;  // NOLINT

// Of each type the simplest value.
Json value_of(const Type& type) {
  switch (type.kind) {
    case Type::Kind::kText:
      return Json("a b. c");
    case Type::Kind::kNumber:
      return Json(0.5);
    case Type::Kind::kInteger:
      return Json(2);
    case Type::Kind::kBoolean:
      return Json(true);
    case Type::Kind::kList:
      return Json(Json::Array{value_of(*type.item)});
    default:
      return Json{Json::Object{}};
  }
}

void run_to_the_end(const Chain& chain, const std::string& answer) {
  Json input{Json::Object{}};
  for (const Type::Field& field : chain.input) input.set(field.name, value_of(field.type));
  CHECK(check_input(chain, input).ok());
  int64_t now = 0;
  ChainRun run(chain, input, {.value_bytes_max = 1 << 20, .rendered_bytes_max = 1 << 16}, now);
  constexpr int kTurnsMax = 20'000;
  for (int turn = 0; turn < kTurnsMax && !run.over(); ++turn) {
    const ChainRun::Work work = run.advance(now);
    for (const StepCall& call : work.calls) {
      run.on_answer(call.id,
                    {.fault = CallAnswer::Fault::kNone,
                     .status = call.id % 5 == 0 ? 503 : 200,
                     .body = answer,
                     .detail = {}},
                    now);
    }
    if (run.over() || !work.calls.empty()) continue;
    CHECK(run.wake_ns().has_value());
    now = std::max(now, *run.wake_ns());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<Chain> chain = parse_chain(text, "fuzz.toml");
  if (!chain.ok()) {
    CHECK(chain.error().message.starts_with("fuzz.toml:"), chain.error().message);
    return 0;
  }
  CHECK(!graph_text(*chain).empty() && !graph_dot(*chain).empty());
  run_to_the_end(*chain, R"({"choices":[{"message":{"content":"a"},"text":"a"}],)"
                         R"("data":[{"embedding":[1,0]}],)"
                         R"("results":[{"index":0,"relevance_score":1}]})");
  run_to_the_end(*chain, text);
  return 0;
}
