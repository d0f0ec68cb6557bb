#include "net/tls_session.h"

#include <cerrno>
#include <cstdint>

#include <boost/asio/error.hpp>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include "base/check.h"
#include "net/tls_pem.h"

namespace pelton::net {
namespace {

namespace asio = boost::asio;

int socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int bio_write(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(socket_of(bio), bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
  if (sent < 0 && is_for_later(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(socket_of(bio), bytes, static_cast<size_t>(count), 0);
  if (got < 0 && is_for_later(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long bio_control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

// OpenSSL's own socket BIO writes with write(), which a peer that is gone turns into a signal.
const BIO_METHOD* quiet_socket() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    CHECK(method != nullptr);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
  }();
  return kMethod;
}

// "error: http request" and its like: what came first is a plain request.
bool was_plain_http(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  const int reason = ERR_GET_REASON(error);
  return reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST;
}

}  // namespace

void TlsSession::Free::operator()(ssl_st* session) const {
  SSL_free(session);
}

TlsSession::TlsSession(ssl_ctx_st& context, int socket) : session_(SSL_new(&context)) {
  CHECK(session_ != nullptr);
  BIO* const bio = BIO_new(quiet_socket());
  CHECK(bio != nullptr);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session_.get(), bio, bio);
}

TlsSession TlsSession::accept(ssl_ctx_st& context, int socket, bool http2) {
  TlsSession session(context, socket);
  SSL_set_accept_state(session.session_.get());
  static char mark = 0;
  if (http2) SSL_set_app_data(session.session_.get(), &mark);
  return session;
}

bool may_speak_http2(ssl_st& session) {
  // Of TLS 1.2 most ciphers are forbidden to it (RFC 9113, 9.2.2).
  return SSL_get_app_data(&session) != nullptr && SSL_version(&session) == TLS1_3_VERSION;
}

bool TlsSession::speaks_http2() const {
  const unsigned char* chosen = nullptr;
  unsigned int bytes = 0;
  SSL_get0_alpn_selected(session_.get(), &chosen, &bytes);
  return std::string_view(reinterpret_cast<const char*>(chosen), bytes) == "h2";
}

TlsSession TlsSession::connect(ssl_ctx_st& context, int socket, const std::string& host) {
  TlsSession session(context, socket);
  SSL* const ssl = session.session_.get();
  SSL_set_connect_state(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) != 1) {  // no address
    SSL_set_tlsext_host_name(ssl, host.c_str());
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    CHECK(SSL_set1_host(ssl, host.c_str()) == 1);
  }
  static constexpr std::string_view kHttp = "\x08http/1.1";
  SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(kHttp.data()), kHttp.size());
  return session;
}

TlsSession::Step TlsSession::handshake() {
  CHECK(!broken_);
  ERR_clear_error();
  const int outcome = SSL_do_handshake(session_.get());
  if (outcome == 1) return Step::kDone;
  switch (SSL_get_error(session_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
      return Step::kWantRead;
    case SSL_ERROR_WANT_WRITE:
      return Step::kWantWrite;
    default:
      break;
  }
  broken_ = true;
  const unsigned long error = ERR_peek_last_error();
  const long verdict = SSL_get_verify_result(session_.get());
  problem_ = tls_complaint();
  if (verdict != X509_V_OK) problem_ += std::string(": ") + X509_verify_cert_error_string(verdict);
  return was_plain_http(error) ? Step::kPlainHttp : Step::kFailed;
}

TlsSession::SystemError TlsSession::why(int outcome) {
  switch (SSL_get_error(session_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    default:
      break;
  }
  broken_ = true;
  problem_ = tls_complaint();
  return asio::error::connection_reset;
}

size_t TlsSession::read_some(char* to, size_t bytes, SystemError& error) {
  ERR_clear_error();
  size_t count = 0;
  const int outcome = SSL_read_ex(session_.get(), to, bytes, &count);
  error = outcome == 1 ? SystemError() : why(outcome);
  return count;
}

size_t TlsSession::write_some(std::string_view bytes, SystemError& error) {
  ERR_clear_error();
  size_t count = 0;
  const int outcome = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &count);
  error = outcome == 1 ? SystemError() : why(outcome);
  return count;
}

void TlsSession::say_goodbye() {
  if (broken_) return;
  ERR_clear_error();
  SSL_shutdown(session_.get());  // what does not go out now is not worth waiting for
  ERR_clear_error();
}

}  // namespace pelton::net
