#include "net/tls_trust.h"

#include <openssl/ssl.h>

#include "net/shared_key.h"
#include "net/tls_pem.h"

namespace pelton::net {

Result<std::shared_ptr<const TlsTrust>> TlsTrust::load(const Files& files) {
  std::shared_ptr<SSL_CTX> context = make_tls_context();
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (files.ca.empty()) {
    if (SSL_CTX_set_default_verify_paths(context.get()) != 1) {
      return Error{
          ErrorCode::kBadConfig, "the system's authorities cannot be read: " + tls_complaint(), {}};
    }
  } else {
    TRY_ASSIGN(const std::string authorities, read_pem(files.ca));
    TRY(use_authorities(*context, {authorities, files.ca}));
  }
  if (!files.certificate.empty()) {
    TRY_ASSIGN(const std::string certificate, read_pem(files.certificate));
    TRY_ASSIGN(const std::string key, read_pem(files.key));
    const Result<int64_t> used =
        use_certificates(*context, {certificate, files.certificate}, {key, files.key});
    if (!used) return used.error();
  }
  return std::shared_ptr<const TlsTrust>(new TlsTrust(std::move(context)));
}

std::shared_ptr<const TlsTrust> TlsTrust::of_shared_keys(const std::vector<std::string>& keys) {
  std::shared_ptr<SSL_CTX> context = make_tls_context();
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  show_shared_key(*context, keys);
  return std::shared_ptr<const TlsTrust>(new TlsTrust(std::move(context)));
}

}  // namespace pelton::net
