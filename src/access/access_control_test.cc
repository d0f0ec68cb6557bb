#include "access/access_control.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::access {
namespace {

using testing::HasSubstr;

ApiKeys keys_of(std::string_view file) {
  ApiKeys keys;
  EXPECT_TRUE(keys.add_file(file, "keys").ok());
  return keys;
}

Principal identified(const AccessControl& control, std::string_view authorization) {
  const auto principal = control.identify({.authorization = authorization});
  EXPECT_TRUE(principal.has_value()) << authorization;
  return principal.value_or(Principal{});
}

TEST(AccessControl, AsksForNoKeyWhereThereIsNone) {
  const base::VirtualClock clock;
  const AccessControl control({}, "secret", clock);
  EXPECT_EQ(identified(control, "").account, "");
  EXPECT_EQ(identified(control, "Bearer whatever").account, "");
}

TEST(AccessControl, ReadsCredentialsOfHeaders) {
  const base::VirtualClock clock;
  const AccessControl control(keys_of("a wheel\nb jet\n"), "secret", clock);
  const auto tenant = [&](std::initializer_list<std::pair<std::string, std::string>> fields) {
    net::HttpHeaders headers;
    for (const auto& [name, value] : fields) headers.add(name, value);
    const auto principal = control.identify(AccessControl::credentials_of(headers));
    return principal ? principal->tenant : "nobody";
  };
  EXPECT_EQ(tenant({{"Authorization", "Bearer a"}}), "wheel");
  EXPECT_EQ(tenant({{"authorization", "bearer b"}}), "jet");
  EXPECT_EQ(tenant({{"x-api-key", "b"}}), "jet");
  EXPECT_EQ(tenant({{"x-api-key", "b"}, {"Authorization", "Bearer b"}}), "jet");
  EXPECT_EQ(tenant({{"x-api-key", "a"}, {"Authorization", "Bearer b"}}), "nobody");
  EXPECT_EQ(tenant({{"x-api-key", "a"}, {"x-api-key", "a"}}), "nobody");
  EXPECT_EQ(tenant({{"Authorization", "Basic a"}}), "nobody");
  EXPECT_EQ(tenant({}), "nobody");
}

// The worked example of the README: 1256 of 100000 are reserved, 1100 are used.
TEST(AccessControl, WhatATicketReservesItsEndSettles) {
  base::VirtualClock clock;
  AccessControl control(keys_of("a wheel tpm=100000\n"), "secret", clock);
  RefusalCounts refusals;
  const Principal principal = identified(control, "Bearer a");
  const auto left = [&] {
    net::HttpHeaders headers;
    control.add_limits(principal, headers);
    return std::string(headers.get("x-ratelimit-remaining-tokens"));
  };
  {
    auto admitted = control.admit(principal, refusals);
    ASSERT_TRUE(std::holds_alternative<AdmissionTicket>(admitted));
    AdmissionTicket ticket = std::get<AdmissionTicket>(std::move(admitted));
    EXPECT_EQ(control.inside(), 1);
    EXPECT_EQ(control.expected_output(4000), 256);
    EXPECT_EQ(control.expected_output(10), 10);
    EXPECT_FALSE(control.reserve(ticket, 1000 + 256, refusals));
    EXPECT_EQ(left(), "98744");
    ticket.note_prompt(1000);
    ticket.note_output(100);
    ticket.note_end(
        {.prompt_tokens = 1000, .output_tokens = 100, .scheduled = true, .complete = true});
  }
  EXPECT_EQ(left(), "98900");
  EXPECT_EQ(control.inside(), 0);
  EXPECT_EQ(control.expected_output(4000), 256 + (100 - 256) / 16);
}

TEST(AccessControl, WhatWasNeverScheduledCostsNothing) {
  base::VirtualClock clock;
  AccessControl control(keys_of("a wheel tpm=1000\n"), "secret", clock);
  RefusalCounts refusals;
  const Principal principal = identified(control, "Bearer a");
  const auto open = control.admit(principal, refusals);  // an account without any is forgotten
  const auto left_after = [&](bool scheduled) {
    {
      auto admitted = control.admit(principal, refusals);
      AdmissionTicket ticket = std::get<AdmissionTicket>(std::move(admitted));
      ticket.note_prompt(900);
      ticket.note_end({.prompt_tokens = 900, .scheduled = scheduled});
    }
    net::HttpHeaders headers;
    control.add_limits(principal, headers);
    return std::string(headers.get("x-ratelimit-remaining-tokens"));
  };
  EXPECT_EQ(left_after(false), "1000");
  EXPECT_EQ(left_after(true), "100");
}

TEST(AccessControl, RefusesBeyondItsKeysLimits) {
  base::VirtualClock clock;
  AccessControl control(keys_of("a wheel rpm=1\n"), "secret", clock);
  RefusalCounts refusals;
  const Principal principal = identified(control, "Bearer a");
  EXPECT_TRUE(std::holds_alternative<AdmissionTicket>(control.admit(principal, refusals)));
  const auto second = control.admit(principal, refusals);
  ASSERT_TRUE(std::holds_alternative<api::ApiError>(second));
  const auto& error = std::get<api::ApiError>(second);
  EXPECT_EQ(error.status, 429);
  EXPECT_THAT(error.message, HasSubstr("1 requests per minute"));
  EXPECT_EQ(error.retry_after_s, 60);
  EXPECT_EQ(refusals.of(RefusalCounts::By::kRequests), 1);
  // What was not served through no fault of its own does not count.
  control.refund_request(principal);
  EXPECT_TRUE(std::holds_alternative<AdmissionTicket>(control.admit(principal, refusals)));
}

TEST(CacheSalts, TellNothingAndDifferByStart) {
  const base::SystemClock clock;
  const AccessControl control({}, "one start", clock);
  const AccessControl another({}, "another start", clock);
  EXPECT_EQ(control.cache_salt("", ""), "");
  const std::string salt = control.cache_salt("wheel", "");
  EXPECT_EQ(salt.size(), 64u);
  EXPECT_EQ(salt, control.cache_salt("wheel", ""));
  EXPECT_NE(salt, another.cache_salt("wheel", ""));
  // No two pairs of tenant and salt are one, however they are cut.
  EXPECT_NE(control.cache_salt("ab", "c"), control.cache_salt("a", "bc"));
  EXPECT_NE(control.cache_salt("abc", ""), control.cache_salt("", "abc"));
  EXPECT_NE(control.cache_salt("a", "1:b"), control.cache_salt("a1:", "b"));
}

}  // namespace
}  // namespace pelton::access
