#include "base/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace pelton::base {

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
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kHex[raw[i] >> 4];
    text += kHex[raw[i] & 15];
  }
  return text;
}

std::string sha256(std::string_view bytes) {
  Digest digest(Digest::Kind::kSha256);
  digest.update(bytes);
  return digest.finish();
}

}  // namespace pelton::base
