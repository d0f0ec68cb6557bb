// TLS over one connected, non-blocking socket: bytes in the clear on this side, records on the
// other. Reads and writes as a socket does, by what is ready, so that a connection need not know.
// Internal to this room; its stream's, on that one's loop thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <boost/system/error_code.hpp>

struct ssl_st;
struct ssl_ctx_st;

namespace pelton::net {

// Of a session that accept() has begun.
bool may_speak_http2(ssl_st& session);

class TlsSession {
 public:
  using SystemError = boost::system::error_code;
  enum class Step {
    kDone,
    kWantRead,   // when the socket can be read
    kWantWrite,  // when it can be written
    kPlainHttp,  // the peer does not speak TLS but HTTP
    kFailed,     // problem() says why; the peer has been sent an alert
  };

  // The server's side of `socket`, which outlives this. With `http2` it may agree on that.
  static TlsSession accept(ssl_ctx_st& context, int socket, bool http2 = false);
  // The client's. Only a server whose certificate is for `host`, a name or an address, will do.
  static TlsSession connect(ssl_ctx_st& context, int socket, const std::string& host);

  TlsSession(TlsSession&&) noexcept = default;
  TlsSession& operator=(TlsSession&&) noexcept = default;

  // Until it is done. Never after it failed.
  Step handshake();

  // What a handshake that is done has agreed on.
  bool speaks_http2() const;

  // As a socket's: 0 and would_block, eof or another error. A read takes a whole record if `bytes`
  // has room for one (16 KiB), so that nothing is left that the socket would not report.
  size_t read_some(char* to, size_t bytes, SystemError& error);
  // After would_block the same bytes have to come again first, perhaps with more behind them.
  size_t write_some(std::string_view bytes, SystemError& error);
  // Tells the peer that nothing more comes.
  void say_goodbye();

  const std::string& problem() const { return problem_; }

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };
  TlsSession(ssl_ctx_st& context, int socket);
  SystemError why(int outcome);

  std::unique_ptr<ssl_st, Free> session_;
  std::string problem_;
  bool broken_ = false;
};

}  // namespace pelton::net
