// Blocks that travel between the workers of a fleet: kv::PeerTransfers over TCP (--kv-port). It
// listens for peers that fetch, and fetches from peers; with threads of its own, which read and
// write the executor's memory beside the steps. Owned by the executor, whose memory that is.
//
// What comes is believed only if the channel opens it, its sum is right and it was asked for under
// that name; it lands in rooms that this side has set aside, so nothing can come into a block that
// has become another's meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/group.h"
#include "kv/peer_transfers.h"
#include "kv_transfer/block_store.h"
#include "kv_transfer/peer_channel.h"
#include "kv_transfer/peer_messages.h"
#include "kv_transfer/peer_ticket.h"

namespace pelton::kv_transfer {

// --kv-port and its family.
struct ExchangeOptions {
  std::string address;            // to listen on; empty: no exchange
  int port = 0;                   // 0: any free one
  std::vector<std::string> keys;  // of the fleet's key, under kPeerLabel
  // Blocks that are sent are changed on their way there, one of so many: tests. 0: none.
  int damage_one_in = 0;
};

class BlockExchange final : public kv::PeerTransfers {
 public:
  // Fetches that run at once, and connections of peers: sixteen of those, each with all of its
  // fetches. Beyond that the one that has been silent longest makes room.
  static constexpr int kFetchThreads = 16;
  static constexpr size_t kConnectionsMax = 256;

  struct Options {
    ExchangeOptions exchange;
    kv::PerGroup<kv::GroupSpec> groups;
    PeerLayout layout;
    // A source lets go of blocks that nobody has taken for so long; and of a silent connection.
    std::chrono::milliseconds pin_max{5'000};
    std::chrono::milliseconds idle_max{60'000};
    size_t connections_max = kConnectionsMax;
    // That a source sends without credit.
    int64_t uncredited_max = kPeerWindowBytes;
  };

  // `memory` outlives it. Errors: kIo: nobody can listen there.
  static Result<std::unique_ptr<BlockExchange>> open(const Options& options, BlockMemory& memory);
  ~BlockExchange() override;

  const Place& place() const override { return place_; }
  void on_news(std::function<void()> wake) override;
  void fetch(kv::PeerFetch fetch) override;
  void cancel(int64_t id) override;
  std::vector<kv::PeerFetched> take_fetched() override;
  std::vector<kv::PeerAsk> take_asks() override;
  void offer(kv::PeerOffer offer) override;
  std::vector<int64_t> take_over() override;
  Served served() const override;
  void revoke_all() override;

 private:
  using Clock = PeerChannel::Clock;

  // A peer that is connected to this one.
  struct Connection {
    std::unique_ptr<PeerChannel> channel;  // set under mutex_, by its thread
    bool is_over = false;                  // under mutex_
    // Since when it has no transfer; none: it has one, or has not greeted. Under mutex_.
    std::optional<Clock::time_point> idle_since;
    std::atomic<bool> makes_room{false};
    std::thread thread;
  };
  struct Offered {
    std::deque<kv::PeerOffer> parts;  // not sent yet; under mutex_, as the next
    bool goes_on = false;             // more of them come
    // Set before reading_ is taken alone, so that no reader begins who would be waited for.
    std::atomic<bool> is_revoked{false};
  };
  // One transfer, as its source has it.
  struct Sending {
    uint32_t transfer = 0;
    int64_t in_window = 0;  // bytes that are sent and not credited
    bool is_cancelled = false;
  };

  BlockExchange(const Options& options, BlockMemory& memory, int listener, int port);

  void news();
  void accept_peers();
  void reap();
  bool make_room();
  void note_idle(Connection& connection, bool is_idle);
  void serve(Connection& connection, int socket);
  Result<void> greet_peer(PeerChannel& channel, std::string& peer);
  Result<void> answer(PeerChannel& channel, const std::string& peer, const PeerWant& want);
  Result<void> check(const PeerWant& want, const std::string& peer);
  std::shared_ptr<Offered> await_offer(PeerChannel& channel, int64_t id, Sending& sending,
                                       Clock::time_point until);
  Result<void> send_parts(PeerChannel& channel, Offered& offered, Sending& sending,
                          Clock::time_point until);
  Result<void> send_part(PeerChannel& channel, Offered& offered, const kv::PeerOffer& part,
                         Sending& sending);
  Result<void> await_window(PeerChannel& channel, Sending& sending, int64_t bytes);
  void damage(std::span<char> message, int64_t bytes, int64_t number) const;
  Result<void> hear(PeerChannel& channel, Sending& sending, Clock::time_point until);
  bool read_offered(const Offered& offered, const kv::PeerOffer::Block& block,
                    std::span<char> into);
  void end_offer(int64_t id);

  void fetch_all();
  kv::PeerFetched carry_out(const kv::PeerFetch& fetch,
                            std::chrono::steady_clock::time_point until);
  Result<std::unique_ptr<PeerChannel>> channel_to(const kv::PeerFetch& fetch,
                                                  Clock::time_point until);
  struct FetchState;
  Result<bool> take_message(FetchState& state, std::string_view bytes);
  Result<bool> land(FetchState& state, const PeerData& data, std::string_view message);
  bool is_cancelled(int64_t id);
  void keep(const kv::PeerFetch& fetch, std::unique_ptr<PeerChannel> channel);

  const Options options_;
  BlockMemory& memory_;
  const int listener_;
  const Place place_;
  UsedTickets used_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> blocks_sent_{0};
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<int64_t> refused_{0};
  std::atomic<uint32_t> transfers_{0};

  std::mutex mutex_;  // guards all that follows, but what says otherwise
  std::condition_variable changed_;
  std::function<void()> wake_;
  struct Queued {
    kv::PeerFetch fetch;
    std::chrono::steady_clock::time_point until;
  };
  std::deque<Queued> fetches_;
  std::set<int64_t> cancelled_;  // of those that are known
  std::set<int64_t> known_;
  std::vector<kv::PeerFetched> fetched_;
  // Channels to peers that nobody uses now, by address.
  std::multimap<std::string, std::unique_ptr<PeerChannel>> idle_;
  std::vector<kv::PeerAsk> asks_;
  int64_t next_ask_ = 0;
  std::set<int64_t> awaited_;  // asks whose offers somebody waits for
  std::unordered_map<int64_t, std::shared_ptr<Offered>> offers_;
  std::vector<int64_t> over_;
  std::list<Connection> connections_;

  // Held, shared, while an offered block is read; alone, to revoke.
  std::shared_mutex reading_;

  std::thread acceptor_;
  std::array<std::thread, kFetchThreads> fetchers_;
};

}  // namespace pelton::kv_transfer
