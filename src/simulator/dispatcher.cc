#include "simulator/dispatcher.h"

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::simulator {
namespace {

int first_up(std::span<const ReplicaState> replicas, size_t from) {
  for (size_t i = 0; i < replicas.size(); ++i) {
    const size_t index = (from + i) % replicas.size();
    if (replicas[index].is_up) return static_cast<int>(index);
  }
  return -1;
}

int least_busy(std::span<const ReplicaState> replicas) {
  int best = -1;
  int least = 0;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const int busy = replicas[i].running + replicas[i].queued;
    if (!replicas[i].is_up || (best >= 0 && busy >= least)) continue;
    best = static_cast<int>(i);
    least = busy;
  }
  return best;
}

}  // namespace

int Dispatcher::choose(std::span<const ReplicaState> replicas, int64_t conversation) {
  if (replicas.empty()) return -1;
  switch (policy_) {
    case Policy::kRoundRobin: {
      const int chosen = first_up(replicas, next_ % replicas.size());
      if (chosen >= 0) next_ = static_cast<size_t>(chosen) + 1;
      return chosen;
    }
    case Policy::kLeastBusy:
      return least_busy(replicas);
    case Policy::kSession:
      break;
  }
  const uint64_t name = base::mix64(static_cast<uint64_t>(conversation) + 1);
  return first_up(replicas, name % replicas.size());
}

Result<Dispatcher::Policy> parse_dispatch(std::string_view name) {
  if (name == "round-robin") return Dispatcher::Policy::kRoundRobin;
  if (name == "least-busy") return Dispatcher::Policy::kLeastBusy;
  if (name == "session") return Dispatcher::Policy::kSession;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is not round-robin, least-busy or session", name), "dispatch"};
}

}  // namespace pelton::simulator
