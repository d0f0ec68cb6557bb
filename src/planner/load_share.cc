#include "planner/load_share.h"

#include <fmt/format.h>

namespace pelton::planner {

std::optional<LoadShare> load_share(CapacityOptions capacity, const OfferedTo& offered) {
  if (offered.load.requests_per_s <= 0) return std::nullopt;
  capacity.objectives = {};
  capacity.demand = demand_of(offered.load);
  const auto share = [&]() -> std::optional<double> {
    const CopyCapacity copy = copy_capacity(capacity);
    if (!copy.possible) return std::nullopt;
    return offered.load.requests_per_s / (copy.requests_per_s * offered.replicas);
  };
  const std::optional<double> computed = share();
  if (!computed) return std::nullopt;
  constexpr double kWorthSaying = 0.01;
  if (offered.cached_share < kWorthSaying) return LoadShare{.computed = *computed};
  capacity.demand.cached_tokens = capacity.demand.input_tokens * offered.cached_share;
  return LoadShare{.computed = *computed, .with_cache = share()};
}

std::string load_words(const std::optional<LoadShare>& share, int replicas) {
  if (!share) return "all that could be asked at once";
  std::string words = fmt::format("{:.0f} % of what {} can answer in the long run",
                                  share->computed * 100, replicas == 1 ? "it" : "they");
  if (share->with_cache) {
    words += fmt::format(" ({:.0f} % with the prefix cache as here)", *share->with_cache * 100);
  }
  return words;
}

}  // namespace pelton::planner
