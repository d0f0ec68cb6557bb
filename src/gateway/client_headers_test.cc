#include "gateway/client_headers.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

Result<std::optional<int64_t>> left(std::string_view timeout, std::string_view deadline = "") {
  net::HttpHeaders headers;
  headers.add("x-request-timeout-ms", std::string(timeout));
  if (!deadline.empty()) headers.add("x-request-deadline-ms", std::string(deadline));
  return time_left_ns(headers);
}

TEST(ClientHeaders, TheSoonerOfTwoDeadlines) {
  EXPECT_EQ(time_left_ns({}).value(), std::nullopt);
  EXPECT_EQ(left("1500").value(), 1'500'000'000);
  EXPECT_EQ(left("1500", "20").value(), 20'000'000);
  EXPECT_EQ(left("20", "1500").value(), 20'000'000);
  EXPECT_EQ(left("86400000").value(), 86'400'000'000'000);
}

// A replica refuses it: none is started for that.
TEST(ClientHeaders, ADeadlineThatIsNoneIsRefusedByItsName) {
  for (const char* const text : {"", "abc", "0", "-1", "1.5", "10s", "86400001"}) {
    const auto refused = left(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().field, "x-request-timeout-ms");
    EXPECT_NE(refused.error().message.find("whole number"), std::string::npos);
  }
  EXPECT_EQ(left("100", "soon").error().field, "x-request-deadline-ms");
}

}  // namespace
}  // namespace pelton::gateway
