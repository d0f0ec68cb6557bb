// "encrypted_content" of the Responses API's reasoning items, "signature" of Anthropic's blocks of
// thinking: what the model thought, as a token that a client without state keeps and sends back,
// and that nobody else can read or make. Another tenant's is not taken. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/authenticated_cipher.h"
#include "base/result.h"

namespace pelton::server {

class EncryptedReasoning {
 public:
  // Servers of the same `key` read each other's. Empty: a random one, which ends with the process.
  explicit EncryptedReasoning(std::string key);

  std::string encrypt(std::string_view text, std::string_view tenant) const;

  enum class Unread {
    kForeign,  // of another key, or not ours at all: another server's, or from before a restart
    kForged,   // says that it is ours, and is not, or not this tenant's
  };
  std::variant<std::string, Unread> decrypt(std::string_view token, std::string_view tenant) const;

  struct Returned {
    std::string_view token;
    std::string_view tenant;
    const std::string& field;  // of the request, for messages
  };
  // What a client sends back. What nobody here can read is empty, and a warning: a conversation
  // goes on without it. Errors: kInvalidArgument, what is forged.
  Result<std::string> read_returned(const Returned& returned,
                                    std::vector<std::string>& warnings) const;

 private:
  const std::string key_;
  const base::AuthenticatedCipher cipher_;
  const std::string prefix_;  // "pelton1.", something that names the key, "."
};

}  // namespace pelton::server
