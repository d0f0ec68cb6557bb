#include "net/tls_identity.h"

#include <string_view>
#include <utility>

#include <openssl/ssl.h>

#include "base/check.h"
#include "net/shared_key.h"
#include "net/tls_pem.h"
#include "net/tls_session.h"

namespace pelton::net {
namespace {

// Of what a client offers, the one we speak; one that offers others only hears it the plain way.
int select_protocol(SSL* session, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned int offered_bytes, void* /*unused*/) {
  static constexpr std::string_view kBoth = "\x02h2\x08http/1.1";
  static constexpr std::string_view kHttp1 = "\x08http/1.1";
  const std::string_view ours = may_speak_http2(*session) ? kBoth : kHttp1;
  unsigned char* found = nullptr;
  const int outcome = SSL_select_next_proto(
      &found, chosen_bytes, reinterpret_cast<const unsigned char*>(ours.data()),
      static_cast<unsigned int>(ours.size()), offered, offered_bytes);
  if (outcome != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<TlsIdentity::State> TlsIdentity::read(const Files& files) {
  State state{.context = make_tls_context(), .texts = {}, .expires_s = 0};
  SSL_CTX& context = *state.context;
  TRY_ASSIGN(state.texts.certificate, read_pem(files.certificate));
  TRY_ASSIGN(state.texts.key, read_pem(files.key));
  TRY_ASSIGN(state.expires_s,
             use_certificates(context, {state.texts.certificate, files.certificate},
                              {state.texts.key, files.key}));
  if (!files.client_ca.empty()) {
    TRY_ASSIGN(state.texts.client_ca, read_pem(files.client_ca));
    TRY(use_authorities(context, {state.texts.client_ca, files.client_ca}));
    SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // Tickets are for this server only; OpenSSL asks for a name where clients are verified.
    static constexpr unsigned char kName[] = "pelton";
    SSL_CTX_set_session_id_context(&context, kName, sizeof kName - 1);
  }
  SSL_CTX_set_num_tickets(&context, 1);
  SSL_CTX_set_alpn_select_cb(&context, select_protocol, nullptr);
  return state;
}

Result<std::shared_ptr<TlsIdentity>> TlsIdentity::load(const Files& files) {
  TRY_ASSIGN(State state, read(files));
  return std::shared_ptr<TlsIdentity>(new TlsIdentity(std::move(state)));
}

std::shared_ptr<TlsIdentity> TlsIdentity::of_shared_keys(const std::vector<std::string>& keys) {
  State state{.context = make_tls_context(), .texts = {}, .expires_s = 0};
  accept_shared_keys(*state.context, keys);
  return std::shared_ptr<TlsIdentity>(new TlsIdentity(std::move(state)));
}

Result<void> TlsIdentity::reload(const Files& files) {
  TRY_ASSIGN(State state, read(files));
  std::lock_guard lock(mutex_);
  state_ = std::move(state);
  return {};
}

std::shared_ptr<ssl_ctx_st> TlsIdentity::context() const {
  std::lock_guard lock(mutex_);
  return state_.context;
}

TlsIdentity::Texts TlsIdentity::texts() const {
  std::lock_guard lock(mutex_);
  return state_.texts;
}

int64_t TlsIdentity::expires_s() const {
  std::lock_guard lock(mutex_);
  return state_.expires_s;
}

}  // namespace pelton::net
