#include "simulator/network.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace pelton::simulator {
namespace {

constexpr uint64_t kNetworkStream = 0x6E6574776F726B;
// Linux's: the least and the longest pause before a segment is sent again, and how often it is
// (RFC 6298; tcp_retries2).
constexpr int64_t kAgainLeast_ns = 200'000'000;
constexpr int64_t kAgainMost_ns = 120'000'000'000;
constexpr int kCopiesMax = 16;

int64_t to_nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

}  // namespace

Result<void> NetworkOptions::check() const {
  const auto bad = [](const char* field, const char* what) {
    return Error{ErrorCode::kInvalidArgument, what, field};
  };
  if (!(round_trip_s >= 0 && round_trip_s <= 10)) {
    return bad("network-latency", "network-latency must be 0 to 10 seconds");
  }
  if (!(loss >= 0 && loss <= 0.9)) return bad("network-loss", "network-loss must be 0 to 0.9");
  return {};
}

Network::Network(const Options& options, const std::vector<Fault>& faults)
    : options_(options), faults_(static_cast<size_t>(options.replicas)) {
  for (const Fault& fault : faults) {
    if (fault.is_of_network()) faults_[static_cast<size_t>(fault.replica)].push_back(&fault);
  }
}

Network::Weather Network::weather(int64_t at_ns, int gateway, int replica) const {
  Weather now{.loss = options_.asked.loss};
  const double at_s = static_cast<double>(at_ns) * 1e-9;
  for (const Fault* const fault : faults_[static_cast<size_t>(replica)]) {
    if (fault->gateway >= 0 && fault->gateway != gateway) continue;
    if (at_s < fault->at_s || at_s >= fault->until_s) continue;
    now.is_cut = now.is_cut || fault->kind == Fault::Kind::kCut;
    if (fault->kind == Fault::Kind::kLossy) now.loss = std::max(now.loss, fault->share);
    if (fault->kind == Fault::Kind::kLate) now.delay_s += fault->delay_s;
  }
  return now;
}

std::optional<int64_t> Network::arrives_ns(int64_t now_ns, int gateway, int replica) {
  ++counts_.messages;
  const int64_t way_ns = to_nanoseconds(options_.asked.round_trip_s / 2);
  int64_t sent_ns = now_ns;
  int64_t again_ns = kAgainLeast_ns + 2 * way_ns;
  bool was_cut = false;
  for (int copy = 0; copy < kCopiesMax; ++copy) {
    const Weather there = weather(sent_ns, gateway, replica);
    if (there.is_cut) {
      if (!std::exchange(was_cut, true)) ++counts_.cut_off;
    } else if (there.loss > 0 &&
               base::random_unit(options_.seed ^ kNetworkStream, drawn_++) < there.loss) {
      ++counts_.copies_lost;
    } else {
      return sent_ns + way_ns + to_nanoseconds(there.delay_s);
    }
    sent_ns += again_ns;
    again_ns = std::min(2 * again_ns, kAgainMost_ns);
  }
  ++counts_.given_up;
  return std::nullopt;
}

}  // namespace pelton::simulator
