// What replicas fetch from each other: asks, offers and parts on their way over shared links.
#include <algorithm>
#include <utility>

#include "simulator/fleet.h"

namespace pelton::simulator {

using Outcome = kv::PeerFetched::Outcome;

// Whatever a replica has to say to others now.
void Fleet::exchange(int64_t now_ns, size_t replica) {
  if (!links_) return;
  Replica::PeerNews news = replicas_[replica]->take_peer_news();
  const auto is_of = [&](int64_t id) {
    return std::ranges::find_if(fetches_, [&](const auto& one) {
      return one.second.to == replica && one.second.asked.id == id;
    });
  };
  for (const int64_t id : news.cancelled) {
    const auto found = is_of(id);
    if (found != fetches_.end()) end_fetch(now_ns, found->first, Outcome::kCancelled);
  }
  if (news.revoked) {
    std::vector<int64_t> revoked;
    for (const auto& [number, fetch] : fetches_) {
      if (fetch.from == replica) revoked.push_back(number);
    }
    for (const int64_t number : revoked) end_fetch(now_ns, number, Outcome::kDone);
  }
  for (kv::PeerOffer& offer : news.offers) take_offer(now_ns, replica, std::move(offer));
  for (kv::PeerFetch& fetch : news.fetches) begin_fetch(now_ns, replica, std::move(fetch));
}

void Fleet::begin_fetch(int64_t now_ns, size_t replica, kv::PeerFetch asked) {
  const int64_t number = next_fetch_++;
  const auto from = static_cast<size_t>(asked.port - 1);
  kv::PeerAsk ask{.id = number, .names = asked.names, .held = asked.held, .ahead = asked.ahead};
  Fetch fetch{.asked = std::move(asked), .from = from, .to = replica};
  fetch.rooms_taken.resize(fetch.asked.rooms.size());
  fetches_.emplace(number, std::move(fetch));
  if (!states_[from].is_up) return end_fetch(now_ns, number, Outcome::kFailed);
  replicas_[from]->hear(now_ns, std::move(ask));
  schedule(from);
}

void Fleet::take_offer(int64_t now_ns, size_t replica, kv::PeerOffer offer) {
  const auto found = fetches_.find(offer.id);
  if (found == fetches_.end()) {  // nobody wants it any more
    replicas_[replica]->hear_over(now_ns, offer.id);
    return;
  }
  Fetch& fetch = found->second;
  fetch.prefix_blocks = offer.prefix_blocks;
  fetch.is_offered = !offer.goes_on;
  if (!offer.blocks.empty()) fetch.parts.push_back(std::move(offer.blocks));
  move_next(now_ns, offer.id);
}

// One part of a fetch after the other.
void Fleet::move_next(int64_t now_ns, int64_t number) {
  Fetch& fetch = fetches_.at(number);
  if (fetch.transfer >= 0) return;
  if (fetch.parts.empty()) {
    if (fetch.is_offered && fetch.flying.empty()) end_fetch(now_ns, number, Outcome::kDone);
    return;
  }
  double bytes = 0;
  for (const kv::PeerOffer::Block& block : fetch.parts.front()) {
    bytes += static_cast<double>(replicas_[fetch.from]->block_bytes(block.group));
  }
  fetch.begun_ns = now_ns;
  fetch.transfer = links_->begin(now_ns, fetch.from, fetch.to, bytes);
  moving_.emplace(fetch.transfer, number);
  watch_links();
}

// One pending event of the links, as of a replica.
void Fleet::watch_links() {
  ++links_version_;
  const std::optional<int64_t> next_ns = links_->next_ns();
  if (!next_ns) return;
  add({.at_ns = *next_ns, .kind = Event::Kind::kLinkEnds, .version = links_version_});
}

void Fleet::end_moves(int64_t now_ns) {
  const int64_t latency_ns = nanoseconds(options_.replica.paths.link.latency_s);
  for (const int64_t transfer : links_->advance(now_ns)) {
    const int64_t number = moving_.at(transfer);
    moving_.erase(transfer);
    Fetch& fetch = fetches_.at(number);
    fetch.transfer = -1;
    fetch.moving_ns += now_ns - fetch.begun_ns;
    fetch.flying.push_back(std::move(fetch.parts.front()));
    fetch.parts.pop_front();
    add({.at_ns = now_ns + latency_ns, .kind = Event::Kind::kDelivered, .index = number});
    move_next(now_ns, number);
  }
  watch_links();
}

void Fleet::deliver(int64_t now_ns, int64_t number) {
  const auto found = fetches_.find(number);
  if (found == fetches_.end()) return;  // ended meanwhile
  Fetch& fetch = found->second;
  for (const kv::PeerOffer::Block& block : fetch.flying.front()) {
    const kv::BlockId room = fetch.asked.rooms[block.group][fetch.rooms_taken[block.group]++];
    replicas_[fetch.to]->take_over(*replicas_[fetch.from], block, room);
    fetch.arrived.push_back({.group = block.group, .host = room, .name = block.name});
    fetch.bytes += replicas_[fetch.to]->block_bytes(block.group);
  }
  fetch.flying.pop_front();
  move_next(now_ns, number);
}

// Of a prefix that has come whole, what its groups would be of which no window is taken.
int64_t Fleet::bytes_whole(const Fetch& fetch) const {
  int64_t bytes = 0;
  for (int group = 0; group < fetch.asked.held.size(); ++group) {
    const std::vector<bool>& held = fetch.asked.held[group];
    for (int i = 0; i < fetch.prefix_blocks; ++i) {
      if (!held[static_cast<size_t>(i)]) bytes += replicas_[fetch.to]->block_bytes(group);
    }
  }
  return bytes;
}

void Fleet::end_fetch(int64_t now_ns, int64_t number, Outcome outcome) {
  auto node = fetches_.extract(number);
  Fetch& fetch = node.mapped();
  if (fetch.transfer >= 0) {
    links_->cancel(now_ns, fetch.transfer);
    moving_.erase(fetch.transfer);
    watch_links();
  }
  if (outcome == Outcome::kDone && fetch.arrived.empty()) outcome = Outcome::kNothing;
  if (fetch.bytes > 0) {
    ++result_.travel.transfers;
    result_.travel.bytes += fetch.bytes;
    result_.travel.bytes_whole += outcome == Outcome::kDone ? bytes_whole(fetch) : fetch.bytes;
  }
  const int64_t took_ns = fetch.moving_ns + nanoseconds(options_.replica.paths.link.latency_s);
  replicas_[fetch.from]->hear_over(now_ns, number);
  replicas_[fetch.to]->hear(now_ns, kv::PeerFetched{.id = fetch.asked.id,
                                                    .outcome = outcome,
                                                    .why = {},
                                                    .blocks = std::move(fetch.arrived),
                                                    .bytes = fetch.bytes,
                                                    .ns = took_ns});
  schedule(fetch.from);
  schedule(fetch.to);
}

// What comes from it or goes there ends; it has not begun anew yet.
void Fleet::lose_transfers(int64_t now_ns, size_t replica) {
  std::vector<int64_t> lost;
  for (const auto& [number, fetch] : fetches_) {
    if (fetch.from == replica || fetch.to == replica) lost.push_back(number);
  }
  for (const int64_t number : lost) end_fetch(now_ns, number, Outcome::kFailed);
}

}  // namespace pelton::simulator
