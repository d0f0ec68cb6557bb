// Who a server is, for TLS: its certificate, its key, and whose certificates it asks of clients.
// Owned by the program's entry, shared by its listeners. Any thread: connections that begin take
// what is in force at that moment, and reload() changes that for later ones only.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

struct ssl_ctx_st;

namespace pelton::net {

class TlsIdentity {
 public:
  struct Files {
    std::string certificate;  // PEM: the server's own first, then those that vouch for it
    std::string key;          // PEM, without a passphrase
    std::string client_ca;    // PEM; empty: clients need no certificate
  };
  // What the files hold, once it has been found sound.
  struct Texts {
    std::string certificate;
    std::string key;
    std::string client_ca;
  };

  // Errors: kBadConfig with the file's name.
  static Result<std::shared_ptr<TlsIdentity>> load(const Files& files);
  // Without certificates: clients that hold one of `keys`, of 32 bytes each, are let in, and they
  // know that this server holds it too. TLS 1.3 only.
  static std::shared_ptr<TlsIdentity> of_shared_keys(const std::vector<std::string>& keys);

  // Reads the files anew, perhaps others. On an error all stays as it was.
  Result<void> reload(const Files& files);

  std::shared_ptr<ssl_ctx_st> context() const;
  Texts texts() const;
  // When the certificate ends, in seconds since 1970.
  int64_t expires_s() const;

 private:
  struct State {
    std::shared_ptr<ssl_ctx_st> context;
    Texts texts;
    int64_t expires_s = 0;
  };
  explicit TlsIdentity(State state) : state_(std::move(state)) {}
  static Result<State> read(const Files& files);

  mutable std::mutex mutex_;
  State state_;  // under mutex_
};

}  // namespace pelton::net
