// Two workers' exchanges in one process, over loopback, and the engine of the one that has blocks.
// Tests only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"
#include "kv_transfer/block_exchange.h"

namespace pelton::kv_transfer {

inline constexpr size_t kBlockBytes[] = {5000, 700};
inline constexpr int kBlocks = 12;
inline const std::vector<std::string> kKeys = {std::string(32, 'k')};

inline kv::BlockHash name_of(int i) {
  return {.low = base::random_bits(7, static_cast<uint64_t>(i)),
          .high = base::random_bits(8, static_cast<uint64_t>(i))};
}

// Of the block of that name.
inline const std::string& content(int group, int i) {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> drawn;
    for (int at = 0; at < 2 * kBlocks; ++at) {
      std::string bytes(kBlockBytes[at % 2], '\0');
      const auto seed = static_cast<uint64_t>(100 * (at % 2) + at / 2);
      for (size_t k = 0; k < bytes.size(); ++k) {
        bytes[k] = static_cast<char>(base::random_bits(seed, k));
      }
      drawn.push_back(std::move(bytes));
    }
    return drawn;
  }();
  return all.at(static_cast<size_t>(2 * i + group));
}

class ExchangeMemory final : public BlockMemory {
 public:
  void read_block(int group, kv::Tier tier, kv::BlockId block,
                  std::span<char> into) const override {
    if (before_read) before_read();
    EXPECT_EQ(tier, kv::kDevice);
    std::ranges::copy(content(group, block), into.begin());
  }
  void write_block(int group, kv::BlockId block, std::span<const char> bytes) override {
    std::lock_guard lock(mutex);
    written[{group, block}] = std::string(bytes.begin(), bytes.end());
  }

  std::mutex mutex;  // of those who write
  // By group and room; of a fetch that is over nobody writes it any more.
  std::map<std::pair<int, kv::BlockId>, std::string> written;
  std::function<void()> before_read;
};

inline PeerLayout layout() {
  return {{"block size", "16"}, {"KV type", "bf16"},     {"layers", "4"},
          {"KV groups", "2"},   {"KV heads", "2 of 64"}, {"rotary setting", "10000"},
          {"arithmetic", "a"},  {"configuration", "c"},  {"weights", "w"}};
}

inline BlockExchange::Options options_of(const PeerLayout& layout = kv_transfer::layout(),
                                         const std::vector<std::string>& keys = kKeys) {
  BlockExchange::Options options{.exchange = {.address = "127.0.0.1", .port = 0, .keys = keys},
                                 .groups = {},
                                 .layout = layout};
  options.groups.push_back({.name = "full", .block_bytes = kBlockBytes[0]});
  options.groups.push_back({.name = "window", .sliding_window = 20, .block_bytes = kBlockBytes[1]});
  options.pin_max = std::chrono::milliseconds(300);
  return options;
}

inline int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline bool eventually(const std::function<bool()>& what) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class ExchangeTest : public testing::Test {
 protected:
  using Outcome = kv::PeerFetched::Outcome;

  ExchangeTest() { open(options_of(), options_of()); }
  ~ExchangeTest() override { close(); }

  void open(const BlockExchange::Options& source, const BlockExchange::Options& target) {
    close();
    source_ = *BlockExchange::open(source, source_memory_);
    target_ = *BlockExchange::open(target, target_memory_);
    stopping_ = false;
    engine_ = std::thread([this] { answer_asks(); });
  }
  void close() {
    stopping_ = true;
    if (engine_.joinable()) engine_.join();
    source_.reset();
    target_.reset();
  }

  // The source's engine: it has the first `there_` blocks of the full group, and of the window's
  // those that a hit of all of them looks back into.
  void answer_asks() {
    while (!stopping_) {
      for (const kv::PeerAsk& ask : source_->take_asks()) {
        ++pinned_;
        source_->offer(ask.ahead ? part_of(ask, 0) : offer_of(ask));
        if (ask.ahead) asked_ahead_ = ask;
      }
      if (asked_ahead_ && there_ > ahead_next_) {
        source_->offer(part_of(*asked_ahead_, ahead_next_));
        if (ahead_next_ == kBlocks) asked_ahead_.reset();
      }
      pinned_ -= static_cast<int>(source_->take_over().size());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  kv::PeerOffer offer_of(const kv::PeerAsk& ask) const {
    kv::PeerOffer offer{.id = ask.id, .blocks = {}};
    const int count = std::min<int>(there_, static_cast<int>(ask.names.size()));
    offer.prefix_blocks = count;
    for (int i = 0; i < count; ++i) {
      for (int group = 0; group < 2; ++group) {
        if (ask.held[group][static_cast<size_t>(i)]) continue;
        if (group == 1 && i < count - 2) continue;
        offer.blocks.push_back({.group = group, .name = name_of(i), .block = i});
      }
    }
    return offer;
  }
  // Of a prompt that is being computed, what has come since.
  kv::PeerOffer part_of(const kv::PeerAsk& ask, int from) {
    kv::PeerOffer offer{.id = ask.id, .blocks = {}};
    const int count = there_;
    for (int i = from; i < count; ++i) {
      offer.blocks.push_back({.group = 0, .name = name_of(i), .block = i});
      if (i >= kBlocks - 2) offer.blocks.push_back({.group = 1, .name = name_of(i), .block = i});
    }
    offer.prefix_blocks = ahead_next_ = count;
    offer.goes_on = count < kBlocks;
    return offer;
  }

  PeerTicket ticket(int blocks = kBlocks) {
    std::vector<kv::BlockHash> names;
    for (int i = 0; i < blocks; ++i) names.push_back(name_of(i));
    return {.source = source_->place().id,
            .target = target_->place().id,
            .grant = grant_of(names),
            .request_id = "r",
            .expires_ms = now_ms() + 20'000,
            .nonce = std::to_string(++nonce_)};
  }
  kv::PeerFetch fetch(const std::string& ticket, int blocks = kBlocks) {
    kv::PeerFetch fetch{.id = ++id_,
                        .host = "127.0.0.1",
                        .port = source_->place().port,
                        .ticket = ticket,
                        .names = {},
                        .held = {},
                        .rooms = {},
                        .limit_ns = 2'000'000'000};
    for (int i = 0; i < blocks; ++i) fetch.names.push_back(name_of(i));
    for (int group = 0; group < 2; ++group) {
      fetch.held.push_back(std::vector<bool>(static_cast<size_t>(blocks), false));
      std::vector<kv::BlockId> rooms;
      for (int i = 0; i < (group == 0 ? blocks : 2); ++i) rooms.push_back(40 + i);
      fetch.rooms.push_back(rooms);
    }
    return fetch;
  }
  kv::PeerFetched outcome() {
    std::vector<kv::PeerFetched> all;
    EXPECT_TRUE(eventually([&] { return !(all = target_->take_fetched()).empty(); }));
    return all.empty() ? kv::PeerFetched{} : all.front();
  }
  kv::PeerFetched run(kv::PeerFetch fetch) {
    target_memory_.written.clear();
    target_->fetch(std::move(fetch));
    return outcome();
  }
  kv::PeerFetched run(const PeerTicket& ticket) { return run(fetch(ticket.seal(kKeys.front()))); }

  // Greets as this fleet's do, takes one Want, and then says this of its transfer.
  static void serve_one(int socket,
                        const std::function<std::vector<std::string>(uint32_t)>& messages_of) {
    const auto until = PeerChannel::Clock::now() + std::chrono::seconds(5);
    auto accepted = PeerChannel::accept(socket, kKeys, until);
    if (!accepted.ok()) return;  // it closes the socket
    const auto channel = *std::move(accepted);
    (void)channel->receive(until).ok();
    channel->set_record_max(1 << 20);
    (void)channel->send(encode(PeerWelcome{}), until).ok();
    const auto came = channel->receive(until);
    if (!came.ok() || !*came) return;
    const auto message = decode_peer_message(**came);
    const uint32_t transfer = std::get<PeerWant>(*message).transfer;
    for (const std::string& one : messages_of(transfer)) (void)channel->send(one, until).ok();
    (void)channel->receive(until).ok();  // until the receiver leaves
  }
  // Where somebody may connect: a socket of `backlog`, and its port.
  static std::pair<int, int> listen_anywhere(int backlog) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(::listen(listener, backlog), 0);
    EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size), 0);
    return {listener, ntohs(place.sin_port)};
  }
  // What a source says of one transfer, by its number.
  using Says = std::function<std::string(uint32_t transfer)>;
  kv::PeerFetched fetch_from_source_that(const std::vector<Says>& says) {
    return fetch_from([&](int socket) {
      serve_one(socket, [&](uint32_t transfer) {
        std::vector<std::string> messages;
        for (const Says& one : says) messages.push_back(one(transfer));
        return messages;
      });
    });
  }
  // From whoever does this with its connection, and closes it.
  kv::PeerFetched fetch_from(const std::function<void(int socket)>& serve) {
    const auto [listener, port] = listen_anywhere(1);
    std::thread source(
        [&, at = listener] { serve(::accept4(at, nullptr, nullptr, SOCK_CLOEXEC)); });
    kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
    wanted.port = port;
    const kv::PeerFetched fetched = run(std::move(wanted));
    target_->cancel(id_);
    close_idle();
    source.join();
    ::close(listener);
    return fetched;
  }
  // Channels that are kept for later go.
  void close_idle() {
    target_.reset();
    target_ = *BlockExchange::open(options_of(), target_memory_);
  }

  // As a receiver does, up to the answer and so many blocks, for which it gives credit.
  void ask_and_stop(bool leaves, int takes = 0) {
    const auto until = PeerChannel::Clock::now() + std::chrono::seconds(5);
    auto channel = *PeerChannel::connect({.host = "127.0.0.1", .port = source_->place().port},
                                         kKeys.front(), until);
    const PeerHello hello{.id = target_->place().id, .layout = layout()};
    ASSERT_TRUE(channel->send(encode(hello), until).ok());
    ASSERT_TRUE(channel->receive(until)->has_value());
    PeerWant want{.transfer = 1,
                  .limit_ms = 5'000,
                  .ticket = ticket().seal(kKeys.front()),
                  .names = {},
                  .held = {}};
    for (int i = 0; i < kBlocks; ++i) want.names.push_back(name_of(i));
    want.held.assign(2, std::vector<bool>(kBlocks, false));
    ASSERT_TRUE(channel->send(encode(want), until).ok());
    ASSERT_TRUE(channel->receive(until)->has_value());
    EXPECT_EQ(pinned_, 1);
    for (int i = 0; i < takes; ++i) {
      const auto came = channel->receive(until);
      if (!came.ok() || !*came) break;  // this side was too slow, and was let go of before
      const auto message = decode_peer_message(**came);
      const auto bytes = static_cast<uint32_t>(std::get<PeerData>(*message).block.size());
      (void)channel->send(encode(PeerCredit{.transfer = 1, .bytes = bytes}), until).ok();
    }
    if (leaves) return;
    EXPECT_TRUE(nothing_is_pinned()) << "while it is still connected";
  }

  // Whatever came of it: what has landed is what the source has under that name.
  void expect_right(const kv::PeerFetched& fetched) {
    EXPECT_EQ(fetched.blocks.size(), target_memory_.written.size());
    for (const kv::PeerFetched::Block& one : fetched.blocks) {
      int i = 0;
      while (i < kBlocks && name_of(i) != one.name) ++i;
      ASSERT_LT(i, kBlocks);
      EXPECT_EQ(target_memory_.written.at({one.group, one.host}), content(one.group, i));
    }
  }
  bool nothing_is_pinned() {
    return eventually([&] { return pinned_ == 0; });
  }

  ExchangeMemory source_memory_;
  ExchangeMemory target_memory_;
  std::unique_ptr<BlockExchange> source_;
  std::unique_ptr<BlockExchange> target_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> there_{kBlocks};
  std::atomic<int> pinned_{0};
  std::optional<kv::PeerAsk> asked_ahead_;  // the engine's, as the next
  int ahead_next_ = 0;
  std::thread engine_;
  int nonce_ = 0;
  int64_t id_ = 0;
};

}  // namespace pelton::kv_transfer
