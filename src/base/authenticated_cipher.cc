#include "base/authenticated_cipher.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace pelton::base {
namespace {

// Each key encrypts one text, so its nonce need not differ.
constexpr std::array<unsigned char, 12> kNonce{};

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;
using Key = std::array<unsigned char, 32>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// OpenSSL counts in int; texts here are parts of one HTTP body.
int size_of(std::string_view text) {
  CHECK(text.size() < size_t{1} << 30);
  return static_cast<int>(text.size());
}

Key key_of(const std::string& secret, std::string_view salt) {
  Key key;
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), secret.data(), size_of(secret), bytes_of(salt), salt.size(), key.data(),
             &size) != nullptr);
  CHECK(size == key.size());
  return key;
}

}  // namespace

std::string AuthenticatedCipher::seal(const Plain& plain) const {
  std::string out(plain.text.size() + kSealBytes, '\0');
  seal_into(plain, out);
  return out;
}

void AuthenticatedCipher::seal_into(const Plain& plain, std::span<char> into) const {
  CHECK(into.size() == plain.text.size() + kSealBytes);
  const std::string salt = random_bytes(kSaltBytes);
  const Key key = key_of(secret_, salt);
  std::ranges::copy(salt, into.begin());
  auto* const body = reinterpret_cast<unsigned char*>(into.data() + kSaltBytes);
  const Context context(EVP_CIPHER_CTX_new());
  CHECK(context != nullptr);
  EVP_CIPHER_CTX* const evp = context.get();
  int size = 0;
  CHECK(EVP_EncryptInit_ex(evp, EVP_aes_256_gcm(), nullptr, key.data(), kNonce.data()) == 1);
  CHECK(EVP_EncryptUpdate(evp, nullptr, &size, bytes_of(plain.context), size_of(plain.context)) ==
        1);
  CHECK(EVP_EncryptUpdate(evp, body, &size, bytes_of(plain.text), size_of(plain.text)) == 1);
  CHECK(EVP_EncryptFinal_ex(evp, body + size, &size) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_GCM_GET_TAG, kTagBytes, body + plain.text.size()) == 1);
}

std::optional<std::string> AuthenticatedCipher::open(const Sealed& sealed) const {
  if (sealed.bytes.size() < kSealBytes) return std::nullopt;
  std::string text(sealed.bytes.size() - kSealBytes, '\0');
  if (!open_into(sealed, text)) return std::nullopt;
  return text;
}

bool AuthenticatedCipher::open_into(const Sealed& sealed, std::span<char> into) const {
  std::string_view body = sealed.bytes;
  CHECK(body.size() == into.size() + kSealBytes);
  const Key key = key_of(secret_, body.substr(0, kSaltBytes));
  body.remove_prefix(kSaltBytes);
  std::string tag(body.substr(body.size() - kTagBytes));
  body.remove_suffix(kTagBytes);
  auto* const out = reinterpret_cast<unsigned char*>(into.data());
  const Context context(EVP_CIPHER_CTX_new());
  CHECK(context != nullptr);
  EVP_CIPHER_CTX* const evp = context.get();
  int size = 0;
  CHECK(EVP_DecryptInit_ex(evp, EVP_aes_256_gcm(), nullptr, key.data(), kNonce.data()) == 1);
  CHECK(EVP_DecryptUpdate(evp, nullptr, &size, bytes_of(sealed.context), size_of(sealed.context)) ==
        1);
  CHECK(EVP_DecryptUpdate(evp, out, &size, bytes_of(body), size_of(body)) == 1);
  CHECK(EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1);
  return EVP_DecryptFinal_ex(evp, out + size, &size) == 1;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) == 1);
  return bytes;
}

std::string random_hex(size_t bytes) {
  std::string text;
  for (const unsigned char c : random_bytes(bytes)) text += fmt::format("{:02x}", c);
  return text;
}

}  // namespace pelton::base
