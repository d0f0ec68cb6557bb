#include "net/tls_pem.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/check.h"
#include "base/file.h"

namespace pelton::net {
namespace {

constexpr size_t kPemBytesMax = size_t{1} << 20;

template <auto function>
struct Deleter {
  template <typename T>
  void operator()(T* thing) const {
    function(thing);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

Error bad(const std::string& file, const std::string& what) {
  return Error{ErrorCode::kBadConfig, fmt::format("{}: {}", file, what), {}};
}

Bio reader_of(const std::string& text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  CHECK(bio != nullptr);
  return bio;
}

// Asked for a passphrase, a server has nobody to ask in turn; OpenSSL's own way is to prompt.
int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

// The next certificate; null at the end, which may also be the beginning.
Result<Certificate> next_certificate(BIO& bio, const std::string& file) {
  bool asked = false;
  Certificate certificate(PEM_read_bio_X509(&bio, nullptr, no_passphrase, &asked));
  if (certificate != nullptr) return certificate;
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (at_end) {
    ERR_clear_error();
    return Certificate();
  }
  return bad(file, "a certificate in it cannot be read: " + tls_complaint());
}

int64_t end_of(const X509& certificate) {
  tm time{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &time) != 1) return 0;
  return timegm(&time);
}

Result<Key> read_key(const PemText& key) {
  bool asked = false;
  const Bio bio = reader_of(key.text);
  Key read(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &asked));
  if (read != nullptr) return read;
  const std::string complaint = tls_complaint();
  if (asked) return bad(key.file, "the key has a passphrase; write it without one");
  return bad(key.file, "holds no private key in PEM: " + complaint);
}

}  // namespace

std::string tls_complaint() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (error == 0) return "the connection broke off";
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : fmt::format("OpenSSL's error {}", error);
}

Result<std::string> read_pem(const std::string& file) {
  Result<std::string> text = base::read_file(file, kPemBytesMax);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, {}};
  return text;
}

std::shared_ptr<ssl_ctx_st> make_tls_context() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A full socket takes a part; what is left is offered again from wherever it then lies. Buffers
  // of connections that say nothing are given back.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Tickets resume sessions without a word kept here.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  return context;
}

Result<int64_t> use_certificates(ssl_ctx_st& context, const PemText& chain, const PemText& key) {
  ERR_clear_error();
  const Bio bio = reader_of(chain.text);
  TRY_ASSIGN(const Certificate own, next_certificate(*bio, chain.file));
  if (own == nullptr) return bad(chain.file, "holds no certificate in PEM");
  if (SSL_CTX_use_certificate(&context, own.get()) != 1) {
    return bad(chain.file, "the certificate is of no use: " + tls_complaint());
  }
  for (;;) {
    TRY_ASSIGN(Certificate next, next_certificate(*bio, chain.file));
    if (next == nullptr) break;
    CHECK(SSL_CTX_add0_chain_cert(&context, next.get()) == 1);
    (void)next.release();  // the context's now
  }
  TRY_ASSIGN(const Key read, read_key(key));
  if (X509_check_private_key(own.get(), read.get()) != 1) {
    ERR_clear_error();
    return bad(key.file, fmt::format("is not the key of the certificate in {}", chain.file));
  }
  if (SSL_CTX_use_PrivateKey(&context, read.get()) != 1) {
    return bad(key.file, "the key is of no use: " + tls_complaint());
  }
  return end_of(*own);
}

Result<void> use_authorities(ssl_ctx_st& context, const PemText& authorities) {
  ERR_clear_error();
  const Bio bio = reader_of(authorities.text);
  X509_STORE* store = SSL_CTX_get_cert_store(&context);
  int count = 0;
  for (;; ++count) {
    TRY_ASSIGN(const Certificate next, next_certificate(*bio, authorities.file));
    if (next == nullptr) break;
    X509_STORE_add_cert(store, next.get());  // again is no error
    ERR_clear_error();
    SSL_CTX_add_client_CA(&context, next.get());
  }
  if (count == 0) return bad(authorities.file, "holds no certificate in PEM");
  return {};
}

}  // namespace pelton::net
