#include "base/digest.h"

#include <algorithm>
#include <charconv>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"

namespace pelton::base {

namespace {

std::string hex(const unsigned char* raw, unsigned int size) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kHex[raw[i] >> 4];
    text += kHex[raw[i] & 15];
  }
  return text;
}

}  // namespace

struct Digest::Context {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> evp{EVP_MD_CTX_new()};
};

Digest::Digest(Kind kind) : context_(std::make_unique<Context>()) {
  CHECK(context_->evp != nullptr);
  const EVP_MD* algorithm = kind == Kind::kSha1 ? EVP_sha1() : EVP_sha256();
  CHECK(EVP_DigestInit_ex(context_->evp.get(), algorithm, nullptr) == 1);
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::update(std::string_view bytes) {
  CHECK(context_ != nullptr, "a finished digest");
  CHECK(EVP_DigestUpdate(context_->evp.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::finish() {
  CHECK(context_ != nullptr, "a finished digest");
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(EVP_DigestFinal_ex(context_->evp.get(), raw, &size) == 1);
  context_.reset();
  return hex(raw, size);
}

std::string sha256(std::string_view bytes) {
  Digest digest(Digest::Kind::kSha256);
  digest.update(bytes);
  return digest.finish();
}

int64_t digest_identity(std::string_view digest) {
  uint64_t first = 0;
  std::from_chars(digest.data(), digest.data() + std::min<size_t>(digest.size(), 16), first, 16);
  const auto identity = static_cast<int64_t>(first >> 1);
  return identity == 0 ? 1 : identity;
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(bytes.data());
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text, bytes.size(), raw,
             &size) != nullptr);
  return hex(raw, size);
}

}  // namespace pelton::base
