#include "engine/peer_tier.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/check.h"
#include "kv/prefix_match.h"

namespace pelton::engine {

using kv::BlockHash;
using kv::BlockId;
using kv::BlockPool;
using kv::kNoBlock;
using Outcome = kv::PeerFetched::Outcome;

namespace {

constexpr size_t kTransfersMax = 64;
constexpr size_t kOffersMax = 64;
constexpr size_t kTroublesMax = 256;
// Fetching has to be so much quicker than computing: both are estimates.
constexpr double kWorthwhile = 0.8;
constexpr double kForgottenByDeclining = 0.97;
// A request that is next waits so long at least, and up to half of what computing would take: the
// peer may be amid a step.
constexpr int64_t kPatienceNs = 50'000'000;
constexpr double kPatienceShare = 0.5;
// A fetch that nobody may be waiting for any more ends by itself.
constexpr int64_t kFetchMaxNs = 5'000'000'000;
// While the peer computes it; and so long without a further block.
constexpr int64_t kAheadMaxNs = 60'000'000'000;
constexpr int64_t kAheadQuietNs = 5'000'000'000;
// Fewer than are fetched at once (kv_transfer/block_exchange.h): they wait for others' steps.
constexpr int kAheadMax = 12;
// Less than that is computed sooner than asked for.
constexpr int kBlocksMin = 2;
constexpr int kFailuresMax = 3;
constexpr int64_t kOffNs = 10'000'000'000;

// What was seen last counts a quarter; half if it is better, so that a bad time is soon forgotten.
void note(double& known, double seen) {
  known = known == 0 ? seen : known + (seen - known) / (seen < known ? 2 : 4);
}

}  // namespace

bool PeerTier::is_here(int group, const BlockHash& name) const {
  return pools_.find(group, name, kv::kHost).block != kNoBlock;
}

bool PeerTier::pays(int64_t bytes, int tokens) const {
  if (fetch_ns_per_byte_ == 0 || computed_ns_per_token_ == 0) return true;
  return static_cast<double>(bytes) * fetch_ns_per_byte_ <
         kWorthwhile * tokens * computed_ns_per_token_;
}

// The same prefix is fetched once, whoever asks for it meanwhile.
bool PeerTier::join(Load& load, std::span<const BlockHash> hashes) {
  for (auto& [id, transfer] : transfers_) {
    if (transfer.is_stale || transfer.is_cancelled) continue;
    const size_t common = std::min(static_cast<size_t>(load.far_blocks), transfer.names.size());
    if (std::cmp_less_equal(common, load.near_blocks) || transfer.near_blocks > load.near_blocks ||
        transfer.names[common - 1] != hashes[common - 1]) {
      continue;
    }
    load.far_blocks = static_cast<int>(common);
    load.transfer = id;
    transfer.waiters.push_back(&load);
    ++counters_.joined;
    return true;
  }
  return false;
}

std::unique_ptr<PeerTier::Load> PeerTier::load(const Asked& asked, int64_t now_ns) {
  if (!on_) return nullptr;
  // Without a ticket it may wait for what another one fetches.
  const bool is_granted = asked.peer.port != 0;
  if (!is_granted && transfers_.empty()) return nullptr;
  const int expected = asked.peer.tokens / pools_.block_tokens();
  const int most = static_cast<int>(asked.hashes.size());
  const int far = is_granted ? std::min(expected, most) : most;
  const int near = kv::longest_hit({.hashes = asked.hashes, .furthest = kv::kHost}, pools_).blocks;
  // The ticket is for what is expected and for nothing else.
  if (far < expected || far < near + kBlocksMin) return nullptr;
  auto load = std::make_unique<Load>(Load{.near_blocks = near, .far_blocks = far, .held = {}});
  if (join(*load, asked.hashes)) return load;
  if (!is_granted) return nullptr;
  const std::string address = fmt::format("{} {}", asked.peer.host, asked.peer.port);
  const bool ahead = asked.peer.ahead;
  if (!any_place(address, ahead, now_ns)) {
    ++counters_.left_alone;
    return nullptr;
  }
  kv::PeerFetch fetch{.id = next_id_,
                      .host = asked.peer.host,
                      .port = asked.peer.port,
                      .ticket = asked.peer.ticket,
                      .names = {asked.hashes.begin(), asked.hashes.begin() + far},
                      .held = {},
                      .rooms = {},
                      .limit_ns = ahead ? kAheadMaxNs : kFetchMaxNs,
                      .ahead = ahead};
  if (!plan(fetch, near) || !take_rooms(fetch, *load)) return nullptr;
  ++counters_.fetches;
  if (ahead) ++counters_.ahead;
  load->transfer = next_id_;
  transfers_.emplace(next_id_++, Transfer{.names = fetch.names,
                                          .near_blocks = near,
                                          .address = address,
                                          .owner = asked.owner,
                                          .rooms = fetch.rooms,
                                          .waiters = {load.get()},
                                          .ahead = ahead});
  begun_.push_back(std::move(fetch));
  return load;
}

bool PeerTier::any_place(const std::string& address, bool ahead, int64_t now_ns) const {
  const auto trouble = troubles_.find(address);
  const bool is_off = trouble != troubles_.end() && now_ns < trouble->second.off_until_ns;
  if (is_off || transfers_.size() >= kTransfersMax) return false;
  const auto is_ahead = [](const auto& one) { return one.second.ahead; };
  return !ahead || std::ranges::count_if(transfers_, is_ahead) < kAheadMax;
}

// Says what is here. Whether fetching the rest is worth it and the host may have room.
bool PeerTier::plan(kv::PeerFetch& fetch, int near) {
  const int far = static_cast<int>(fetch.names.size());
  int64_t bytes = 0;
  for (int group = 0; group < pools_.group_count(); ++group) {
    std::vector<bool> held;
    for (const BlockHash& name : fetch.names) held.push_back(is_here(group, name));
    const auto lacks = std::count(held.begin() + first_needed(group, far), held.end(), false);
    bytes += lacks * pools_.spec(group).block_bytes;
    fetch.held.push_back(std::move(held));
    // Half of the host's memory is for others.
    const BlockPool& host = pools_.pool(group, kv::kHost);
    if (lacks <= host.free_count() - host.block_count() / 2) continue;
    ++counters_.no_room;
    return false;
  }
  // Ahead of its time nobody waits for it.
  if (fetch.ahead || pays(bytes, (far - near) * pools_.block_tokens())) return true;
  ++counters_.declined;
  // What is never tried again is never known to be quicker by now.
  fetch_ns_per_byte_ *= kForgottenByDeclining;
  return false;
}

// What is here already is held before room is made. False: there is none after all.
bool PeerTier::take_rooms(kv::PeerFetch& fetch, Load& load) {
  const int far = static_cast<int>(fetch.names.size());
  kv::PerGroup<int> missing;
  for (int group = 0; group < pools_.group_count(); ++group) {
    BlockPool& host = pools_.pool(group, kv::kHost);
    missing.push_back(0);
    for (int i = first_needed(group, far); i < far; ++i) {
      const auto at = static_cast<size_t>(i);
      if (!fetch.held[group][at]) ++missing.back();
      const BlockId block = host.find(fetch.names[at]);
      if (block == kNoBlock) continue;
      host.share(block);
      load.held.emplace_back(group, block);
    }
  }
  fetch.rooms.resize(pools_.group_count());
  for (int group = 0; group < pools_.group_count(); ++group) {
    if (pools_.pool(group, kv::kHost).take(missing[group], fetch.rooms[group])) continue;
    for (int i = 0; i < group; ++i) pools_.pool(i, kv::kHost).give_back(fetch.rooms[i]);
    release(load);
    ++counters_.no_room;
    return false;
  }
  return true;
}

// Of what a hit of so many blocks looks back into: of a window, that much and no more.
int PeerTier::first_needed(int group, int blocks) const {
  return kv::first_seen_block(blocks, pools_.spec(group), pools_.block_tokens());
}

// What nobody waits for any more is not fetched to its end.
void PeerTier::release(Load& load) {
  const auto found = transfers_.find(load.transfer);
  if (found != transfers_.end()) {
    Transfer& transfer = found->second;
    std::erase(transfer.waiters, &load);
    if (transfer.waiters.empty() && !std::exchange(transfer.is_cancelled, true)) {
      cancelled_.push_back(found->first);
    }
  }
  load.transfer = -1;
  // From the back, so that a prefix's last block is the first of them to be evicted.
  for (auto held = load.held.rbegin(); held != load.held.rend(); ++held) {
    pools_.pool(held->first, kv::kHost).give_back({&held->second, 1});
  }
  load.held.clear();
}

int64_t PeerTier::patience_ns(const Load& load) const {
  const int tokens = (load.far_blocks - load.near_blocks) * pools_.block_tokens();
  return std::max(kPatienceNs,
                  static_cast<int64_t>(kPatienceShare * tokens * computed_ns_per_token_));
}

void PeerTier::finish(const kv::PeerFetched& fetched, int64_t now_ns) {
  const auto found = transfers_.find(fetched.id);
  CHECK(found != transfers_.end(), "the outcome of a transfer that nobody asked for");
  const Transfer transfer = std::move(found->second);
  transfers_.erase(found);
  note_outcome(transfer, fetched, now_ns);
  for (const kv::PeerFetched::Block& one : fetched.blocks) {
    if (transfer.is_stale) break;
    BlockPool& host = pools_.pool(one.group, kv::kHost);
    host.cache(one.host, one.name, BlockPool::EvictionPriority::kLast);
    const BlockId block = host.find(one.name);  // another one, if it came there meanwhile
    if (block == one.host) host.set_owner(block, transfer.owner);
    for (Load* const load : transfer.waiters) {
      host.share(block);
      load->held.emplace_back(one.group, block);
    }
  }
  for (Load* const load : transfer.waiters) load->transfer = -1;
  for (int group = 0; group < transfer.rooms.size(); ++group) {
    pools_.pool(group, kv::kHost).give_back(transfer.rooms[group]);
  }
}

void PeerTier::note_outcome(const Transfer& transfer, const kv::PeerFetched& fetched,
                            int64_t now_ns) {
  counters_.blocks_fetched += std::ssize(fetched.blocks);
  counters_.bytes_fetched += fetched.bytes;
  if (fetched.bytes > 0) counters_.fetch_ns += fetched.ns;
  if (troubles_.size() >= kTroublesMax && !troubles_.contains(transfer.address)) troubles_.clear();
  Trouble& trouble = troubles_[transfer.address];
  switch (fetched.outcome) {
    case Outcome::kDone:
      trouble.failures = 0;
      if (fetched.bytes > 0) {
        note(fetch_ns_per_byte_,
             static_cast<double>(fetched.ns) / static_cast<double>(fetched.bytes));
      }
      return;
    case Outcome::kNothing:
      ++counters_.nothing;
      return;
    case Outcome::kCancelled:
      note_given_up(transfer, fetched);
      return;
    case Outcome::kRefused:
      ++counters_.refused;
      break;
    case Outcome::kCorrupt:
      ++counters_.corrupt;
      break;
    case Outcome::kFailed:
      ++counters_.failed;
      break;
  }
  if (++trouble.failures < kFailuresMax) return;
  trouble = {.failures = 0, .off_until_ns = now_ns + kOffNs};
}

// A link that is too slow to be waited for is known by what came until then; by nothing at least
// that all of it would have taken longer.
void PeerTier::note_given_up(const Transfer& transfer, const kv::PeerFetched& fetched) {
  int64_t wanted = 0;
  for (int group = 0; group < transfer.rooms.size(); ++group) {
    wanted += std::ssize(transfer.rooms[group]) * pools_.spec(group).block_bytes;
  }
  const int64_t bytes = fetched.bytes > 0 ? fetched.bytes : wanted;
  if (fetched.ns <= 0 || bytes == 0) return;
  const double seen = static_cast<double>(fetched.ns) / static_cast<double>(bytes);
  if (fetched.bytes > 0 || seen > fetch_ns_per_byte_) note(fetch_ns_per_byte_, seen);
}

void PeerTier::note_computed(int tokens, int64_t ns) {
  constexpr int kTellingTokens = 32;  // of fewer a step's fixed costs are most
  if (tokens < kTellingTokens || ns <= 0) return;
  note(computed_ns_per_token_, static_cast<double>(ns) / tokens);
}

void PeerTier::share(kv::PeerOffer& offer, int group, const BlockHash& name) {
  const kv::BlockPools::Place found = pools_.find(group, name, kv::kHost);
  pools_.pool(group, found.tier).share(found.block);
  offer.blocks.push_back({.group = group, .name = name, .tier = found.tier, .block = found.block});
}

kv::PeerOffer PeerTier::offer(const kv::PeerAsk& ask, int64_t now_ns) {
  kv::PeerOffer offer{.id = ask.id, .blocks = {}};
  if (ask.held.size() != pools_.group_count() || offered_.size() >= kOffersMax) return offer;
  if (ask.ahead) {
    Awaited& awaited =
        awaited_.insert_or_assign(ask.id, Awaited{.ask = ask, .since_ns = now_ns}).first->second;
    offered_.try_emplace(ask.id);
    offer = offer_next(awaited, now_ns);
    if (!offer.goes_on) awaited_.erase(ask.id);
    return offer;
  }
  const auto is_there = [&](int group, int block) {
    const auto at = static_cast<size_t>(block);
    return ask.held[group][at] || is_here(group, ask.names[at]);
  };
  offer.prefix_blocks = kv::longest_prefix(static_cast<int>(ask.names.size()), pools_, is_there);
  // In the order of the prefix, so that what has come when it is cut is of use.
  for (int i = 0; i < offer.prefix_blocks; ++i) {
    const auto at = static_cast<size_t>(i);
    for (int group = 0; group < pools_.group_count(); ++group) {
      if (i < first_needed(group, offer.prefix_blocks) || ask.held[group][at]) continue;
      share(offer, group, ask.names[at]);
    }
  }
  counters_.blocks_offered += std::ssize(offer.blocks);
  offered_.emplace(ask.id, offer.blocks);
  return offer;
}

// Of windows, what the whole prompt's end looks back into: of those the same blocks cross as if it
// were asked for once it is computed.
kv::PeerOffer PeerTier::offer_next(Awaited& awaited, int64_t now_ns) {
  const kv::PeerAsk& ask = awaited.ask;
  const int blocks = static_cast<int>(ask.names.size());
  kv::PeerOffer offer{.id = ask.id, .blocks = {}};
  const auto crosses = [&](int group) {
    return awaited.next >= first_needed(group, blocks) &&
           !ask.held[group][static_cast<size_t>(awaited.next)];
  };
  for (; awaited.next < blocks; ++awaited.next) {
    const BlockHash& name = ask.names[static_cast<size_t>(awaited.next)];
    bool is_computed = true;
    for (int group = 0; group < pools_.group_count() && is_computed; ++group) {
      is_computed = !crosses(group) || is_here(group, name);
    }
    if (!is_computed) break;
    for (int group = 0; group < pools_.group_count(); ++group) {
      if (crosses(group)) share(offer, group, name);
    }
  }
  if (!offer.blocks.empty()) awaited.since_ns = now_ns;
  offer.prefix_blocks = awaited.next;
  offer.goes_on = awaited.next < blocks && now_ns - awaited.since_ns < kAheadQuietNs;
  counters_.blocks_offered += std::ssize(offer.blocks);
  std::ranges::copy(offer.blocks, std::back_inserter(offered_.at(ask.id)));
  return offer;
}

std::vector<kv::PeerOffer> PeerTier::further_offers(int64_t now_ns) {
  std::vector<kv::PeerOffer> offers;
  for (auto one = awaited_.begin(); one != awaited_.end();) {
    kv::PeerOffer offer = offer_next(one->second, now_ns);
    const bool is_over = !offer.goes_on;
    if (is_over || !offer.blocks.empty()) offers.push_back(std::move(offer));
    one = is_over ? awaited_.erase(one) : std::next(one);
  }
  return offers;
}

void PeerTier::end_offer(int64_t id) {
  awaited_.erase(id);
  const auto found = offered_.find(id);
  if (found == offered_.end()) return;  // revoked before
  for (auto one = found->second.rbegin(); one != found->second.rend(); ++one) {
    pools_.pool(one->group, one->tier).give_back({&one->block, 1});
  }
  offered_.erase(found);
}

void PeerTier::end_all_offers() {
  counters_.revoked += std::ssize(offered_);
  while (!offered_.empty()) end_offer(offered_.begin()->first);
}

void PeerTier::forget_all() {
  for (auto& [id, awaited] : awaited_) awaited.since_ns = -kAheadQuietNs;
  for (auto& [id, transfer] : transfers_) transfer.is_stale = true;
}

}  // namespace pelton::engine
