#include "net/websocket_client.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/authenticated_cipher.h"
#include "base/base64.h"
#include "base/check.h"
#include "base/json.h"
#include "net/http_reader.h"
#include "net/tls_session.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using Clock = WebSocketClient::Clock;

constexpr size_t kHeadBytesMax = size_t{64} << 10;
constexpr size_t kBodyBytesMax = size_t{64} << 10;  // of an answer that is none
constexpr size_t kReadBytes = size_t{16} << 10;
constexpr milliseconds kLook{100};  // how long nobody asks whether to stop
constexpr milliseconds kTakenTimeMax{60'000};

Error broken(std::string why) {
  return Error{ErrorCode::kIo, std::move(why), {}};
}

std::string place_of(const HttpCall& call) {
  return fmt::format("{}:{}", call.host, call.port);
}

// What an error's body says, where it is one of OpenAI's.
std::string said_in(const std::string& body) {
  const Result<Json> json = Json::parse(body);
  if (json.ok()) {
    const Json* const error = json->find("error");
    if (error != nullptr) {
      if (const auto message = error->string("message")) return std::string(*message);
    }
  }
  return body.substr(0, 300);
}

}  // namespace

// The socket, with TLS or without: what is ready is read and written, and waited for until a time.
class WebSocketClient::Link {
 public:
  Link(const HttpCall& call, std::function<bool()> stops)
      : place_(place_of(call)), stops_(std::move(stops)) {}
  ~Link() {
    if (file_ >= 0) ::close(file_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Result<void> connect(const HttpCall& call) {
    const Clock::time_point end = Clock::now() + call.connect_time_max;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failure =
        ::getaddrinfo(call.host.c_str(), std::to_string(call.port).c_str(), &hints, &found);
    if (failure != 0) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("cannot connect to {}: {}", place_, ::gai_strerror(failure)),
                   {}};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
    Result<void> tried = Error{ErrorCode::kUnavailable, "cannot connect to " + place_, {}};
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      tried = connect_to(*one, end);
      if (tried.ok() || tried.error().code != ErrorCode::kUnavailable) break;
    }
    TRY(tried);
    return call.tls ? begin_tls(call, end) : Result<void>();
  }

  // What has come, once something has; empty at `until`. Errors: kIo at the end.
  Result<std::string> read(Clock::time_point until) {
    for (;;) {
      char bytes[kReadBytes];
      TlsSession::SystemError error;
      const size_t count = read_some(bytes, error);
      if (count > 0) return std::string(bytes, count);
      if (!is_later(error)) return broken(place_ + " has ended the connection");
      TRY_ASSIGN(const bool is_ready, wait(POLLIN, until));
      if (!is_ready) return std::string();
    }
  }

  // As much as the system takes now; 0: nothing.
  Result<size_t> write(std::string_view bytes) {
    TlsSession::SystemError error;
    const size_t count = write_some(bytes, error);
    if (count > 0 || is_later(error)) return count;
    return broken(place_ + " has ended the connection");
  }

  // Whether one of `events` came before `until`.
  Result<bool> wait(short events, Clock::time_point until) {
    for (;;) {
      if (stops_ && stops_()) return Error{ErrorCode::kCancelled, "interrupted", {}};
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      if (left.count() <= 0) return false;
      pollfd one{.fd = file_, .events = events, .revents = 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::min(left, kLook).count()));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return broken(std::strerror(errno));
    }
  }

  void say_goodbye() {
    if (tls_) tls_->say_goodbye();
    ::shutdown(file_, SHUT_WR);
  }
  const std::string& place() const { return place_; }

 private:
  static bool is_later(const TlsSession::SystemError& error) {
    return error == boost::system::errc::operation_would_block ||
           error == boost::system::errc::resource_unavailable_try_again ||
           error == boost::system::errc::interrupted;
  }

  Result<void> connect_to(const addrinfo& address, Clock::time_point end) {
    if (file_ >= 0) ::close(file_);
    file_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const auto failed = [&](int why) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("cannot connect to {}: {}", place_, std::strerror(why)),
                   {}};
    };
    if (file_ < 0) return failed(errno);
    if (::connect(file_, address.ai_addr, address.ai_addrlen) != 0) {
      if (errno != EINPROGRESS) return failed(errno);
      TRY_ASSIGN(const bool is_ready, wait(POLLOUT, end));
      if (!is_ready) return Error{ErrorCode::kDeadline, place_ + " took too long to connect", {}};
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(file_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return failed(error);
    }
    const int on = 1;
    ::setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return {};
  }

  Result<void> begin_tls(const HttpCall& call, Clock::time_point end) {
    trust_ = call.trust;
    if (trust_ == nullptr) {
      TRY_ASSIGN(trust_, TlsTrust::load({}));
    }
    tls_.emplace(TlsSession::connect(*trust_->context(), file_, call.host));
    for (;;) {
      const TlsSession::Step step = tls_->handshake();
      if (step == TlsSession::Step::kDone) return {};
      if (step != TlsSession::Step::kWantRead && step != TlsSession::Step::kWantWrite) {
        return Error{ErrorCode::kUnavailable,
                     fmt::format("no TLS with {}: {}", place_, tls_->problem()),
                     {}};
      }
      TRY_ASSIGN(const bool is_ready,
                 wait(step == TlsSession::Step::kWantRead ? POLLIN : POLLOUT, end));
      if (!is_ready) return Error{ErrorCode::kDeadline, place_ + " took too long to connect", {}};
    }
  }

  size_t read_some(char (&to)[kReadBytes], TlsSession::SystemError& error) {
    if (tls_) return tls_->read_some(to, sizeof to, error);
    const ssize_t count = ::recv(file_, to, sizeof to, 0);
    if (count > 0) return static_cast<size_t>(count);
    error.assign(count == 0 ? ECONNRESET : errno, boost::system::system_category());
    return 0;
  }

  size_t write_some(std::string_view bytes, TlsSession::SystemError& error) {
    if (tls_) return tls_->write_some(bytes, error);
    const ssize_t count = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) return static_cast<size_t>(count);
    error.assign(errno, boost::system::system_category());
    return 0;
  }

  const std::string place_;
  const std::function<bool()> stops_;
  int file_ = -1;
  std::shared_ptr<const TlsTrust> trust_;
  std::optional<TlsSession> tls_;
};

namespace {

std::string handshake_of(const HttpCall& call, const std::string& key) {
  const bool is_v6 = call.host.find(':') != std::string::npos;
  std::string head = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}{}{}:{}\r\nUpgrade: websocket\r\n"
      "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: {}\r\n",
      call.target, is_v6 ? "[" : "", call.host, is_v6 ? "]" : "", call.port, key);
  for (const auto& [name, value] : call.headers.fields())
    head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

// The value of a field of the head of a 101; empty: it has none, or not one.
std::string field_of(std::string_view head, std::string_view name) {
  std::string value;
  int count = 0;
  for (size_t at = head.find("\r\n"); at != std::string_view::npos && at + 2 < head.size();) {
    const size_t end = std::min(head.find("\r\n", at + 2), head.size());
    const std::string_view line = head.substr(at + 2, end - at - 2);
    at = end;
    const size_t colon = line.find(':');
    if (colon != name.size()) continue;
    const bool is_it = std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
      const auto lower = [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
      };
      return lower(a) == lower(b);
    });
    if (!is_it) continue;
    std::string_view rest = line.substr(colon + 1);
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
    while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\t')) rest.remove_suffix(1);
    value = rest;
    ++count;
  }
  return count == 1 ? value : "";
}

// Another answer than 101, whose first bytes are `got`.
template <typename Link>
Error refused(Link& link, std::string got, Clock::time_point end) {
  ResponseReader reader({});
  std::string body;
  const auto take = [&](std::string_view bytes) {
    if (body.size() < kBodyBytesMax) body += bytes;
  };
  for (;;) {
    reader.append(got);
    ResponseReader::State state = reader.advance(take);
    if (state == ResponseReader::State::kBody) state = reader.advance(take);  // the head came first
    if (state == ResponseReader::State::kDone || state == ResponseReader::State::kBad) break;
    Result<std::string> more = link.read(end);
    if (!more.ok() || more->empty() || body.size() >= kBodyBytesMax) break;
    got = std::move(*more);
  }
  if (reader.status() == 0) return broken(link.place() + " does not answer in HTTP");
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} answers with {} instead of a WebSocket: {}", link.place(),
                           reader.status(), said_in(body)),
               {}};
}

}  // namespace

void append_masked_frame(std::string& out, WebSocketOpcode opcode, std::string_view payload,
                         std::string_view mask) {
  CHECK(mask.size() == 4);
  std::string frame;
  append_websocket_frame(frame, opcode, payload);
  frame[1] = static_cast<char>(frame[1] | 0x80);
  const size_t head = frame.size() - payload.size();
  for (size_t i = head; i < frame.size(); ++i) {
    frame[i] = static_cast<char>(frame[i] ^ mask[(i - head) & 3]);
  }
  frame.insert(head, mask);
  out += frame;
}

WebSocketClient::WebSocketClient(std::unique_ptr<Link> link, Options options)
    : link_(std::move(link)),
      options_(std::move(options)),
      reader_({.message_bytes_max = options_.message_bytes_max, .of_server = true}) {}

WebSocketClient::~WebSocketClient() = default;

Result<std::unique_ptr<WebSocketClient>> WebSocketClient::open(const HttpCall& call,
                                                               Options options) {
  auto link = std::make_unique<Link>(call, options.stops);
  TRY(link->connect(call));
  const std::string place = link->place();
  const std::string key = base::base64(base::random_bytes(16));
  const std::string asked = handshake_of(call, key);
  const Clock::time_point end = Clock::now() + call.head_time_max;
  const auto late = [&] {
    return Error{ErrorCode::kDeadline, place + " took too long to answer", {}};
  };
  for (size_t sent = 0; sent < asked.size();) {
    TRY_ASSIGN(const size_t taken, link->write(std::string_view(asked).substr(sent)));
    sent += taken;
    if (taken > 0) continue;
    TRY_ASSIGN(const bool is_ready, link->wait(POLLOUT, end));
    if (!is_ready) return late();
  }
  std::string got;
  size_t head = std::string::npos;
  while (head == std::string::npos) {
    if (got.size() > kHeadBytesMax) return broken(place + " answers with a head without end");
    TRY_ASSIGN(const std::string some, link->read(end));
    if (some.empty()) return late();
    got += some;
    head = got.find("\r\n\r\n");
  }
  if (!got.starts_with("HTTP/1.1 101 ")) return refused(*link, got, end);
  const std::string_view fields = std::string_view(got).substr(0, head);
  if (field_of(fields, "Sec-WebSocket-Accept") != websocket_accept(key)) {
    return broken(place + " has not understood the WebSocket's handshake");
  }
  std::unique_ptr<WebSocketClient> client(new WebSocketClient(std::move(link), std::move(options)));
  client->reader_.append(std::string_view(got).substr(head + 4));
  return client;
}

Result<void> WebSocketClient::send(std::string_view text) {
  std::string frame;
  append_masked_frame(frame, WebSocketOpcode::kText, text, base::random_bytes(4));
  Clock::time_point end = Clock::now() + kTakenTimeMax;
  for (size_t sent = 0; sent < frame.size();) {
    TRY_ASSIGN(const size_t taken, link_->write(std::string_view(frame).substr(sent)));
    sent += taken;
    if (taken > 0) {
      end = Clock::now() + kTakenTimeMax;
      continue;
    }
    TRY_ASSIGN(const bool is_ready, link_->wait(POLLIN | POLLOUT, end));
    if (!is_ready)
      return Error{ErrorCode::kDeadline, link_->place() + " takes nothing any more", {}};
    bool came = false;
    TRY(take_some(Clock::now(), came));
  }
  return {};
}

Result<void> WebSocketClient::take_some(Clock::time_point until, bool& came) {
  TRY_ASSIGN(const std::string some, link_->read(until));
  came = !some.empty();
  reader_.append(some);
  return {};
}

Result<std::optional<std::string>> WebSocketClient::receive(Clock::time_point until) {
  for (;;) {
    switch (reader_.advance()) {
      case WebSocketReader::Event::kText:
        return std::optional(std::move(reader_.payload()));
      case WebSocketReader::Event::kPing: {
        std::string frame;
        append_masked_frame(frame, WebSocketOpcode::kPong, reader_.payload(),
                            base::random_bytes(4));
        // One that is not taken at once is followed by another ping.
        TRY(link_->write(frame));
        continue;
      }
      case WebSocketReader::Event::kPong:
        continue;
      case WebSocketReader::Event::kClose:
        return Error{
            ErrorCode::kUnavailable,
            fmt::format("{} has closed with {}{}{}", link_->place(), reader_.close().code,
                        reader_.close().reason.empty() ? "" : ": ", reader_.close().reason),
            {}};
      case WebSocketReader::Event::kBad:
        return broken(fmt::format("{}: {}", link_->place(), reader_.close().reason));
      case WebSocketReader::Event::kNone:
        break;
    }
    bool came = false;
    TRY(take_some(until, came));
    if (!came) return std::optional<std::string>();
  }
}

void WebSocketClient::close() {
  std::string payload{static_cast<char>(kCloseNormal >> 8), static_cast<char>(kCloseNormal & 0xFF)};
  std::string frame;
  append_masked_frame(frame, WebSocketOpcode::kClose, payload, base::random_bytes(4));
  static_cast<void>(link_->write(frame));
  link_->say_goodbye();
}

}  // namespace pelton::net
