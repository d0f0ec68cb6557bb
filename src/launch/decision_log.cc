#include "launch/decision_log.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"

namespace pelton::launch {

void DecisionLog::note(std::span<const FleetScaler::PoolState> states, int64_t unix_ms) {
  for (const FleetScaler::PoolState& state : states) {
    Last now{.desired = state.decision.desired,
             .reason = state.decision.reason,
             .failure = state.announcement.failure};
    const auto [place, is_new] = last_.try_emplace(state.pool);
    if (!is_new && place->second == now) continue;
    const Last before = std::exchange(place->second, std::move(now));
    base::JsonWriter w(rows_[fmt::format("{:019}", ++number_)]);
    w.begin_object().key("n").integer(number_).key("at").integer(unix_ms);
    w.key("pool").string(state.pool).key("desired").integer(state.decision.desired).key("before");
    // Of the first one: what was there before it ordered any.
    const auto ordered = static_cast<int>(state.starts);
    w.integer(is_new ? std::max(state.ready + state.starting - ordered, 0) : before.desired);
    w.key("reason").string(autoscaler::reason_name(state.decision.reason));
    w.key("text").string(state.announcement.failure.empty() ? state.decision.text()
                                                            : state.announcement.failure);
    w.end_object();
    if (rows_.size() > kLines) rows_.erase(rows_.begin());
  }
}

}  // namespace pelton::launch
