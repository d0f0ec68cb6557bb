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
constexpr size_t kSealBytes = base::AuthenticatedCipher::kSealBytes;
constexpr size_t kSaltBytes = base::AuthenticatedCipher::kSaltBytes;
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
  while (filled_ < kBefore + kNonceBytes) {
    TRY_ASSIGN(const bool came, read_more(kReadBytes, until));
    if (!came) return lost("no greeting");
    const size_t known = std::min(filled_, kMagic.size());
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
  drop(kBefore + kNonceBytes);
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

Result<bool> PeerChannel::read_more(size_t room, Deadline until) {
  if (bytes_.size() < room) bytes_.resize(room);
  for (;;) {
    const ssize_t came = ::recv(socket_, bytes_.data() + filled_, bytes_.size() - filled_, 0);
    if (came > 0) {
      filled_ += static_cast<size_t>(came);
      return true;
    }
    if (came == 0) return lost("the peer has gone");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return lost(std::strerror(errno));
    if (!wait_for(socket_, POLLIN, until)) return false;
  }
}

void PeerChannel::drop(size_t bytes) {
  std::memmove(bytes_.data(), bytes_.data() + bytes, filled_ - bytes);
  filled_ -= bytes;
}

Result<void> PeerChannel::send(std::string_view message, Deadline until) {
  std::ranges::copy(message, compose(message.size()).begin());
  return send_composed(until);
}

std::span<char> PeerChannel::compose(size_t bytes) {
  composed_ = bytes;
  if (record_.size() < bytes + kRecordBytes) record_.resize(bytes + kRecordBytes);
  return std::span(record_).subspan(sizeof(uint32_t) + kSaltBytes, bytes);
}

Result<void> PeerChannel::send_composed(Deadline until) {
  const size_t size = composed_ + kSealBytes;
  for (size_t i = 0; i < sizeof(uint32_t); ++i) record_[i] = static_cast<char>(size >> (8 * i));
  const std::span<char> sealed = std::span(record_).subspan(sizeof(uint32_t), size);
  const std::string_view message(sealed.data() + kSaltBytes, composed_);
  const char from = side_ == Side::kClient ? 'c' : 's';
  keys_.front().mine.seal_into({.text = message, .context = context_of(from, sent_++)}, sealed);
  return write_all(std::string_view(record_).substr(0, composed_ + kRecordBytes), until);
}

// Into opened_.
bool PeerChannel::open(std::string_view sealed) {
  const char from = side_ == Side::kClient ? 's' : 'c';
  const std::string context = context_of(from, received_++);
  const size_t size = sealed.size() - kSealBytes;
  if (opened_.size() < size) opened_.resize(size);
  for (size_t i = 0; i < keys_.size(); ++i) {
    const std::span<char> into = std::span(opened_).first(size);
    if (!keys_[i].theirs.open_into({.bytes = sealed, .context = context}, into)) continue;
    if (keys_.size() > 1) std::vector<Keys>(1, keys_[i]).swap(keys_);
    return true;
  }
  return false;
}

uint32_t PeerChannel::next_size() const {
  uint32_t size = 0;
  for (size_t i = 0; i < sizeof(uint32_t); ++i) {
    size |= uint32_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
  }
  return size;
}

Result<std::optional<std::string_view>> PeerChannel::receive(Deadline until) {
  const auto bad = [](std::string why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("a peer's connection: {}", why)};
  };
  for (;;) {
    size_t room = kReadBytes;
    if (filled_ >= sizeof(uint32_t)) {
      const uint32_t size = next_size();
      if (size < kSealBytes || size > record_max_) {
        return bad(fmt::format("a record of {} bytes; {} to {} are possible", size, kSealBytes,
                               record_max_));
      }
      room = std::max(room, sizeof(uint32_t) + size);
      if (filled_ >= sizeof(uint32_t) + size) {
        if (!open(std::string_view(bytes_).substr(sizeof(uint32_t), size))) {
          return bad("what came is not what was said, or said under another key");
        }
        drop(sizeof(uint32_t) + size);
        return std::optional(std::string_view(opened_).substr(0, size - kSealBytes));
      }
    }
    TRY_ASSIGN(const bool came, read_more(room, until));
    if (!came) return std::optional<std::string_view>();
  }
}

bool PeerChannel::is_readable() const {
  if (filled_ >= sizeof(uint32_t) && filled_ - sizeof(uint32_t) >= next_size()) return true;
  return wait_for(socket_, POLLIN, Clock::time_point{});
}

void PeerChannel::release_buffers() {
  std::string().swap(opened_);
  std::string().swap(record_);
  if (filled_ == 0) std::string().swap(bytes_);
}

void PeerChannel::shut_down() {
  (void)::shutdown(socket_, SHUT_RDWR);
}

}  // namespace pelton::kv_transfer
