#include "kv_transfer/peer_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"

namespace pelton::kv_transfer {
namespace {

constexpr std::string_view kMagic = "PLTNKV";
constexpr std::string_view kVersion = "01";
constexpr size_t kNonceBytes = 16;
constexpr size_t kSealBytes = 32;
constexpr size_t kReadBytes = size_t{64} << 10;

Error lost(std::string_view why) {
  return {ErrorCode::kIo, fmt::format("a peer's connection: {}", why)};
}

int milliseconds_until(PeerChannel::Deadline until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - PeerChannel::Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

// Whether it came to that in time.
bool wait_for(int socket, short events, PeerChannel::Deadline until) {
  pollfd waiting{.fd = socket, .events = events, .revents = 0};
  for (;;) {
    const int ready = ::poll(&waiting, 1, milliseconds_until(until));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void make_ready(int socket) {
  const int flags = ::fcntl(socket, F_GETFL);
  (void)::fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Connected, or negative.
int connect_to(const addrinfo& place, PeerChannel::Deadline until) {
  const int socket = ::socket(place.ai_family, place.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  if (::connect(socket, place.ai_addr, place.ai_addrlen) == 0) return socket;
  int error = errno;
  if (error == EINPROGRESS && wait_for(socket, POLLOUT, until)) {
    socklen_t size = sizeof error;
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return socket;
  }
  ::close(socket);
  return -1;
}

bool is_version(std::string_view text) {
  return std::ranges::all_of(text, [](char one) { return one >= '0' && one <= '9'; });
}

std::string context_of(char from, uint64_t number) {
  return fmt::format("{} {}", from, number);
}

}  // namespace

Result<std::unique_ptr<PeerChannel>> PeerChannel::connect(const Address& address,
                                                          const std::string& key, Deadline until) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) != 0) {
    return lost(fmt::format("{} has no address", address.host));
  }
  int socket = -1;
  for (const addrinfo* one = found; one != nullptr && socket < 0; one = one->ai_next) {
    socket = connect_to(*one, until);
  }
  ::freeaddrinfo(found);
  if (socket < 0) return lost(fmt::format("{}:{} does not answer", address.host, address.port));
  make_ready(socket);
  std::unique_ptr<PeerChannel> channel(new PeerChannel(socket, Side::kClient));
  TRY_ASSIGN(const std::string drawn, channel->exchange_greetings(until));
  channel->keys_.push_back(
      {.mine = base::AuthenticatedCipher(base::hmac_sha256(key, "client " + drawn)),
       .theirs = base::AuthenticatedCipher(base::hmac_sha256(key, "server " + drawn))});
  return channel;
}

Result<std::unique_ptr<PeerChannel>> PeerChannel::accept(int socket,
                                                         const std::vector<std::string>& keys,
                                                         Deadline until) {
  make_ready(socket);
  std::unique_ptr<PeerChannel> channel(new PeerChannel(socket, Side::kServer));
  TRY_ASSIGN(const std::string drawn, channel->exchange_greetings(until));
  for (const std::string& key : keys) {
    channel->keys_.push_back(
        {.mine = base::AuthenticatedCipher(base::hmac_sha256(key, "server " + drawn)),
         .theirs = base::AuthenticatedCipher(base::hmac_sha256(key, "client " + drawn))});
  }
  return channel;
}

PeerChannel::~PeerChannel() {
  ::close(socket_);
}

// What both have drawn, the client's first.
Result<std::string> PeerChannel::exchange_greetings(Deadline until) {
  const std::string mine = base::random_bytes(kNonceBytes);
  TRY(write_all(fmt::format("{}{}{}", kMagic, kVersion, mine), until));
  constexpr size_t kBefore = kMagic.size() + kVersion.size();
  while (bytes_.size() < kBefore + kNonceBytes) {
    TRY_ASSIGN(const bool came, read_more(until));
    if (!came) return lost("no greeting");
    const size_t known = std::min(bytes_.size(), kMagic.size());
    if (!kMagic.starts_with(std::string_view(bytes_).substr(0, known))) {
      return lost("another protocol");
    }
  }
  // Each side has said its own by now, whichever it is.
  const std::string version = bytes_.substr(kMagic.size(), kVersion.size());
  if (version != kVersion) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("a peer's connection: version {} of the protocol there, {} here",
                             is_version(version) ? version : "unknown", kVersion)};
  }
  const std::string theirs = bytes_.substr(kBefore, kNonceBytes);
  bytes_.erase(0, kBefore + kNonceBytes);
  return side_ == Side::kClient ? mine + theirs : theirs + mine;
}

Result<void> PeerChannel::write_all(std::string_view bytes, Deadline until) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return lost(std::strerror(errno));
    if (!wait_for(socket_, POLLOUT, until)) return lost("the peer does not read");
  }
  return {};
}

Result<bool> PeerChannel::read_more(Deadline until) {
  // Of its own, as growing bytes_ by that would write that much for whatever little comes.
  thread_local std::string piece(kReadBytes, '\0');
  for (;;) {
    const ssize_t came = ::recv(socket_, piece.data(), piece.size(), 0);
    if (came > 0) {
      bytes_.append(piece.data(), static_cast<size_t>(came));
      return true;
    }
    if (came == 0) return lost("the peer has gone");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return lost(std::strerror(errno));
    if (!wait_for(socket_, POLLIN, until)) return false;
  }
}

Result<void> PeerChannel::send(std::string_view message, Deadline until) {
  const char from = side_ == Side::kClient ? 'c' : 's';
  const std::string sealed =
      keys_.front().mine.seal({.text = message, .context = context_of(from, sent_++)});
  std::string record;
  record.reserve(sizeof(uint32_t) + sealed.size());
  for (size_t i = 0; i < sizeof(uint32_t); ++i) {
    record.push_back(static_cast<char>(sealed.size() >> (8 * i)));
  }
  record += sealed;
  return write_all(record, until);
}

std::optional<std::string> PeerChannel::open(std::string_view sealed) {
  const char from = side_ == Side::kClient ? 's' : 'c';
  const std::string context = context_of(from, received_++);
  for (size_t i = 0; i < keys_.size(); ++i) {
    std::optional<std::string> opened = keys_[i].theirs.open({.bytes = sealed, .context = context});
    if (!opened) continue;
    if (keys_.size() > 1) std::vector<Keys>(1, keys_[i]).swap(keys_);
    return opened;
  }
  return std::nullopt;
}

uint32_t PeerChannel::next_size() const {
  uint32_t size = 0;
  for (size_t i = 0; i < sizeof(uint32_t); ++i) {
    size |= uint32_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
  }
  return size;
}

Result<std::optional<std::string>> PeerChannel::receive(Deadline until) {
  const auto bad = [](std::string why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("a peer's connection: {}", why)};
  };
  for (;;) {
    if (bytes_.size() >= sizeof(uint32_t)) {
      const uint32_t size = next_size();
      if (size < kSealBytes || size > record_max_) {
        return bad(fmt::format("a record of {} bytes; {} to {} are possible", size, kSealBytes,
                               record_max_));
      }
      if (bytes_.size() >= sizeof(uint32_t) + size) {
        std::optional<std::string> message =
            open(std::string_view(bytes_).substr(sizeof(uint32_t), size));
        if (!message) return bad("what came is not what was said, or said under another key");
        bytes_.erase(0, sizeof(uint32_t) + size);
        return message;
      }
    }
    TRY_ASSIGN(const bool came, read_more(until));
    if (!came) return std::optional<std::string>();
  }
}

bool PeerChannel::is_readable() const {
  if (bytes_.size() >= sizeof(uint32_t) && bytes_.size() - sizeof(uint32_t) >= next_size()) {
    return true;
  }
  return wait_for(socket_, POLLIN, Clock::time_point{});
}

void PeerChannel::shut_down() {
  (void)::shutdown(socket_, SHUT_RDWR);
}

}  // namespace pelton::kv_transfer
