// HTTPS without certificates: who holds the key speaks to who holds it, and to nobody else.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/tls_identity.h"
#include "net/tls_trust.h"

namespace pelton::net {
namespace {

const std::string kOld(32, 'o');
const std::string kNew(32, 'n');
const std::string kForeign(32, 'f');

class SharedKey : public testing::Test {
 protected:
  void serve(std::shared_ptr<const TlsIdentity> identity) {
    server_.emplace(
        HttpServer::Options{.port = 0, .tls = std::move(identity)},
        [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
          exchange->send({.status = 200, .headers = {}, .body = "let in"});
        },
        log_);
    ASSERT_TRUE(server_->start().ok());
  }
  ~SharedKey() override {
    if (server_) server_->stop(std::chrono::milliseconds(0));
  }

  // "let in", or nothing.
  std::string ask(std::shared_ptr<const TlsTrust> trust) {
    HttpCall call{.port = server_->port(), .tls = true, .trust = std::move(trust)};
    const Result<HttpResponse> answer = http_fetch(std::move(call));
    return answer.ok() ? answer->body : "";
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::optional<HttpServer> server_;
};

TEST_F(SharedKey, LetsInWhoHoldsOneOfThem) {
  serve(TlsIdentity::of_shared_keys({kNew, kOld}));
  EXPECT_EQ(ask(TlsTrust::of_shared_keys({kNew})), "let in");
  EXPECT_EQ(ask(TlsTrust::of_shared_keys({kOld, kForeign})), "let in");
  EXPECT_EQ(ask(TlsTrust::of_shared_keys({kForeign})), "");
  EXPECT_EQ(ask(TlsTrust::load({}).value()), "") << "a client without a key";
  EXPECT_EQ(ask(TlsTrust::of_shared_keys({kNew})), "let in");
}

TEST_F(SharedKey, AServerWithoutItIsNotBelieved) {
  serve(TlsIdentity::of_shared_keys({kForeign}));
  EXPECT_EQ(ask(TlsTrust::of_shared_keys({kNew})), "");
}

}  // namespace
}  // namespace pelton::net
