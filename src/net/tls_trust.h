// Whom a client believes, for TLS. Owned by whoever makes the calls; immutable, any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

struct ssl_ctx_st;

namespace pelton::net {

class TlsTrust {
 public:
  struct Files {
    std::string ca;           // PEM; empty: the authorities that the system trusts
    std::string certificate;  // PEM, for servers that ask for one; empty: none
    std::string key;
  };

  // Errors: kBadConfig with the file's name.
  static Result<std::shared_ptr<const TlsTrust>> load(const Files& files);

  // A server that holds the first of `keys`, of 32 bytes each, and nobody else; it learns that this
  // client holds it too. TLS 1.3 only.
  static std::shared_ptr<const TlsTrust> of_shared_keys(const std::vector<std::string>& keys);

  const std::shared_ptr<ssl_ctx_st>& context() const { return context_; }

 private:
  explicit TlsTrust(std::shared_ptr<ssl_ctx_st> context) : context_(std::move(context)) {}

  const std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace pelton::net
