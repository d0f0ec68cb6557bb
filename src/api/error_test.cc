#include "api/error.h"

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

TEST(ErrorBodies, AnEventOfAWebSocketHoldsTheBodysMembers) {
  EXPECT_EQ(error_event(400, R"({"error":{"code":"x"}})"),
            R"({"type":"error","status":400,"error":{"code":"x"}})");
  for (const char* body : {"", "{}", "no JSON"}) {
    EXPECT_EQ(error_event(503, body), R"({"type":"error","status":503})");
  }
}

}  // namespace
}  // namespace pelton::api
