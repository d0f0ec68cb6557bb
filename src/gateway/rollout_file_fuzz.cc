// Any text is roll-outs, which are the same when they are written and read again, or is refused.
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "gateway/rollout_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const auto all = decode_rollouts(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!all.ok()) return 0;
  const auto again = decode_rollouts(encode(*all));
  CHECK(again.ok() && *again == *all);
  for (const SavedRollout& one : all->rollouts) {
    Rollout rollout({.name = one.name, .arm = "new"}, RankTest::Grid::kKept);
    rollout.restore(one.state, one.evidence);
    rollout.set_others({.evidence = one.evidence, .step_min = one.state.step});
    CHECK(rollout.share(true) >= 0 && rollout.share(true) <= 1);
    rollout.note({.side = ArmSide::kCandidate, .failed = true, .ttft_s = 1, .output_tokens = 1});
    rollout.pass(1, true);
    for (const Rollout::Test& test : rollout.tests()) CHECK(std::isfinite(test.log_evidence));
    CHECK(std::isfinite(rollout.report().ttft.estimate));
  }
  return 0;
}
