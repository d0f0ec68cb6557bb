// Whom a client believes, for TLS. Owned by whoever makes the calls; immutable, any thread.
#pragma once

#include <memory>
#include <string>

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

  const std::shared_ptr<ssl_ctx_st>& context() const { return context_; }

 private:
  explicit TlsTrust(std::shared_ptr<ssl_ctx_st> context) : context_(std::move(context)) {}

  const std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace pelton::net
