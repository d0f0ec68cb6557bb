// The gRPC listener with TLS, asked by a real client of its library.
#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <pelton/v1/inference.grpc.pb.h>

#include "base/file.h"
#include "net/test_certificates.h"
#include "server/grpc_listener.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript =
    R"({"rules": [{"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"}]})";

// Debian's libgrpc is not built for ThreadSanitizer, which then does not see its locks.
#if !defined(__SANITIZE_THREAD__)

std::string text_of(const std::string& file) {
  return file.empty() ? "" : base::read_file(file).value();
}

class GrpcTls : public testing::Test {
 protected:
  void open(const std::string& client_ca) {
    const net::TestCertificates::Pair pair = certificates_.issue_server();
    files_ = {.certificate = pair.certificate, .key = pair.key, .client_ca = client_ca};
    identity_ = net::TlsIdentity::load(files_).value();
    const Result<void> opened = listener_.open({.tls = identity_});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }

  // Asks once, over a connection of its own.
  grpc::Status ask(const std::string& ca, const net::TestCertificates::Pair& own) {
    grpc::SslCredentialsOptions trust;
    trust.pem_root_certs = text_of(ca);
    trust.pem_cert_chain = text_of(own.certificate);
    trust.pem_private_key = text_of(own.key);
    grpc::ChannelArguments apart;
    apart.SetInt("pelton.test", ++channels_);
    const auto channel = grpc::CreateCustomChannel("localhost:" + std::to_string(listener_.port()),
                                                   grpc::SslCredentials(trust), apart);
    const auto stub = v1::Inference::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::GenerateRequest request;
    v1::Message& message = *request.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content("hi");
    const auto reader = stub->Generate(&context, request);
    v1::GenerateChunk chunk;
    std::string text;
    while (reader->Read(&chunk)) text += chunk.text();
    const grpc::Status status = reader->Finish();
    if (status.ok()) {
      EXPECT_EQ(text, "Hello.");
    }
    return status;
  }
  grpc::Status ask() { return ask(certificates_.ca_file(), {}); }

  net::TestCertificates certificates_;
  net::TlsIdentity::Files files_;
  std::shared_ptr<net::TlsIdentity> identity_;
  ServerFixture fixture_{kScript, {}};
  GrpcListener listener_{fixture_.server().services(), fixture_.log()};
  int channels_ = 0;
};

TEST_F(GrpcTls, AnswersThoseWhoTrustIt) {
  open({});
  EXPECT_TRUE(ask().ok()) << ask().error_message();
  net::TestCertificates others;
  EXPECT_EQ(ask(others.ca_file(), {}).error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto plain = grpc::CreateChannel("localhost:" + std::to_string(listener_.port()),
                                         grpc::InsecureChannelCredentials());
  EXPECT_FALSE(
      plain->WaitForConnected(std::chrono::system_clock::now() + std::chrono::milliseconds(300)));
}

TEST_F(GrpcTls, AsksClientsForCertificates) {
  open(certificates_.ca_file());
  EXPECT_FALSE(ask().ok());
  EXPECT_TRUE(ask(certificates_.ca_file(), certificates_.issue("client", "DNS:client")).ok());
  net::TestCertificates others;
  EXPECT_FALSE(ask(certificates_.ca_file(), others.issue("stranger", "DNS:stranger")).ok());
}

TEST_F(GrpcTls, NewCertificatesAreInForceSoon) {
  open({});
  ASSERT_TRUE(ask().ok());
  net::TestCertificates others;
  const net::TestCertificates::Pair pair = others.issue_server();
  ASSERT_TRUE(identity_->reload({pair.certificate, pair.key, {}}).ok());
  ASSERT_TRUE(listener_.renew_certificates().ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!ask(others.ca_file(), {}).ok()) ASSERT_LT(std::chrono::steady_clock::now(), end);
  EXPECT_FALSE(ask().ok());
}

#endif

}  // namespace
}  // namespace pelton::server
