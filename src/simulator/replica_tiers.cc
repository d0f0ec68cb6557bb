// The part of a simulated replica that moves keys and values: between tiers, and to and from
// others.
#include <algorithm>
#include <cmath>
#include <utility>

#include "simulator/replica.h"

namespace pelton::simulator {

// What a step reads from the host's memory it waits for; what it copies there goes beside it.
double Replica::with_copies(double seconds, const engine::StepPlan& plan) const {
  const KvPath& host = options_.paths.host;
  if (plan.copies.empty() || host.bytes_per_s == 0) return seconds;
  double in = 0;
  double out = 0;
  for (const engine::BlockCopy& copy : plan.copies) {
    const auto bytes = static_cast<double>(block_bytes(copy.group));
    if (copy.from_tier != kv::kDevice) in += bytes;
    if (copy.to_tier != kv::kDevice) out += bytes;
  }
  if (in > 0) seconds += host.seconds(in);
  return out > 0 ? std::max(seconds, host.seconds(out)) : seconds;
}

void Replica::wake_up(int64_t now_ns) {
  if (ready_ns_.empty() && !arrived_ns_) arrived_ns_ = now_ns;
}

void Replica::exchange(int64_t now_ns) {
  if (executor_.disk() != nullptr) exchange_with_disk(now_ns);
  if (core_.scheduler().peer_tier().on()) exchange_with_peers(now_ns);
}

// One block after the other. A disk that is asked while it is busy has sought meanwhile.
void Replica::exchange_with_disk(int64_t now_ns) {
  while (!on_disk_.empty() && on_disk_.front().ends_ns <= now_ns) {
    core_.finish_transfer(on_disk_.front().result, now_ns);
    on_disk_.pop_front();
  }
  std::vector<kv::BlockTransfer> transfers = core_.take_transfers();
  if (transfers.empty()) return;
  const KvPath& disk = options_.paths.disk;
  std::vector<int64_t> takes_ns;
  for (const kv::BlockTransfer& one : transfers) {
    const double bytes_s =
        disk.bytes_per_s > 0 ? static_cast<double>(block_bytes(one.group)) / disk.bytes_per_s : 0.0;
    const double seconds = bytes_s + (disk_free_ns_ <= now_ns ? disk.latency_s : 0.0);
    takes_ns.push_back(std::llround(seconds * 1e9));
    disk_free_ns_ = std::max(disk_free_ns_, now_ns) + takes_ns.back();
    on_disk_.push_back({.ends_ns = disk_free_ns_, .result = {}});
  }
  executor_.disk()->begin(std::move(transfers));
  // The executor's answers come in the order of what was asked.
  const size_t first = on_disk_.size() - takes_ns.size();
  const std::vector<kv::TransferResult> results = executor_.disk()->take_results();
  for (size_t i = 0; i < results.size(); ++i) {
    on_disk_[first + i].result = results[i];
    on_disk_[first + i].result.ns = takes_ns[i];
  }
}

// In the order of engine::Engine.
void Replica::exchange_with_peers(int64_t now_ns) {
  for (const kv::PeerFetched& fetched : std::exchange(fetched_, {})) {
    core_.finish_peer_fetch(fetched, now_ns);
  }
  for (const int64_t ask : std::exchange(over_, {})) core_.end_offer(ask);
  if (core_.scheduler().needs_offered()) {
    core_.end_all_offers();
    peer_news_.revoked = true;
  }
  for (const kv::PeerAsk& ask : std::exchange(asks_, {})) {
    const bool lacks = core_.scheduler().lacks_blocks();
    peer_news_.offers.push_back(lacks ? kv::PeerOffer{.id = ask.id, .blocks = {}}
                                      : core_.offer(ask, now_ns));
  }
  for (kv::PeerOffer& offer : core_.further_offers(now_ns)) {
    peer_news_.offers.push_back(std::move(offer));
  }
  for (kv::PeerFetch& fetch : core_.take_peer_fetches()) {
    peer_news_.fetches.push_back(std::move(fetch));
  }
  for (const int64_t id : core_.take_peer_cancels()) peer_news_.cancelled.push_back(id);
}

void Replica::hear(int64_t now_ns, kv::PeerFetched fetched) {
  fetched_.push_back(std::move(fetched));
  wake_up(now_ns);
}

void Replica::hear(int64_t now_ns, kv::PeerAsk ask) {
  asks_.push_back(std::move(ask));
  wake_up(now_ns);
}

void Replica::hear_over(int64_t now_ns, int64_t ask) {
  over_.push_back(ask);
  wake_up(now_ns);
}

void Replica::take_over(Replica& from, const kv::PeerOffer::Block& block, kv::BlockId host) {
  if (options_.checks) executor_.take_over(from.executor_, block, host);
}

}  // namespace pelton::simulator
