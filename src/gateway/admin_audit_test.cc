#include "gateway/admin_audit.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "access/test_audit_log.h"
#include "access/test_exchange.h"

namespace pelton::gateway {
namespace {

net::HttpRequest request(std::string method, std::string path) {
  return {.method = std::move(method), .path = std::move(path), .remote = "127.0.0.1:9"};
}

// A route that is new is a line, whoever adds it: what is none has to be named here.
TEST(AdminAudit, AllThatMayChangeSomethingIsALine) {
  using enum AuditedBy;
  EXPECT_EQ(audited_by(request("POST", "/v1/what_nobody_has_thought_of")), kListener);
  EXPECT_EQ(audited_by(request("DELETE", "/console/what_nobody_has_thought_of")), kListener);
  EXPECT_EQ(audited_by(request("PATCH", "/v1/explain_what")), kListener);
  for (const char* path : {"/v1/workers/w/drain", "/v1/workers/w/role", "/v1/reset_prefix_cache",
                           "/v1/erase_tenant", "/v1/rollouts/v2/rollback"}) {
    EXPECT_EQ(audited_by(request("POST", path)), kListener) << path;
  }
  // tests/audit_test.py sees that each of these is.
  for (const char* path :
       {"/v1/config", "/v1/config/pool/a", "/v1/autoscaler/exchange", "/console/session",
        "/console/config", "/console/workers/w/drain", "/console/rollouts/v2/pause"}) {
    EXPECT_EQ(audited_by(request("POST", path)), kItself) << path;
  }
  EXPECT_EQ(audited_by(request("POST", "/v1/explain")), kNobody);
  EXPECT_EQ(audited_by(request("GET", "/v1/workers")), kNobody);
}

TEST(AdminAudit, ANewRouteThatIsAnsweredIsALine) {
  access::TestAuditLog audit;
  const auto beneath = std::make_shared<access::TestExchange>();
  const auto answer = [&](const char* method, const char* path) {
    audited(request(method, path), beneath, audit.log.get(), "ann")->send({.status = 200});
  };
  answer("POST", "/v1/what_nobody_has_thought_of");
  answer("POST", "/v1/explain");
  answer("GET", "/v1/workers");
  answer("POST", "/v1/workers/w/eject");
  EXPECT_EQ(audited(request("POST", "/v1/x"), beneath, nullptr, "ann"), beneath) << "none is kept";
  const std::vector<access::AuditEvent> events = audit.close();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].target, "/v1/what_nobody_has_thought_of");
  EXPECT_EQ(events[1].what, "eject");
  EXPECT_EQ(events[1].target, "w");
  EXPECT_EQ(events[1].who, "ann");
}

}  // namespace
}  // namespace pelton::gateway
