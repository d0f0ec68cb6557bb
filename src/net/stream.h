// A socket, of TCP or a Unix one, that may have TLS on it: what connections and calls read and
// write. Plain, it is the socket itself. Internal to this room; its owner's, on that one's loop
// thread.
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/tls_session.h"

namespace pelton::net {

class Stream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using SystemError = boost::system::error_code;

  explicit Stream(Socket socket) : socket_(std::move(socket)) {}

  // For waiting, options and names; bytes go through the stream.
  Socket& socket() { return socket_; }

  // Once connected and non-blocking.
  void begin_tls(TlsSession session) { tls_.emplace(std::move(session)); }
  // The peer never began it: bytes are plain again.
  void forget_tls() { tls_.reset(); }
  TlsSession* tls() { return tls_ ? &*tls_ : nullptr; }

  size_t read_some(const boost::asio::mutable_buffer& to, SystemError& error) {
    if (tls_) return tls_->read_some(static_cast<char*>(to.data()), to.size(), error);
    return socket_.read_some(to, error);
  }
  // One buffer or a gathering write of several.
  size_t write_some(const boost::asio::const_buffer& bytes, SystemError& error) {
    if (tls_) return write_records(bytes, error);
    return write_plain(bytes, error);
  }
  template <typename Buffers>
  size_t write_some(const Buffers& buffers, SystemError& error) {
    if (!tls_) return socket_.write_some(buffers, error);
    size_t written = 0;
    for (const boost::asio::const_buffer& bytes : buffers) {
      const size_t taken = write_records(bytes, error);
      written += taken;
      // What was taken is reported first; the error comes again with the rest.
      if (error || taken < bytes.size()) break;
    }
    if (written > 0) error = {};
    return written;
  }

  void shutdown_send(SystemError& error) {
    say_goodbye();
    socket_.shutdown(Socket::shutdown_send, error);
  }
  // Where all that was to be said has been said; without, a peer takes the end for a cut.
  void say_goodbye() {
    if (tls_) tls_->say_goodbye();
  }

 private:
  size_t write_records(const boost::asio::const_buffer& bytes, SystemError& error) {
    return tls_->write_some({static_cast<const char*>(bytes.data()), bytes.size()}, error);
  }

  // What a socket that is never waited for is asked, without Asio's way there; and by the number of
  // the call, because send() is a point where a thread may be cancelled, which costs two atomic
  // operations each time.
  size_t write_plain(const boost::asio::const_buffer& bytes, SystemError& error) {
    for (;;) {
      const long sent = ::syscall(SYS_sendto, socket_.native_handle(), bytes.data(), bytes.size(),
                                  MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0);
      if (sent >= 0) {
        error = {};
        return static_cast<size_t>(sent);
      }
      if (errno == EINTR) continue;
      error.assign(errno, boost::system::system_category());
      return 0;
    }
  }

  Socket socket_;
  std::optional<TlsSession> tls_;
};

}  // namespace pelton::net
