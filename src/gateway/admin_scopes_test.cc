#include "gateway/admin_scopes.h"

#include <string>

#include <gtest/gtest.h>

#include "gateway/admin_audit.h"

namespace pelton::gateway {
namespace {

using enum access::OperatorRole;

access::OperatorRole needed(std::string method, std::string path) {
  return role_needed({.method = std::move(method), .path = std::move(path)});
}

TEST(AdminScopes, AreByWhatARequestChanges) {
  EXPECT_EQ(needed("GET", "/health"), kNone);
  EXPECT_EQ(needed("GET", "/console/main.js"), kNone);
  EXPECT_EQ(needed("GET", "/console/fleet"), kView);
  EXPECT_EQ(needed("HEAD", "/v1/workers"), kView);
  EXPECT_EQ(needed("GET", "/v1/config"), kView);
  EXPECT_EQ(needed("GET", "/metrics"), kView);
  EXPECT_EQ(needed("POST", "/v1/explain"), kView);
  EXPECT_EQ(needed("POST", "/v1/workers/a/drain"), kOperate);
  EXPECT_EQ(needed("POST", "/v1/rollouts/v2/promote"), kOperate);
  EXPECT_EQ(needed("PUT", "/v1/config"), kAdmin);
  EXPECT_EQ(needed("PATCH", "/v1/config/pool/a"), kAdmin);
  EXPECT_EQ(needed("POST", "/v1/config/history/3/revert"), kAdmin);
  EXPECT_EQ(needed("POST", "/v1/erase_tenant"), kAdmin);
  EXPECT_EQ(needed("POST", "/v1/autoscaler/exchange"), kAdmin);
  EXPECT_EQ(needed("GET", "/v1/autoscaler/demand"), kView);
  EXPECT_EQ(needed("POST", "/v1/what_nobody_has_thought_of"), kAdmin);
  EXPECT_EQ(needed("GET", "/v1/what_nobody_has_thought_of"), kView);
}

// What a viewer may ask is no line of the audit log: it changes nothing.
TEST(AdminScopes, WhatAViewerMayChangesNothing) {
  for (const AdminScope& scope : admin_scopes()) {
    if (scope.role != kView && scope.role != kNone) continue;
    std::string path(scope.path);
    if (path.ends_with('*')) path += "x";
    if (scope.method.empty()) continue;  // the console's, which asks for a session
    EXPECT_EQ(audited_by({.method = std::string(scope.method), .path = path}), AuditedBy::kNobody)
        << scope.method << " " << path;
  }
}

}  // namespace
}  // namespace pelton::gateway
