#include "simulator/start_fetches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pelton::simulator {
namespace {

constexpr double kByte = 0.5;  // less than this is left over by arithmetic

int64_t later(int64_t at_ns, double seconds) {
  constexpr double kMost_s = 1e9;
  return at_ns + static_cast<int64_t>(std::ceil(std::min(seconds, kMost_s) * 1e9));
}

}  // namespace

void StartFetches::begin(int replica, int64_t from_ns, double bytes) {
  fetches_.push_back({.replica = replica, .from_ns = from_ns, .bytes_left = std::max(bytes, 1.0)});
}

void StartFetches::cancel(int replica, int64_t now_ns) {
  flow(fetches_, flowed_ns_, now_ns, [&](int one, int64_t at_ns) {
    ended_.push_back({one, at_ns});
  });
  std::erase_if(fetches_, [&](const Fetch& one) { return one.replica == replica; });
  std::erase_if(ended_, [&](const End& one) { return one.replica == replica; });
}

// From moment to moment at which one begins or ends: between two of them all rates stay.
void StartFetches::flow(std::vector<Fetch>& fetches, int64_t& at_ns, int64_t until_ns,
                        const Ended& ended) const {
  while (!fetches.empty() && at_ns < until_ns) {
    int64_t next_ns = until_ns;
    int active = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const Fetch& one : fetches) {
      if (one.from_ns > at_ns) {
        next_ns = std::min(next_ns, one.from_ns);
      } else {
        ++active;
        least = std::min(least, one.bytes_left);
      }
    }
    double rate = options_.bytes_per_s;
    if (options_.shared_bytes_per_s > 0 && active > 0) {
      rate = std::min(rate, options_.shared_bytes_per_s / active);
    }
    if (active > 0) next_ns = std::min(next_ns, later(at_ns, least / rate));
    const double moved = rate * static_cast<double>(next_ns - at_ns) * 1e-9;
    for (Fetch& one : fetches) {
      if (one.from_ns <= at_ns) one.bytes_left -= moved;
    }
    at_ns = next_ns;
    std::erase_if(fetches, [&](const Fetch& one) {
      if (one.bytes_left > kByte) return false;
      ended(one.replica, next_ns);
      return true;
    });
  }
  if (fetches.empty()) at_ns = std::max(at_ns, until_ns);
}

std::vector<StartFetches::End> StartFetches::ends(int64_t now_ns) {
  const auto note = [&](int replica, int64_t at_ns) { ended_.push_back({replica, at_ns}); };
  flow(fetches_, flowed_ns_, now_ns, note);
  std::vector<End> all = std::exchange(ended_, {});
  std::vector<Fetch> to_come = fetches_;
  int64_t at_ns = flowed_ns_;
  flow(to_come, at_ns, std::numeric_limits<int64_t>::max(), [&](int replica, int64_t end_ns) {
    all.push_back({replica, end_ns});
  });
  return all;
}

}  // namespace pelton::simulator
