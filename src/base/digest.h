// A hash of bytes that come piece by piece: SHA-256, and SHA-1 where a hub still names files by it.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace pelton::base {

class Digest {
 public:
  enum class Kind { kSha1, kSha256 };

  explicit Digest(Kind kind);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(std::string_view bytes);

  // Lower-case hexadecimal. Ends this digest: nothing may follow.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256(std::string_view bytes);
// A number that stands for a digest in hexadecimal: its first 63 bits, never 0.
int64_t digest_identity(std::string_view digest);

// HMAC-SHA256 (RFC 2104), lower-case hexadecimal.
std::string hmac_sha256(std::string_view key, std::string_view bytes);

}  // namespace pelton::base
