// Encrypts bytes so that only who has the key can read them and nobody can change them unseen:
// AES-256-GCM, each text under a key of its own, which HMAC-SHA256 makes of the secret and a random
// salt. So no number of texts wears the key out, as random nonces under one key would. Immutable;
// any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pelton::base {

class AuthenticatedCipher {
 public:
  // What sealing adds, before and behind the text.
  static constexpr size_t kSaltBytes = 16;
  static constexpr size_t kTagBytes = 16;
  static constexpr size_t kSealBytes = kSaltBytes + kTagBytes;

  explicit AuthenticatedCipher(std::string secret) : secret_(std::move(secret)) {}

  // `context` is bound to the text and not part of it: who opens it must say the same.
  struct Plain {
    std::string_view text;
    std::string_view context;
  };
  // salt, ciphertext, tag
  std::string seal(const Plain& plain) const;

  struct Sealed {
    std::string_view bytes;
    std::string_view context;
  };
  // Nothing: not sealed with this secret and context, or changed since.
  std::optional<std::string> open(const Sealed& sealed) const;

  // The same without memory of their own. `into` is kSealBytes larger than the text and may hold it
  // already, at kSaltBytes; or as many smaller than what is sealed, and may be where the text lies
  // in it. Otherwise they do not overlap. What open_into refuses (false) leaves nothing of worth.
  void seal_into(const Plain& plain, std::span<char> into) const;
  bool open_into(const Sealed& sealed, std::span<char> into) const;

 private:
  const std::string secret_;
};

// From the system; `count` is at most a few thousand.
std::string random_bytes(size_t count);
// So many bytes in lower-case hexadecimal: a name that nobody guesses.
std::string random_hex(size_t bytes);

}  // namespace pelton::base
