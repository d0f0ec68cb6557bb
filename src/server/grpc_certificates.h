// The certificates that gRPC's own TLS reads: texts that were found sound, in files that are memory
// only and that gRPC looks at every second. Owned by the gRPC listener; any thread.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/security/server_credentials.h>

#include "base/result.h"
#include "net/tls_identity.h"

namespace pelton::server {

class GrpcCertificates {
 public:
  static Result<std::unique_ptr<GrpcCertificates>> make(const net::TlsIdentity& identity);
  ~GrpcCertificates();
  GrpcCertificates(const GrpcCertificates&) = delete;
  GrpcCertificates& operator=(const GrpcCertificates&) = delete;

  std::shared_ptr<grpc::ServerCredentials> credentials() const;

  // What the identity holds by now; in force within two seconds.
  Result<void> update(const net::TlsIdentity& identity);

 private:
  GrpcCertificates(int pair, int client_ca) : pair_(pair), client_ca_(client_ca) {}

  const int pair_;       // key and certificates in one: neither is ever seen with another's
  const int client_ca_;  // -1: clients need no certificate
};

}  // namespace pelton::server
