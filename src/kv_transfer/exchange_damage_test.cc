// What may happen to blocks on their way and at their source, many times: a fetch of each round
// through a real connection. What has landed is right, what was spoiled is known to be, and who
// waits for it or serves it is not held up. PELTON_FULL: as many rounds as the guarantees say;
// PELTON_SEED=N repeats a run.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"
#include "kv_transfer/exchange_fixture.h"
#include "kv_transfer/test_link.h"

namespace pelton::kv_transfer {
namespace {

using namespace std::chrono_literals;
using base::random_bits;
using Clock = std::chrono::steady_clock;

bool is_full() {
  return std::getenv("PELTON_FULL") != nullptr;
}

uint64_t seed_of_run() {
  const char* const given = std::getenv("PELTON_SEED");
  return given != nullptr
             ? std::strtoull(given, nullptr, 10)
             : random_bits(static_cast<uint64_t>(::getpid()), static_cast<uint64_t>(now_ms()));
}

// What a source says to a receiver that has nothing: a greeting, and these records.
constexpr int kGreeting = -1;
constexpr int kWelcome = 0;
constexpr int kFirstBlock = 2;  // after Have
constexpr int kAllBlocks = kBlocks + 2;
constexpr int kDone = kFirstBlock + kAllBlocks;
constexpr size_t kGreetingBytes = 24;

// What becomes of one record of a transfer.
struct Damage {
  enum Kind { kFlip, kCut, kShorten, kSwap, kRepeat, kLeaveOut, kKinds };

  uint64_t round = 0;
  Kind kind = kFlip;
  int record = 0;
  uint64_t draw = 0;  // which bit, or where

  static Damage drawn(uint64_t seed, uint64_t round) {
    const uint64_t draw = random_bits(seed, round);
    Damage damage{.round = round, .kind = static_cast<Kind>(draw % kKinds), .draw = draw >> 16};
    // Those in which the round can see no damage are left out: nothing follows Done, nor precedes
    // what answers it.
    static constexpr std::array<std::pair<int, int>, kKinds> kRecords = {{{kGreeting, kDone},
                                                                          {kGreeting, kDone},
                                                                          {kWelcome, kDone},
                                                                          {kWelcome + 1, kDone - 1},
                                                                          {kWelcome, kDone - 1},
                                                                          {kWelcome + 1, kDone}}};
    const auto [first, last] = kRecords[damage.kind];
    damage.record =
        first + static_cast<int>((draw >> 8 & 255) % static_cast<uint64_t>(last - first + 1));
    return damage;
  }
  // Blocks whose records have come before it.
  size_t landed() const {
    const int whole = kind == kRepeat ? record + 1 : record;
    return static_cast<size_t>(std::clamp(whole - kFirstBlock, 0, kAllBlocks));
  }
  std::string text() const {
    return fmt::format("round {}: kind {}, record {}, draw {}", round, int{kind}, record, draw);
  }
};

// Takes a source's stream apart into greeting and records, and does that to one of them.
class Spoiler {
 public:
  // Of the next connection.
  void expect(const Damage& damage) {
    std::lock_guard lock(mutex_);
    next_ = damage;
  }
  struct Done {
    bool is_done = false;
    bool changes_length = false;  // the receiver may wait for bytes that nobody sends
  };
  Done done(uint64_t round) const {
    std::lock_guard lock(mutex_);
    return done_round_ == round ? done_ : Done{};
  }

  // As Proxy::Spoils.
  bool pass(size_t at, std::string& piece) {
    std::lock_guard lock(mutex_);
    if (at == 0) {
      damage_ = next_;
      number_ = kGreeting;
      came_.clear();
      held_.clear();
    }
    came_ += piece;
    piece.clear();
    for (size_t size = next_size(); size != 0 && size <= came_.size(); size = next_size()) {
      std::string record = came_.substr(0, size);
      came_.erase(0, size);
      const bool goes_on = number_ != damage_.record || spoil(record);
      piece += record;
      if (number_ > damage_.record) piece += std::exchange(held_, {});
      ++number_;
      if (!goes_on) return false;
    }
    return true;
  }

 private:
  // Of what came_ begins with; 0: not known yet.
  size_t next_size() const {
    if (number_ == kGreeting) return kGreetingBytes;
    return came_.size() < kLengthBytes ? 0 : kLengthBytes + length_of(came_);
  }
  static uint32_t length_of(std::string_view record) {
    uint32_t length = 0;
    std::memcpy(&length, record.data(), kLengthBytes);
    return length;
  }
  // False: nothing follows.
  bool spoil(std::string& record) {
    done_round_ = damage_.round;
    done_ = {.is_done = true, .changes_length = false};
    switch (damage_.kind) {
      case Damage::kFlip: {
        const size_t bit = damage_.draw % (8 * record.size());
        record[bit / 8] = static_cast<char>(record[bit / 8] ^ 1 << bit % 8);
        done_.changes_length = bit / 8 < kLengthBytes;
        return true;
      }
      case Damage::kCut:
        record.resize(damage_.draw % record.size());
        return false;
      case Damage::kShorten: {
        record.resize(kLengthBytes + damage_.draw % (record.size() - kLengthBytes));
        const auto length = static_cast<uint32_t>(record.size() - kLengthBytes);
        std::memcpy(record.data(), &length, kLengthBytes);
        return true;
      }
      case Damage::kSwap:
        held_ = std::exchange(record, {});
        return true;
      case Damage::kRepeat:
        record += std::string(record);
        return true;
      case Damage::kLeaveOut:
        record.clear();
        return true;
      case Damage::kKinds:
        break;
    }
    return false;
  }

  static constexpr size_t kLengthBytes = sizeof(uint32_t);

  mutable std::mutex mutex_;
  Damage next_;
  Damage damage_;
  uint64_t done_round_ = ~uint64_t{0};
  Done done_;
  int number_ = kGreeting;
  std::string came_;
  std::string held_;
};

class ExchangeDamageTest : public ExchangeTest {
 protected:
  static constexpr int kLanes = 12;  // fetches at once
  static constexpr int kRoomsOfLane = 100;
  static constexpr auto kLimitMax = 8'000ms;
  static constexpr auto kConnectLimit = 1'000ms;    // the exchange's own
  static constexpr int kRoundsOfExchange = 20'000;  // a source knows so many tickets, and some more

  struct Ended {
    int lane = 0;
    uint64_t round = 0;
    bool is_late = false;
    kv::PeerFetched fetched;
  };
  // Carries out fetches until so many have counted, each lane's one after another. `port_of`: where
  // the lane finds its source; `counts`: whether that was one.
  void carry_out(uint64_t first, uint64_t rounds,
                 const std::function<int(int lane, uint64_t round)>& port_of,
                 const std::function<bool(const Ended&)>& counts) {
    struct Running {
      int lane = 0;
      uint64_t round = 0;
      Clock::time_point begun;
      std::chrono::milliseconds limit;
    };
    std::map<int64_t, Running> running;  // by their fetches' ids
    uint64_t begun = 0;
    uint64_t counted = 0;
    const auto begin = [&](int lane) {
      const uint64_t round = first + begun++;
      kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
      for (auto& rooms : wanted.rooms) {
        for (kv::BlockId& room : rooms) room += kRoomsOfLane * lane;
      }
      wanted.limit_ns = std::chrono::nanoseconds(limit_).count();
      wanted.port = port_of(lane, round);
      running[wanted.id] = {.lane = lane, .round = round, .begun = Clock::now(), .limit = limit_};
      target_->fetch(std::move(wanted));
    };
    for (int lane = 0; lane < kLanes; ++lane) begin(lane);
    auto silent_until = Clock::now() + 30s;
    while (!running.empty()) {
      std::vector<kv::PeerFetched> all = target_->take_fetched();
      if (all.empty()) {
        ASSERT_LT(Clock::now(), silent_until) << "no fetch ends";
        std::this_thread::sleep_for(100us);
        continue;
      }
      silent_until = Clock::now() + 30s;
      for (kv::PeerFetched& fetched : all) {
        const Running one = running.at(fetched.id);
        running.erase(fetched.id);
        expect_right_in(one.lane, fetched);
        const bool is_late = Clock::now() - one.begun >= std::min(one.limit, kConnectLimit);
        if (counts({one.lane, one.round, is_late, std::move(fetched)})) {
          ++counted;
        } else {
          limit_ = std::min(2 * one.limit, kLimitMax);  // the machine is busy, or all is slow
        }
        if (counted + running.size() < rounds && begun < 2 * rounds) begin(one.lane);
      }
    }
    EXPECT_EQ(counted, rounds);
    EXPECT_TRUE(nothing_is_pinned());
  }
  // What has landed in the lane's rooms is what was said to have, and right.
  void expect_right_in(int lane, const kv::PeerFetched& fetched) {
    std::lock_guard lock(target_memory_.mutex);
    auto& written = target_memory_.written;
    const auto is_lanes = [&](const auto& one) { return one.first.second / kRoomsOfLane == lane; };
    EXPECT_EQ(std::ranges::count_if(written, is_lanes), std::ssize(fetched.blocks));
    for (const kv::PeerFetched::Block& one : fetched.blocks) {
      int i = 0;
      while (i < kBlocks && name_of(i) != one.name) ++i;
      ASSERT_LT(i, kBlocks);
      EXPECT_EQ(written.at({one.group, one.host}), content(one.group, i)) << "a wrong block";
    }
    std::erase_if(written, is_lanes);
  }

  std::chrono::milliseconds limit_{400};  // of a fetch
};

// FT-30, KV-18, KV-19: each bit of the stream may turn, it may end at each byte, and each record
// may be cut short, change places with the next, come twice or not at all.
TEST_F(ExchangeDamageTest, Kv18Kv19WhateverHappensOnTheWayNothingWrongLands) {
  const uint64_t rounds = is_full() ? 100'000 : 2'000;
  const uint64_t seed = seed_of_run();
  SCOPED_TRACE(fmt::format("PELTON_SEED={}", seed));
  std::map<Outcome, uint64_t> outcomes;
  std::array<uint64_t, Damage::kKinds> kinds{};
  const auto counts = [&](const Spoiler& spoiler, const Ended& ended) {
    const Damage damage = Damage::drawn(seed, ended.round);
    const Spoiler::Done done = spoiler.done(ended.round);
    const kv::PeerFetched& fetched = ended.fetched;
    SCOPED_TRACE(damage.text() + ": " + fetched.why);
    // On a busy machine it may have taken too long by itself.
    const bool is_short =
        fetched.outcome == Outcome::kFailed && fetched.blocks.size() < damage.landed();
    if (!done.is_done || (ended.is_late && (is_short || fetched.outcome == Outcome::kNothing))) {
      EXPECT_TRUE(ended.is_late);
      return false;
    }
    const bool waits = done.changes_length || damage.record == kGreeting ||
                       (damage.kind == Damage::kLeaveOut && damage.record == kDone);
    const bool may_be_refused = damage.record == kGreeting;  // another version
    if (damage.kind == Damage::kCut) {
      EXPECT_EQ(fetched.outcome, Outcome::kFailed);
      EXPECT_LE(fetched.blocks.size(), damage.landed());
    } else {
      const bool is_known = fetched.outcome == Outcome::kCorrupt ||
                            (fetched.outcome == Outcome::kFailed && (waits || ended.is_late)) ||
                            (fetched.outcome == Outcome::kRefused && may_be_refused);
      EXPECT_TRUE(is_known) << static_cast<int>(fetched.outcome);
      EXPECT_EQ(fetched.blocks.size(), damage.landed());
    }
    ++outcomes[fetched.outcome];
    ++kinds[damage.kind];
    return true;
  };
  for (uint64_t first = 0; first < rounds; first += kRoundsOfExchange) {
    open(options_of(), options_of());
    struct Link {
      Spoiler spoiler;
      std::unique_ptr<Proxy> proxy;
    };
    std::array<Link, kLanes> links;
    carry_out(
        4 * first, std::min<uint64_t>(rounds - first, kRoundsOfExchange),
        [&](int lane, uint64_t round) {
          Link& link = links.at(static_cast<size_t>(lane));
          link.spoiler.expect(Damage::drawn(seed, round));
          if (link.proxy == nullptr) {
            link.proxy = std::make_unique<Proxy>(
                source_->place().port,
                [&link](size_t at, std::string& piece) { return link.spoiler.pass(at, piece); },
                65536);
          }
          return link.proxy->port();
        },
        [&](const Ended& ended) {
          Link& link = links.at(static_cast<size_t>(ended.lane));
          const bool has_counted = counts(link.spoiler, ended);
          if (!has_counted) link.proxy.reset();  // its channel may be kept for the next
          return has_counted;
        });
  }
  EXPECT_EQ(outcomes[Outcome::kDone] + outcomes[Outcome::kNothing], 0U);
  EXPECT_EQ(outcomes[Outcome::kCorrupt] + outcomes[Outcome::kFailed] + outcomes[Outcome::kRefused],
            rounds);
  for (const uint64_t count : kinds) EXPECT_GT(count, rounds / Damage::kKinds / 2);
}

// What a source that has the fleet's key says, but for one block.
struct Fault {
  enum Kind { kBit, kShort, kOthersContent, kOthersName, kNameOfNone, kTwice, kKinds };

  Kind kind = kBit;
  int block = 0;  // as they are sent
  uint64_t draw = 0;

  static Fault drawn(uint64_t seed, uint64_t round) {
    const uint64_t draw = random_bits(seed, round);
    return {.kind = static_cast<Kind>(draw % kKinds),
            .block = static_cast<int>((draw >> 8 & 255) % (kAllBlocks - 1)),
            .draw = draw >> 16};
  }
  size_t landed() const { return static_cast<size_t>(kind == kTwice ? block + 1 : block); }
  std::string text() const {
    return fmt::format("kind {}, block {}, draw {}", int{kind}, block, draw);
  }

  // Group and number of the at-th block that is sent: of the window the last two.
  static std::pair<int, int> place_of(int at) {
    const int of_both = at - (kBlocks - 2);
    if (of_both < 0) return {0, at};
    return {of_both % 2, kBlocks - 2 + of_both / 2};
  }
  static std::string block_of(uint32_t transfer, int group, const kv::BlockHash& name, int of) {
    std::string message(PeerData::kHeaderBytes + kBlockBytes[group], '\0');
    begin_data(message, transfer, group, name);
    message.replace(PeerData::kHeaderBytes, kBlockBytes[group], content(group, of));
    finish_data(message);
    return message;
  }
  std::vector<std::string> messages(uint32_t transfer) const {
    std::vector<std::string> all = {encode(PeerHave{
        .transfer = transfer, .prefix_blocks = kBlocks, .blocks = kAllBlocks, .refused = {}})};
    for (int at = 0; at < kAllBlocks; ++at) {
      const auto [group, number] = place_of(at);
      all.push_back(block_of(transfer, group, name_of(number), number));
    }
    std::string& spoiled = all[static_cast<size_t>(block) + 1];
    const auto [group, number] = place_of(block);
    const int other =
        static_cast<int>((static_cast<uint64_t>(number) + 1 + draw % (kBlocks - 1)) % kBlocks);
    constexpr size_t kGroupAt = PeerData::kHeaderBytes - 21;  // group, sum, name, block
    constexpr size_t kNameAt = PeerData::kHeaderBytes - 16;
    switch (kind) {
      case kBit: {
        const size_t bit = 8 * kGroupAt + draw % (8 * (spoiled.size() - kGroupAt));
        spoiled[bit / 8] = static_cast<char>(spoiled[bit / 8] ^ 1 << bit % 8);
        break;
      }
      case kShort:
        spoiled.resize(kGroupAt + draw % (spoiled.size() - kGroupAt));
        break;
      case kOthersContent:
        spoiled.replace(PeerData::kHeaderBytes, std::string::npos, content(group, other));
        break;
      case kOthersName:
        spoiled.replace(kNameAt, 16,
                        block_of(transfer, group, name_of(other), other).substr(kNameAt, 16));
        break;
      case kNameOfNone:  // and its sum is right
        spoiled = block_of(transfer, group, name_of(kBlocks + 1 + other), number);
        break;
      case kTwice:
        all[static_cast<size_t>(block) + 2] = spoiled;
        break;
      case kKinds:
        break;
    }
    all.push_back(encode(PeerDone{.transfer = transfer}));
    return all;
  }
};

// KV-19, KV-23: bits that flip in a source's memory once the sum is made, blocks that are cut,
// have another's content or name, were not asked for, or come twice.
TEST_F(ExchangeDamageTest, Kv19Kv23WhateverASourceSaysNothingWrongLands) {
  const uint64_t rounds = is_full() ? 100'000 : 2'000;
  const uint64_t seed = seed_of_run();
  SCOPED_TRACE(fmt::format("PELTON_SEED={}", seed));
  class Source {
   public:
    Source() {
      std::tie(listener_, port_) = listen_anywhere(4);
      thread_ = std::thread([this] { serve(); });
    }
    ~Source() {
      stopping_ = true;
      thread_.join();
      ::close(listener_);
    }
    int port_for(const Fault& fault) {
      std::lock_guard lock(mutex_);
      fault_ = fault;
      return port_;
    }

   private:
    void serve() {
      while (!stopping_) {
        pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
        if (::poll(&waiting, 1, 20) <= 0) continue;
        const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        Fault fault;
        {
          std::lock_guard lock(mutex_);
          fault = fault_;
        }
        serve_one(socket, [&](uint32_t transfer) { return fault.messages(transfer); });
      }
    }

    int listener_ = -1;
    int port_ = 0;
    std::mutex mutex_;
    Fault fault_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
  };
  std::array<Source, kLanes> sources;
  std::array<uint64_t, Fault::kKinds> kinds{};
  carry_out(
      0, rounds,
      [&](int lane, uint64_t round) {
        return sources.at(static_cast<size_t>(lane)).port_for(Fault::drawn(seed, round));
      },
      [&](const Ended& ended) {
        const Fault fault = Fault::drawn(seed, ended.round);
        SCOPED_TRACE(fault.text() + ": " + ended.fetched.why);
        if (ended.is_late && ended.fetched.outcome == Outcome::kFailed) return false;
        EXPECT_EQ(ended.fetched.outcome, Outcome::kCorrupt);
        EXPECT_EQ(ended.fetched.blocks.size(), fault.landed());
        ++kinds[fault.kind];
        return true;
      });
  for (const uint64_t count : kinds) EXPECT_GT(count, rounds / Fault::kKinds / 2);
}

// A transfer's bytes.
constexpr size_t kTransferBytes = size_t{kBlocks} * kBlockBytes[0] + 2 * kBlockBytes[1];

// FT-31, KV-18. At each tenth of a transfer one side ends, for both its connection breaks, or is
// stopped, nothing passes any more: what has landed is right, the fetch ends in its time, pins go
// while the other is still stopped.
TEST_F(ExchangeDamageTest, Ft31Kv18EitherSideEndsOrIsStoppedAtEachTenth) {
  enum Kind : int { kEnds, kSourceStops, kReceiverStops, kIsCancelled, kKinds };
  BlockExchange::Options source = options_of();
  source.pin_max = 60ms;
  BlockExchange::Options narrow = source;  // so that it waits for credit
  narrow.uncredited_max = 12'000;
  narrow.pin_max = 300ms;
  const int rounds = is_full() ? 1000 : 50;
  for (int round = 0; round < rounds; ++round) {
    const int tenth = round % 10;
    const int kind = round / 10 % kKinds;
    SCOPED_TRACE(fmt::format("round {}: kind {} at {}/10", round, kind, tenth));
    if (tenth == 0) open(kind == kReceiverStops ? narrow : source, options_of());
    const auto begun = Clock::now();
    if (kind == kReceiverStops) {
      ask_and_stop(false, tenth * kAllBlocks / 10);
      EXPECT_LT(Clock::now() - begun, 5s);
      continue;
    }
    // The first amid the greeting; who is cancelled has been welcomed.
    const size_t begins = kind == kIsCancelled ? 300 : 17;
    const size_t where = kTransferBytes / 10 * static_cast<size_t>(tenth) + begins;
    std::atomic<bool> is_there{false};
    std::atomic<bool> is_over{false};
    Proxy proxy(source_->place().port, [&](size_t at, std::string& piece) {
      if (at + piece.size() <= where) return true;
      piece.resize(where - at);
      is_there = true;
      while (kind != kEnds && !is_over) std::this_thread::sleep_for(1ms);
      return false;
    });
    kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
    wanted.port = proxy.port();
    wanted.limit_ns = kind == kSourceStops ? 60'000'000 : 20'000'000'000;
    target_memory_.written.clear();
    target_->fetch(std::move(wanted));
    if (kind == kIsCancelled) {
      EXPECT_TRUE(eventually([&] { return is_there.load(); }));
      target_->cancel(id_);
    }
    const kv::PeerFetched fetched = outcome();
    EXPECT_EQ(fetched.outcome, kind == kIsCancelled ? Outcome::kCancelled : Outcome::kFailed);
    expect_right(fetched);
    EXPECT_TRUE(nothing_is_pinned());
    EXPECT_LT(Clock::now() - begun, 5s);
    is_over = true;
  }
  open(options_of(), options_of());
  EXPECT_EQ(run(ticket()).outcome, Outcome::kDone);
}

// The receiver is not held up by it beyond its time, and the source holds nothing for it.
TEST_F(ExchangeDamageTest, ALinkOfAMegabyteASecondIsGivenUpAmidTheTransfer) {
  bool is_slow = false;
  Proxy proxy(source_->place().port, [&](size_t at, std::string& piece) {
    is_slow = is_slow || at > 10'000;
    if (is_slow) std::this_thread::sleep_for(std::chrono::microseconds(piece.size()));
    return true;
  });
  kv::PeerFetch wanted = fetch(ticket().seal(kKeys.front()));
  wanted.port = proxy.port();
  wanted.limit_ns = 25'000'000;
  const auto begun = std::chrono::steady_clock::now();
  const kv::PeerFetched fetched = run(std::move(wanted));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
  EXPECT_EQ(fetched.outcome, Outcome::kFailed) << fetched.why;
  EXPECT_LT(fetched.blocks.size(), size_t{kBlocks});
  expect_right(fetched);
  EXPECT_TRUE(nothing_is_pinned());
}

}  // namespace
}  // namespace pelton::kv_transfer
