#include "net/shared_key.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include <openssl/ssl.h>

#include "base/check.h"
#include "base/digest.h"

namespace pelton::net {
namespace {

struct SharedKey {
  std::string bytes;
  std::string identity;  // by which a server finds the key that a client shows; says nothing of it
};
using Keys = std::vector<SharedKey>;

constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

std::string identity_of(const std::string& key) {
  return "pelton-" + base::hmac_sha256(key, "identity").substr(0, 16);
}

// The context's own copy of the keys, freed with it.
int keys_index() {
  static const int kIndex = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* keys, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<Keys*>(keys);
      });
  return kIndex;
}

void keep(SSL_CTX& context, const std::vector<std::string>& keys) {
  auto kept = std::make_unique<Keys>();
  for (const std::string& key : keys) {
    CHECK(key.size() == kSharedKeyBytes);
    kept->push_back({.bytes = key, .identity = identity_of(key)});
  }
  CHECK(SSL_CTX_set_ex_data(&context, keys_index(), kept.release()) == 1);
  SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION);
  // A shared key is one for a hash: no cipher suite with another one may be chosen.
  CHECK(SSL_CTX_set_ciphersuites(&context, "TLS_AES_128_GCM_SHA256") == 1);
  SSL_CTX_set_num_tickets(&context, 0);
}

const Keys& keys_of(SSL* session) {
  return *static_cast<Keys*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(session), keys_index()));
}

SSL_SESSION* session_of(SSL* session, const std::string& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(session, kCipher);
  SSL_SESSION* shared = SSL_SESSION_new();
  CHECK(cipher != nullptr && shared != nullptr);
  CHECK(SSL_SESSION_set1_master_key(shared, reinterpret_cast<const unsigned char*>(key.data()),
                                    key.size()) == 1);
  CHECK(SSL_SESSION_set_cipher(shared, cipher) == 1);
  CHECK(SSL_SESSION_set_protocol_version(shared, TLS1_3_VERSION) == 1);
  return shared;
}

int find_shared(SSL* session, const unsigned char* identity, size_t identity_bytes,
                SSL_SESSION** found) {
  const std::string_view asked(reinterpret_cast<const char*>(identity), identity_bytes);
  *found = nullptr;  // none of ours: the handshake fails, as there is no certificate
  for (const SharedKey& key : keys_of(session)) {
    if (key.identity == asked) *found = session_of(session, key.bytes);
    if (*found != nullptr) break;
  }
  return 1;
}

int show_shared(SSL* session, const EVP_MD*, const unsigned char** identity, size_t* identity_bytes,
                SSL_SESSION** shown) {
  const SharedKey& key = keys_of(session).front();
  *identity = reinterpret_cast<const unsigned char*>(key.identity.data());
  *identity_bytes = key.identity.size();
  *shown = session_of(session, key.bytes);
  return 1;
}

}  // namespace

void accept_shared_keys(ssl_ctx_st& context, const std::vector<std::string>& keys) {
  keep(context, keys);
  SSL_CTX_set_psk_find_session_callback(&context, find_shared);
}

void show_shared_key(ssl_ctx_st& context, const std::vector<std::string>& keys) {
  keep(context, keys);
  SSL_CTX_set_psk_use_session_callback(&context, show_shared);
}

}  // namespace pelton::net
