#include "parallel/tcp_transport.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "parallel/sockets.h"
#include "parallel/tcp_frames.h"

namespace pelton::parallel {
namespace {

constexpr int kLookMs = 50;                              // between looks at `aborted_`
constexpr int64_t kSleepNs = 100'000'000;                // and at the clock, in a round
constexpr int64_t kHandshakeNs = 1'000'000'000;          // for one that has connected
constexpr std::string_view kStopped = "the group ends";  // whoever aborts knows why

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

Error no(const char* what) {
  return Error{ErrorCode::kIo, fmt::format("ranks over tcp: {}: {}", what, std::strerror(errno))};
}

Error unavailable(std::string what) {
  return Error{ErrorCode::kUnavailable, std::move(what)};
}

bool would_block(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EINTR);
}

std::string how_gone(ssize_t result) {
  return result == 0 ? "it has closed its connection" : std::strerror(errno);
}

}  // namespace

Result<std::pair<int, int>> TcpTransport::listen(const std::string& host) {
  return listen_at({.host = host});
}

TcpTransport::TcpTransport(const Options& options)
    : options_(options),
      peers_(static_cast<size_t>(options.ranks)),
      frame_(kFrameHeadBytes + options.part_bytes) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (rank != options.rank) peers_[static_cast<size_t>(rank)].part.resize(options.part_bytes);
  }
}

TcpTransport::~TcpTransport() {
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) ::close(peer.socket);
  }
}

Result<void> TcpTransport::connect(int listener) {
  CHECK(static_cast<int>(options_.ports.size()) == options_.ranks);
  const int64_t end_ns = now_ns() + options_.start_ns;
  for (int rank = 0; rank < options_.rank; ++rank) TRY(connect_to(rank, end_ns));
  std::string refused;
  for (int left = options_.ranks - 1 - options_.rank; left > 0;) {
    if (aborted_.load()) return unavailable(std::string(kStopped));
    if (now_ns() >= end_ns) {
      return unavailable(fmt::format("{} not connected within {} s{}", missing(),
                                     options_.start_ns / 1'000'000'000, refused));
    }
    pollfd wanted{.fd = listener, .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, kLookMs) <= 0) continue;
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    const Result<int> rank = accept_one(socket, std::min(end_ns, now_ns() + kHandshakeNs));
    if (rank.ok()) {
      peers_[static_cast<size_t>(*rank)].socket = socket;
      --left;
      continue;
    }
    // Whoever else connects is not of the group, and does not end it.
    refused = fmt::format("; a connection was refused: {}", rank.error().message);
    ::close(socket);
  }
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) without_delay(peer.socket);
  }
  connected_.store(true);
  if (aborted_.load()) return unavailable(std::string(kStopped));
  return {};
}

std::string TcpTransport::missing() const {
  std::string names;
  for (int rank = options_.rank + 1; rank < options_.ranks; ++rank) {
    if (peers_[static_cast<size_t>(rank)].socket >= 0) continue;
    names += fmt::format("{}rank {}", names.empty() ? "" : ", ", rank);
  }
  return names;
}

Result<void> TcpTransport::connect_to(int rank, int64_t end_ns) {
  const auto failed = [rank](const std::string& why) {
    return unavailable(fmt::format("rank {} not connected: {}", rank, why));
  };
  const auto stopped = [this] { return aborted_.load(); };
  const auto at = static_cast<size_t>(rank);
  Place place{.port = options_.ports[at]};
  if (!options_.hosts.empty()) place.host = options_.hosts[at];
  TRY_ASSIGN(const sockaddr_in address, resolve(place));
  const Result<int> connected = connect_once(address, end_ns, stopped);
  if (!connected.ok()) return failed(connected.error().message);
  const int socket = peers_[at].socket = *connected;
  std::string theirs(kNonceBytes, '\0');
  Result<void> read = read_whole(socket, theirs.data(), theirs.size(), end_ns, stopped);
  if (!read.ok()) return failed(read.error().message);
  TRY_ASSIGN(const std::string own, random_nonce());
  const RankHello hello{.ranks = static_cast<uint32_t>(options_.ranks),
                        .rank = static_cast<uint32_t>(options_.rank),
                        .part_bytes = options_.part_bytes,
                        .nonce = own};
  if (!send_whole(socket, write_hello(hello, options_.token, theirs))) {
    return failed(std::strerror(errno));
  }
  std::string answer(kProofBytes, '\0');
  read = read_whole(socket, answer.data(), answer.size(), end_ns, stopped);
  if (!read.ok()) return failed(read.error().message);
  if (!same_proof(answer, acceptance(options_.token, own))) return failed("another token");
  return {};
}

// The rank that it is.
Result<int> TcpTransport::accept_one(int socket, int64_t end_ns) {
  TRY_ASSIGN(const std::string own, random_nonce());
  if (!send_whole(socket, own)) return no("send");
  std::string bytes(kHelloBytes, '\0');
  TRY(read_whole(socket, bytes.data(), bytes.size(), end_ns, [this] { return aborted_.load(); }));
  TRY_ASSIGN(const RankHello hello, read_hello(bytes, options_.token, own));
  if (hello.ranks != static_cast<uint32_t>(options_.ranks) ||
      hello.part_bytes != options_.part_bytes) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("a group of {} ranks with parts of {} bytes, {} and {} here",
                             hello.ranks, hello.part_bytes, options_.ranks, options_.part_bytes)};
  }
  if (hello.rank <= static_cast<uint32_t>(options_.rank) || hello.rank >= hello.ranks ||
      peers_[hello.rank].socket >= 0) {
    return Error{ErrorCode::kBadConfig, fmt::format("rank {} is not awaited", hello.rank)};
  }
  if (!send_whole(socket, acceptance(options_.token, hello.nonce))) return no("send");
  return static_cast<int>(hello.rank);
}

std::byte* TcpTransport::own_part() {
  return frame_.data() + kFrameHeadBytes;
}

void TcpTransport::publish(size_t bytes) {
  CHECK(bytes <= options_.part_bytes);
  ++round_;
  write_frame_head({.round = round_, .bytes = static_cast<uint32_t>(bytes)},
                   reinterpret_cast<char*>(frame_.data()));
  frame_bytes_ = kFrameHeadBytes + bytes;
  for (Peer& peer : peers_) peer.sent = peer.got = peer.part_bytes = 0;
  if (!aborted_.load()) progress();
}

bool TcpTransport::has_arrived(const Peer& peer) const {
  return peer.got >= kFrameHeadBytes && peer.got == kFrameHeadBytes + peer.part_bytes;
}

bool TcpTransport::is_sent() const {
  return std::ranges::all_of(
      peers_, [this](const Peer& peer) { return peer.socket < 0 || peer.sent == frame_bytes_; });
}

// Whoever leaves a round may not come back for long: so not before its part has left, too. Nobody
// waits for ever by that: a rank in a round reads from everybody.
const std::byte* TcpTransport::part_of(int rank, size_t bytes) {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const int64_t begin_ns = now_ns();
  int64_t waited_ns = 0;
  while (!has_arrived(peer) || !is_sent()) {
    if (aborted_.load()) return nullptr;
    if (progress()) continue;
    if (now_ns() - begin_ns < options_.spin_ns) continue;
    // Time in which this process did not run is nobody's delay.
    const int64_t sleep_begin_ns = now_ns();
    sleep();
    waited_ns += std::min(now_ns() - sleep_begin_ns, kSleepNs);
    if (waited_ns < options_.patience_ns) continue;
    lose(fmt::format("rank {} has not taken part in an exchange in time", rank));
  }
  if (aborted_.load()) return nullptr;
  if (peer.part_bytes == bytes) return peer.part.data();
  lose(fmt::format("rank {} sent a part of {} bytes, not {}", rank, peer.part_bytes, bytes));
  return nullptr;
}

bool TcpTransport::progress() {
  bool moved = false;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.socket < 0) continue;
    if (peer.sent < frame_bytes_ && send_some(rank, peer)) moved = true;
    if (!has_arrived(peer) && receive_some(rank, peer)) moved = true;
  }
  return moved;
}

bool TcpTransport::send_some(int rank, Peer& peer) {
  const size_t size = std::min(frame_bytes_ - peer.sent, options_.bytes_at_once);
  const ssize_t sent =
      ::send(peer.socket, frame_.data() + peer.sent, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (would_block(sent)) return false;
  if (sent < 0) {
    lose(fmt::format("rank {}: {}", rank, how_gone(sent)));
    return false;
  }
  peer.sent += static_cast<size_t>(sent);
  return true;
}

bool TcpTransport::receive_some(int rank, Peer& peer) {
  const bool in_head = peer.got < kFrameHeadBytes;
  void* const to = in_head ? static_cast<void*>(peer.head + peer.got)
                           : peer.part.data() + (peer.got - kFrameHeadBytes);
  const size_t size = kFrameHeadBytes + (in_head ? 0 : peer.part_bytes) - peer.got;
  const ssize_t got = ::recv(peer.socket, to, size, MSG_DONTWAIT);
  if (would_block(got)) return false;
  if (got <= 0) {
    lose(fmt::format("rank {}: {}", rank, how_gone(got)));
    return false;
  }
  peer.got += static_cast<size_t>(got);
  if (!in_head || peer.got < kFrameHeadBytes) return true;
  const Result<FrameHead> head =
      read_frame_head({peer.head, kFrameHeadBytes}, round_, options_.part_bytes);
  if (!head.ok()) {
    lose(fmt::format("rank {}: {}", rank, head.error().message));
    return false;
  }
  peer.part_bytes = head->bytes;
  return true;
}

void TcpTransport::sleep() {
  std::vector<pollfd> wanted;
  for (const Peer& peer : peers_) {
    if (peer.socket < 0) continue;
    const int events = (has_arrived(peer) ? 0 : POLLIN) | (peer.sent < frame_bytes_ ? POLLOUT : 0);
    if (events == 0) continue;
    wanted.push_back({.fd = peer.socket, .events = static_cast<short>(events), .revents = 0});
  }
  ::poll(wanted.data(), wanted.size(), kSleepNs / 1'000'000);
}

void TcpTransport::lose(std::string why) {
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.load() && loss_.empty()) loss_ = std::move(why);
  }
  abort();
}

// The others notice by their connections' ends.
void TcpTransport::abort() {
  aborted_.store(true);
  if (!connected_.load()) return;
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) ::shutdown(peer.socket, SHUT_RDWR);
  }
}

std::string TcpTransport::loss() const {
  std::lock_guard lock(mutex_);
  return loss_;
}

}  // namespace pelton::parallel
