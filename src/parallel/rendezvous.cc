#include "parallel/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/json.h"
#include "parallel/tcp_frames.h"
#include "parallel/tcp_transport.h"

namespace pelton::parallel {
namespace {

constexpr int kLookMs = 50;
constexpr int64_t kBeatNs = 500'000'000;
constexpr int64_t kHandshakeNs = 1'000'000'000;
constexpr int64_t kHandshakeMs = 1000;
constexpr size_t kStrangersMax = 256;
constexpr int64_t kAnswerMs = 10'000;  // the leader reads others' handshakes, too
constexpr std::chrono::milliseconds kAgain{200};

// A hello's number says which connection of which process it is: of process 21 the one for steps is
// 42, that for heartbeats 43.
enum Kind : uint64_t { kSteps = 0, kControl = 1 };

Error bad(std::string what) {
  return Error{ErrorCode::kBadConfig, std::move(what)};
}

Error unavailable(std::string what) {
  return Error{ErrorCode::kUnavailable, std::move(what)};
}

std::string meeting_token(std::string_view secret) {
  return base::hmac_sha256(secret, "ranks meet");
}

// Nobody reads it any more: the process has ended.
bool is_gone(const Channel& channel) {
  char byte = 0;
  const ssize_t got = ::recv(channel.descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Who has connected and has not said yet who it is.
struct Stranger {
  Channel channel;
  std::string nonce;  // sent to it
  int64_t end_ns = 0;
};

// A stranger is readable when all of its hello is there, afterwards at each byte.
void readable_from(int socket, size_t bytes) {
  const auto least = static_cast<int>(bytes);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

class Reception {
 public:
  explicit Reception(const Meeting& meeting)
      : meeting_(meeting), guests_(static_cast<size_t>(meeting.ranks - 1)) {}

  Result<std::vector<Guest>> wait(int listener);

 private:
  void wait_for_somebody(int listener);
  void accept(int listener);
  void receive(Stranger stranger);
  void refuse(int socket, const Error& error);
  Result<void> check(const RankHello& hello) const;
  Result<void> take(const RankHello& hello, Channel channel);
  bool all_there();
  std::string missing() const;
  Error give_up(std::string why);
  void beat();
  Guest& guest(uint32_t rank) { return guests_[rank - 1]; }

  const Meeting& meeting_;
  std::vector<Guest> guests_;
  std::vector<Stranger> strangers_;
  std::string refused_;  // the last one
  int64_t beat_ns_ = 0;
};

Result<std::vector<Guest>> Reception::wait(int listener) {
  const int64_t end_ns = monotonic_ns() + meeting_.wait_ns;
  while (!all_there()) {
    if (meeting_.stopped()) {
      return Error{ErrorCode::kCancelled, give_up("the leader was stopped").message};
    }
    if (monotonic_ns() >= end_ns) {
      return give_up(fmt::format("{} not at {} within {} s{}", missing(), meeting_.leader.text(),
                                 meeting_.wait_ns / 1'000'000'000, refused_));
    }
    beat();
    wait_for_somebody(listener);
  }
  return std::move(guests_);
}

// Who has come may wait long for the others: it hears that the leader still runs.
void Reception::beat() {
  if (monotonic_ns() - beat_ns_ < kBeatNs) return;
  beat_ns_ = monotonic_ns();
  const Heartbeat beat;
  for (const Guest& guest : guests_) {
    if (!guest.is_there()) continue;
    ::send(guest.control.descriptor(), &beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

// Strangers are waited for all at once: who says nothing holds up nobody.
void Reception::wait_for_somebody(int listener) {
  std::vector<pollfd> wanted{{.fd = listener, .events = POLLIN, .revents = 0}};
  for (const Stranger& stranger : strangers_) {
    wanted.push_back({.fd = stranger.channel.descriptor(), .events = POLLIN, .revents = 0});
  }
  ::poll(wanted.data(), wanted.size(), kLookMs);
  std::vector<Stranger> waiting;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    Stranger& stranger = strangers_[i];
    if (wanted[i + 1].revents != 0) {
      receive(std::move(stranger));
    } else if (monotonic_ns() >= stranger.end_ns) {
      refuse(stranger.channel.descriptor(), unavailable("no handshake in time"));
    } else {
      waiting.push_back(std::move(stranger));
    }
  }
  strangers_ = std::move(waiting);
  if (wanted.front().revents != 0) accept(listener);
}

void Reception::accept(int listener) {
  Channel channel(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  const int socket = channel.descriptor();
  if (socket < 0) return;
  if (strangers_.size() >= kStrangersMax) return refuse(socket, unavailable("too many at once"));
  const Result<std::string> nonce = random_nonce();
  if (!nonce.ok()) return refuse(socket, nonce.error());
  if (!send_whole(socket, *nonce)) return refuse(socket, unavailable("it has gone"));
  readable_from(socket, kHelloBytes);
  strangers_.push_back(
      {.channel = std::move(channel), .nonce = *nonce, .end_ns = monotonic_ns() + kHandshakeNs});
}

void Reception::refuse(int socket, const Error& error) {
  refused_ =
      fmt::format("; a connection from {} was refused: {}", peer_host(socket), error.message);
}

// Who ended before all had come has left its place to another.
bool Reception::all_there() {
  bool all = true;
  for (Guest& guest : guests_) {
    if (guest.is_there() && (is_gone(guest.steps) || is_gone(guest.control))) {
      // Nothing comes on the first before the job; on the other heartbeats do.
      guest = Guest();
    }
    all = all && guest.is_there();
  }
  return all;
}

std::string Reception::missing() const {
  std::string names;
  for (size_t i = 0; i < guests_.size(); ++i) {
    if (guests_[i].is_there()) continue;
    names += fmt::format("{}rank {}", names.empty() ? "" : ", ", i + 1);
  }
  return names;
}

Error Reception::give_up(std::string why) {
  for (Guest& guest : guests_) {
    if (guest.steps.descriptor() >= 0) (void)guest.steps.send(refusal(why));
  }
  return unavailable(std::move(why));
}

Result<void> Reception::check(const RankHello& hello) const {
  if (hello.ranks != static_cast<uint32_t>(meeting_.ranks)) {
    return bad(fmt::format("a group of {} ranks, {} at the leader (--tensor-parallel-size)",
                           hello.ranks, meeting_.ranks));
  }
  if (hello.rank < 1 || hello.rank >= hello.ranks) {
    return bad(fmt::format("rank {} is none of 1 to {}", hello.rank, meeting_.ranks - 1));
  }
  const Guest& guest = guests_[hello.rank - 1];
  const bool taken = guest.steps.descriptor() >= 0 && !is_gone(guest.steps);
  if (taken && (guest.number != hello.part_bytes / 2 || hello.part_bytes % 2 == kSteps)) {
    return bad(fmt::format("rank {} is there already, from {}", hello.rank, guest.data.host));
  }
  return {};
}

// The proofs, then the leader's verdict; then, of the first connection, where the rank listens.
void Reception::receive(Stranger stranger) {
  const int socket = stranger.channel.descriptor();
  readable_from(socket, 1);
  const auto refused = [&](const Error& error) { refuse(socket, error); };
  std::string bytes(kHelloBytes, '\0');
  const Result<void> read =
      read_whole(socket, bytes.data(), bytes.size(), stranger.end_ns, meeting_.stopped);
  if (!read.ok()) return refused(read.error());
  const std::string token = meeting_token(meeting_.secret);
  const Result<RankHello> hello = read_hello(bytes, token, stranger.nonce);
  if (!hello.ok()) {
    (void)send_whole(socket, std::string(kProofBytes, '-'));  // no proof: not this group's
    return refused(hello.error());
  }
  if (!send_whole(socket, acceptance(token, hello->nonce))) return refused(unavailable("gone"));
  const Result<void> fits = check(*hello);
  const Result<void> sent = stranger.channel.send(fits.ok() ? "" : fits.error().message);
  if (!fits.ok()) return refused(fits.error());
  if (!sent.ok()) return refused(sent.error());
  without_delay(socket);
  const std::string from = peer_host(socket);
  const Result<void> taken = take(*hello, std::move(stranger.channel));
  if (!taken.ok()) {
    refused_ = fmt::format("; a connection from {} was refused: {}", from, taken.error().message);
  }
}

Result<void> Reception::take(const RankHello& hello, Channel channel) {
  Guest& guest = this->guest(hello.rank);
  if (hello.part_bytes % 2 == kControl) {
    guest.control = std::move(channel);
    return {};
  }
  TRY_ASSIGN(const std::optional<std::string> said, channel.receive(kHandshakeMs));
  TRY_ASSIGN(const Json where, Json::parse(said.value_or("")));
  const auto port = where.integer("port");
  if (!port || *port < 1 || *port > 65535) return bad("a port is missing");
  guest = Guest();
  guest.number = hello.part_bytes / 2;
  guest.data = {.host = peer_host(channel.descriptor()), .port = static_cast<int>(*port)};
  guest.steps = std::move(channel);
  return {};
}

// Connected, and let in: by a leader that knows the secret, too.
Result<Channel> enter(const Meeting& meeting, const sockaddr_in& address, int rank, uint64_t number,
                      int64_t end_ns) {
  TRY_ASSIGN(const int socket, connect_once(address, end_ns, meeting.stopped));
  Channel channel(socket);
  std::string theirs(kNonceBytes, '\0');
  TRY(read_whole(socket, theirs.data(), theirs.size(), end_ns, meeting.stopped));
  TRY_ASSIGN(const std::string own, random_nonce());
  const RankHello hello{.ranks = static_cast<uint32_t>(meeting.ranks),
                        .rank = static_cast<uint32_t>(rank),
                        .part_bytes = number,
                        .nonce = own};
  const std::string token = meeting_token(meeting.secret);
  if (!send_whole(socket, write_hello(hello, token, theirs))) return unavailable("it has gone");
  std::string answer(kProofBytes, '\0');
  TRY(read_whole(socket, answer.data(), answer.size(), end_ns, meeting.stopped));
  if (!same_proof(answer, acceptance(token, own))) {
    return bad("it does not know the same secret (--rank-token-file), or runs another version");
  }
  TRY_ASSIGN(const std::optional<std::string> verdict, channel.receive(kAnswerMs));
  if (!verdict) return unavailable("it has gone");
  if (!verdict->empty()) return bad(*verdict);
  return channel;
}

Result<int> give_away(Channel& channel) {
  const int copy = ::fcntl(channel.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) return copy;
  return Error{ErrorCode::kIo, fmt::format("dup: {}", std::strerror(errno))};
}

}  // namespace

Result<std::vector<Guest>> meet_followers(const Meeting& meeting) {
  TRY_ASSIGN(const auto listener, listen_at(meeting.leader));
  Result<std::vector<Guest>> guests = Reception(meeting).wait(listener.first);
  ::close(listener.first);
  return guests;
}

Result<MemberDescriptors> meet_leader(const Meeting& meeting, int rank) {
  const int64_t end_ns = monotonic_ns() + meeting.wait_ns;
  TRY_ASSIGN(const std::string random, random_nonce());
  uint64_t number = 0;
  std::memcpy(&number, random.data(), sizeof number);
  number &= ~uint64_t{1};
  const auto failed = [&](ErrorCode code, const std::string& why) {
    return Error{code,
                 fmt::format("rank {}: the leader at {}: {}", rank, meeting.leader.text(), why)};
  };
  // Anew each time: a leader that is started again may have another address, or none yet.
  Result<sockaddr_in> address = resolve(meeting.leader);
  const auto come = [&](uint64_t which) -> Result<Channel> {
    if (!address.ok()) return Error{ErrorCode::kUnavailable, address.error().message};
    return enter(meeting, *address, rank, number | which, end_ns);
  };
  Result<Channel> steps = come(kSteps);
  while (!steps.ok()) {
    if (steps.error().code == ErrorCode::kBadConfig) {
      return failed(ErrorCode::kBadConfig, steps.error().message);
    }
    if (meeting.stopped()) return Error{ErrorCode::kCancelled, "stopped"};
    if (monotonic_ns() >= end_ns) {
      return failed(ErrorCode::kUnavailable,
                    fmt::format("not there within {} s: {}", meeting.wait_ns / 1'000'000'000,
                                steps.error().message));
    }
    std::this_thread::sleep_for(kAgain);
    address = resolve(meeting.leader);
    steps = come(kSteps);
  }
  TRY_ASSIGN(const auto data, TcpTransport::listen(own_host(steps->descriptor())));
  Json where;
  where.set("port", data.second);
  Result<void> sent = steps->send(where.dump());
  Result<Channel> control = sent.ok() ? come(kControl) : sent.error();
  if (!control.ok()) {
    ::close(data.first);
    return failed(control.error().code, control.error().message);
  }
  MemberDescriptors ends{.data = data.first};
  TRY_ASSIGN(ends.control, give_away(*control));
  TRY_ASSIGN(ends.steps, give_away(*steps));
  return ends;
}

std::string data_token(std::string_view secret, std::string_view session) {
  return base::hmac_sha256(secret, "ranks' numbers " + std::string(session));
}

std::string refusal(std::string_view why) {
  Json json;
  json.set("refused", std::string(why));
  return json.dump();
}

}  // namespace pelton::parallel
