// What a follower does from its job on: it loads its part of the model, says so, and computes the
// steps that the leader sends until the group ends. It samples nothing and keeps no sequences,
// only their block tables. The calling thread, which is its executor's.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "parallel/member.h"

namespace pelton::executor {

inline constexpr std::string_view kReady = "ready";

// Returns when the group has ended as it should. Errors: what kept it from taking part, which the
// leader knows by then.
Result<void> follow(parallel::Member& member);

// The name of the kernels that such a choice comes to here. Errors: kUnsupported where ranks cannot
// compute with them.
Result<std::string> usable_kernels(kernels::KernelChoice choice, base::ThreadPool& pool);

}  // namespace pelton::executor
