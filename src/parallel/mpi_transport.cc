#include "parallel/mpi_transport.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/spin.h"

namespace pelton::parallel {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kLook{20'000'000};  // at `aborted_`, while MPI begins
// Between looks at requests: an eighth of the wait so far.
constexpr int64_t kSleepMinNs = 20'000;
constexpr int64_t kSleepMaxNs = 1'000'000;

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

Error unavailable(std::string what) {
  return Error{ErrorCode::kUnavailable, std::move(what)};
}

// A call that waits for other ranks, perhaps for ever, on a thread of its own. False: it was given
// up, and the thread stays in it.
bool has_returned(std::function<void()> call, int64_t limit_ns,
                  const std::function<bool()>& stopped) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, call = std::move(call)] {
    call();
    const std::lock_guard lock(shared->mutex);
    shared->is_done = true;
    shared->changed.notify_all();
  }).detach();
  const int64_t end_ns = now_ns() + limit_ns;
  std::unique_lock lock(shared->mutex);
  while (!shared->is_done && now_ns() < end_ns && !stopped()) {
    shared->changed.wait_for(lock, kLook);
  }
  return shared->is_done;
}

// MPI may write into it as long as the process lives.
void keep(std::vector<std::byte> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::vector<std::byte>>();
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace

MpiTransport::MpiTransport(const MpiTable& mpi, const Options& options)
    : mpi_(mpi),
      options_(options),
      peers_(static_cast<size_t>(options.ranks)),
      memory_(2 * peers_.size() * options.part_bytes) {}

MpiTransport::~MpiTransport() {
  if (world_ == nullptr) return;
  // With a rank lost there is no orderly end: whoever started the processes ends them.
  const bool has_ended =
      !aborted_.load() && has_returned([end = mpi_.end, world = world_] { end(world); },
                                       options_.end_ns, [] { return false; });
  if (!has_ended) keep(std::move(memory_));
}

Result<void> MpiTransport::connect() {
  struct Begun {
    void* world = nullptr;
    MpiPlace place = {};
    std::string failure;
  };
  const auto begun = std::make_shared<Begun>();
  const auto begin = [begun, &mpi = mpi_, slots = 3 * options_.ranks] {
    begun->world = mpi.begin(slots, &begun->place);
    if (begun->world == nullptr) begun->failure = mpi.failure();
  };
  const bool is_there = has_returned(begin, options_.start_ns, [this] { return aborted_.load(); });
  if (aborted_.load()) return unavailable("the group ends");
  if (!is_there) {
    return unavailable(fmt::format("MPI has not begun on all {} ranks within {} s", options_.ranks,
                                   options_.start_ns / 1'000'000'000));
  }
  if (begun->world == nullptr) return unavailable("MPI does not begin: " + begun->failure);
  {
    const std::lock_guard lock(calls_);
    world_ = begun->world;
  }
  const MpiPlace place = begun->place;
  if (place.rank != options_.rank || place.ranks != options_.ranks) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("rank {} of {} is rank {} of {} to MPI: did its mpirun start it?",
                             options_.rank, options_.ranks, place.rank, place.ranks)};
  }
  {
    const std::lock_guard lock(calls_);
    post(1);
  }
  if (aborted_.load()) return unavailable(loss());
  return {};
}

void MpiTransport::post(uint32_t round) {
  for (int rank = 0; rank < options_.ranks && !aborted_.load(); ++rank) {
    if (rank == options_.rank) continue;
    if (!mpi_.receive(world_, receiving(rank, round), part(rank, round),
                      static_cast<int64_t>(options_.part_bytes), rank)) {
      lose(fmt::format("rank {}: {}", rank, mpi_.failure()));
    }
  }
}

// What came of the round before may be overwritten from here on.
void MpiTransport::publish(size_t bytes) {
  CHECK(bytes <= options_.part_bytes);
  ++round_;
  for (Peer& peer : peers_) peer.is_sent = peer.has_arrived = false;
  peers_[static_cast<size_t>(options_.rank)].is_sent = true;
  const std::lock_guard lock(calls_);
  post(round_ + 1);
  for (int rank = 0; rank < options_.ranks && !aborted_.load(); ++rank) {
    if (rank == options_.rank) continue;
    if (!mpi_.send(world_, sending(rank), own_part(), static_cast<int64_t>(bytes), rank,
                   static_cast<int32_t>(round_ % kMpiTags))) {
      lose(fmt::format("rank {}: {}", rank, mpi_.failure()));
    }
  }
}

bool MpiTransport::is_sent() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.is_sent; });
}

// Whoever leaves a round may not come back for long: so not before all have begun to receive its
// part.
const std::byte* MpiTransport::part_of(int rank, size_t bytes) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const int64_t begin_ns = now_ns();
  int64_t slept_ns = 0;
  while (!aborted_.load() && (!peer.has_arrived || !is_sent())) {
    if (progress()) continue;
    const int64_t waited_ns = now_ns() - begin_ns;
    if (waited_ns < options_.spin_ns) {
      base::spin_pause();
      continue;
    }
    const int64_t sleep_ns = std::clamp(waited_ns / 8, kSleepMinNs, kSleepMaxNs);
    std::this_thread::sleep_for(nanoseconds(sleep_ns));
    // Time in which this process did not run is nobody's delay.
    slept_ns += sleep_ns;
    if (slept_ns < options_.patience_ns) continue;
    lose(fmt::format("rank {} has not taken part in an exchange in time", rank));
  }
  if (aborted_.load()) return nullptr;
  if (peer.arrival.bytes == static_cast<int64_t>(bytes)) return part(rank, round_);
  lose(fmt::format("rank {} sent a part of {} bytes, not {}", rank, peer.arrival.bytes, bytes));
  return nullptr;
}

bool MpiTransport::progress() {
  const std::lock_guard lock(calls_);
  bool moved = false;
  for (int rank = 0; rank < options_.ranks && !aborted_.load(); ++rank) {
    if (rank != options_.rank && look_at(rank, peers_[static_cast<size_t>(rank)])) moved = true;
  }
  return moved;
}

bool MpiTransport::look_at(int rank, Peer& peer) {
  bool moved = false;
  MpiState state = MpiState::kDone;
  if (!peer.is_sent) {
    state = mpi_.test(world_, sending(rank), nullptr);
    moved = peer.is_sent = state == MpiState::kDone;
  }
  if (state != MpiState::kFailed && !peer.has_arrived) {
    state = mpi_.test(world_, receiving(rank, round_), &peer.arrival);
    if (state == MpiState::kDone) moved = peer.has_arrived = true;
  }
  if (state == MpiState::kFailed) {
    lose(fmt::format("rank {}: {}", rank, mpi_.failure()));
    return false;
  }
  const auto tag = static_cast<int32_t>(round_ % kMpiTags);
  if (peer.has_arrived && peer.arrival.tag != tag) {
    lose(fmt::format("rank {}: a part of round {}, {} is this one", rank, peer.arrival.tag, tag));
    return false;
  }
  return moved;
}

void MpiTransport::lose(std::string why) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.load() && loss_.empty()) loss_ = std::move(why);
  }
  abort();
}

// A rank that is in a round does so itself.
void MpiTransport::look_after() {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (lock.owns_lock() && world_ != nullptr && !aborted_.load()) mpi_.look_after(world_);
}

// The others hear of it by the group's own connections.
void MpiTransport::abort() {
  aborted_.store(true);
}

std::string MpiTransport::loss() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

}  // namespace pelton::parallel
