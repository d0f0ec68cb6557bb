#include "access/audited_exchange.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "access/test_audit_log.h"
#include "access/test_exchange.h"

namespace pelton::access {
namespace {

net::HttpRequest request(std::string method, std::string path, std::string query = {}) {
  return {.method = std::move(method),
          .path = std::move(path),
          .query = std::move(query),
          .remote = "10.0.0.7:51234"};
}

TEST(AuditedExchange, AnAnswerIsALineBeforeItIsSent) {
  TestAuditLog audit;
  const auto beneath = std::make_shared<TestExchange>();
  const auto answer = [&](const net::HttpRequest& asked, int status, std::string body) {
    AuditedExchange exchange(beneath, *audit.log, audit_event_of(asked, "/v1/workers/"));
    const int64_t lines = audit.log->lines();
    exchange.send({.status = status, .body = std::move(body)});
    EXPECT_EQ(beneath->status, status);
    return audit.log->lines() - lines;
  };
  EXPECT_EQ(answer(request("POST", "/v1/workers/gpu 7/role", "role=decode"), 200, "{}"), 1);
  EXPECT_EQ(answer(request("DELETE", "/admin/models/m", "wait=false"), 202, "{}"), 1);
  EXPECT_EQ(answer(request("POST", "/v1/workers/x/drain"), 404,
                   R"({"error":{"code":"worker_not_found"}})"),
            0)
      << "it is written soon";
  EXPECT_EQ(answer(request("POST", "/v1/erase_tenant", "tenant=a"), 502, R"({"failed":["w"]})"), 0);
  // Nobody is there to do it.
  EXPECT_EQ(answer(request("POST", "/x"), 404, R"({"error":{"code":"unknown_url"}})"), 0);
  EXPECT_EQ(answer(request("PUT", "/metrics"), 405, "{}"), 0);
  const std::vector<AuditEvent> events = audit.close();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].what, "role");
  EXPECT_EQ(events[0].target, "gpu 7");
  EXPECT_EQ(events[0].from, "10.0.0.7");
  EXPECT_EQ(events[0].result, "done");
  EXPECT_EQ(events[0].detail, std::vector<std::string>{"role=decode"});
  EXPECT_EQ(events[1].what, "DELETE");
  EXPECT_EQ(events[1].target, "/admin/models/m?wait=false");
  EXPECT_EQ(events[1].result, "begun");
  std::vector<std::string> refused = {events[2].result, events[3].result};
  std::ranges::sort(refused);
  EXPECT_EQ(refused, (std::vector<std::string>{"failed: 502", "refused: 404 worker_not_found"}));
}

TEST(AuditedExchange, WhoseClientLeavesIsALineToo) {
  TestAuditLog audit;
  {
    AuditedExchange exchange(std::make_shared<TestExchange>(), *audit.log,
                             audit_event_of(request("POST", "/erase_tenant", "tenant=a"), {}));
  }
  const std::vector<AuditEvent> events = audit.close();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].target, "/erase_tenant?tenant=a");
  EXPECT_EQ(events[0].result, "begun; its client has left");
}

TEST(AuditedExchange, StrangersAndCallersAreCounted) {
  TestAuditLog audit;
  for (int i = 0; i < 100; ++i) {
    const net::HttpRequest asked = request("POST", "/erase_tenant", "tenant=" + std::to_string(i));
    AuditedExchange(std::make_shared<TestExchange>(), *audit.log, audit_event_of(asked, {}))
        .send({.status = 401, .body = R"({"error":{"code":"invalid_api_key"}})"});
    AuditedExchange(std::make_shared<TestExchange>(), *audit.log,
                    audit_event_of(request("POST", "/wake_up"), {}),
                    AuditedExchange::Done::kCounted)
        .send({.status = 200});
  }
  EXPECT_LE(audit.close().size(), 6u);
}

TEST(AuditedExchange, WhatIsNamedIsCut) {
  const AuditEvent event = audit_event_of(request("POST", "/" + std::string(1 << 20, 'x')), {});
  EXPECT_LE(event.target.size(), 200u);
  EXPECT_LE(audit_event_of(request("POST", "/v1/workers/" + std::string(999, 'x') + "/drain"),
                           "/v1/workers/")
                .target.size(),
            200u);
}

}  // namespace
}  // namespace pelton::access
