#include "server/grpc_certificates.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pelton::server {
namespace {

constexpr unsigned kLookEverySeconds = 1;

std::string path_of(int file) {
  return fmt::format("/proc/self/fd/{}", file);
}

Error failed(const char* what) {
  return Error{
      ErrorCode::kIo, fmt::format("gRPC's certificates: {}: {}", what, std::strerror(errno)), {}};
}

Result<void> rewrite(int file, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count =
        pwrite(file, text.data() + written, text.size() - written, static_cast<off_t>(written));
    if (count <= 0) return failed("cannot write");
    written += static_cast<size_t>(count);
  }
  if (ftruncate(file, static_cast<off_t>(text.size())) != 0) return failed("cannot cut");
  return {};
}

std::string pair_text(const net::TlsIdentity::Texts& texts) {
  return texts.key + "\n" + texts.certificate;
}

}  // namespace

Result<std::unique_ptr<GrpcCertificates>> GrpcCertificates::make(const net::TlsIdentity& identity) {
  const bool asks_clients = !identity.texts().client_ca.empty();
  const int pair = memfd_create("pelton-grpc-pair", MFD_CLOEXEC);
  const int client_ca = asks_clients ? memfd_create("pelton-grpc-ca", MFD_CLOEXEC) : -1;
  std::unique_ptr<GrpcCertificates> made(new GrpcCertificates(pair, client_ca));
  if (pair < 0 || (asks_clients && client_ca < 0)) return failed("no memory file");
  TRY(made->update(identity));
  return made;
}

GrpcCertificates::~GrpcCertificates() {
  if (pair_ >= 0) close(pair_);
  if (client_ca_ >= 0) close(client_ca_);
}

Result<void> GrpcCertificates::update(const net::TlsIdentity& identity) {
  const net::TlsIdentity::Texts texts = identity.texts();
  TRY(rewrite(pair_, pair_text(texts)));
  if (client_ca_ >= 0 && !texts.client_ca.empty()) TRY(rewrite(client_ca_, texts.client_ca));
  return {};
}

std::shared_ptr<grpc::ServerCredentials> GrpcCertificates::credentials() const {
  using grpc::experimental::FileWatcherCertificateProvider;
  const std::string pair = path_of(pair_);
  const auto provider = client_ca_ < 0 ? std::make_shared<FileWatcherCertificateProvider>(
                                             pair, pair, kLookEverySeconds)
                                       : std::make_shared<FileWatcherCertificateProvider>(
                                             pair, pair, path_of(client_ca_), kLookEverySeconds);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (client_ca_ >= 0) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace pelton::server
