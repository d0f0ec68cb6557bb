// What a follower does from its job on: it loads its part of the model, says so, and computes the
// steps that the leader sends until the group ends. It samples nothing and keeps no sequences,
// only their block tables. The calling thread, which is its executor's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/weight_ranges.h"
#include "kernels/kernels.h"
#include "parallel/member.h"

namespace pelton::executor {

inline constexpr std::string_view kReady = "ready";

// Of a follower that somebody else has started; of the leader's own all is in its job.
struct FollowerOptions {
  std::string model = {};  // where its files lie here; empty: where the leader has them
  int threads = 0;
  std::vector<int> processors = {};
  std::map<std::string, std::string> facts = {};  // which the leader's must be, too

  // Called when the part is loaded, with the weights that it computes with and the time in which
  // all of them are to be looked at; what comes back is kept as long as they are. May be empty.
  using Watch = std::function<std::shared_ptr<const void>(const checkpoint::WeightRanges& weights,
                                                          int64_t scrub_period_ns)>;
  Watch watch = {};

  bool is_own() const { return model.empty(); }
};

// Returns when the group has ended as it should. Errors: what kept it from taking part, which the
// leader knows by then.
Result<void> follow(parallel::Member& member, const FollowerOptions& options = {});

// The name of the kernels that such a choice comes to here. Errors: kUnsupported where ranks cannot
// compute with them.
Result<std::string> usable_kernels(kernels::KernelChoice choice, base::ThreadPool& pool);

}  // namespace pelton::executor
