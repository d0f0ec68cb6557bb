#include "console/sessions.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::console {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond_ns = 1'000'000'000;

class ConsoleSessions : public testing::Test {
 protected:
  base::VirtualClock clock_;
  std::set<std::string> keys_{"right", "other"};
  std::vector<std::string> events_;
  int asked_ = 0;
  Sessions sessions_{
      {.account_of = [this](std::string_view key) -> std::optional<Sessions::Account> {
         ++asked_;
         if (!keys_.contains(std::string(key))) return std::nullopt;
         return Sessions::Account{.id = std::string(key), .name = "ann"};
       },
       .is_lesser = [](std::string_view key) { return key == "viewer's"; },
       .is_valid = [this](const std::string& id) { return keys_.contains(id); },
       .on_event =
           [this](std::string_view what, const Sessions::Account& account,
                  std::string_view address) {
             events_.push_back(std::string(what) + "," + account.name + "," + std::string(address));
           },
       .clock = clock_}};

  // As the console's own page sends it.
  struct Sent {
    std::string method = "GET";
    std::string cookie = {};
    std::string token = {};
    std::string body = {};
    std::string address = "10.0.0.7";
    std::string site = "same-origin";
    std::string origin = "http://fleet:8091";
    std::string query = {};
  };
  static net::HttpRequest request(const Sent& sent) {
    net::HttpRequest request{.method = sent.method,
                             .path = "/console/session",
                             .query = sent.query,
                             .body = sent.body,
                             .remote = sent.address + ":5000"};
    request.headers.add("Host", "fleet:8091");
    if (!sent.site.empty()) request.headers.add("Sec-Fetch-Site", sent.site);
    if (!sent.origin.empty()) request.headers.add("Origin", sent.origin);
    if (!sent.cookie.empty()) request.headers.add("Cookie", "a=b; " + sent.cookie + "; c=d");
    if (!sent.token.empty()) request.headers.add("X-Pelton-Token", sent.token);
    return request;
  }
  net::HttpResponse send(const Sent& sent) { return sessions_.answer(request(sent)); }
  net::HttpResponse sign_in(const std::string& key, const std::string& address = "10.0.0.7") {
    return send({.method = "POST", .body = R"({"key":")" + key + "\"}", .address = address});
  }
  static std::string cookie_of(const net::HttpResponse& response) {
    const std::string_view all = response.headers.get("Set-Cookie");
    return std::string(all.substr(0, all.find(';')));
  }
  static std::string token_of(const net::HttpResponse& response) {
    return Json::parse(response.body)->string("token").value_or("");
  }
  // Whether the session holds: the page is answered with who it is.
  bool holds(const std::string& cookie, const std::string& address = "10.0.0.7") {
    const net::HttpResponse who = send({.cookie = cookie, .address = address});
    EXPECT_EQ(who.status, 200);
    return who.body != "null";
  }
  int admitted(const Sent& sent) {
    const auto who = sessions_.admit(request(sent));
    const auto* refused = std::get_if<net::HttpResponse>(&who);
    return refused == nullptr ? 200 : refused->status;
  }
};

TEST_F(ConsoleSessions, AKeyBecomesACookieThatNoPageReads) {
  EXPECT_FALSE(holds(""));
  const net::HttpResponse in = sign_in("right");
  ASSERT_EQ(in.status, 200) << in.body;
  const std::string cookie(in.headers.get("Set-Cookie"));
  EXPECT_THAT(cookie, testing::MatchesRegex("pelton_console_8091_[0-9a-f]{8}=[0-9a-f]{64}; Path=/; "
                                            "HttpOnly; SameSite=Strict; Max-Age=43200"));
  EXPECT_EQ(in.headers.get("Cache-Control"), "no-store");
  EXPECT_THAT(in.body, Not(HasSubstr(cookie_of(in).substr(29))));
  EXPECT_THAT(in.body, Not(HasSubstr("right")));
  const net::HttpResponse who = send({.cookie = cookie_of(in)});
  EXPECT_EQ(who.status, 200);
  EXPECT_EQ(token_of(who), token_of(in));
  EXPECT_EQ(Json::parse(who.body)->string("name"), "ann");
  EXPECT_EQ(admitted({.method = "POST", .cookie = cookie_of(in), .token = token_of(in)}), 200);
  EXPECT_THAT(events_, testing::ElementsAre("signed in,ann,10.0.0.7"));
  EXPECT_NE(cookie_of(sign_in("right")), cookie_of(in)) << "each is drawn";
}

TEST_F(ConsoleSessions, ASecondSignInOfABrowserLeavesItsOtherTabsTheirToken) {
  const net::HttpResponse first = sign_in("right");
  const auto again = [&](const std::string& key) {
    return send(
        {.method = "POST", .cookie = cookie_of(first), .body = R"({"key":")" + key + "\"}"});
  };
  const net::HttpResponse second = again("right");
  ASSERT_EQ(second.status, 200);
  EXPECT_NE(cookie_of(second), cookie_of(first));
  EXPECT_FALSE(holds(cookie_of(first))) << "the browser has it no more";
  EXPECT_EQ(admitted({.method = "POST", .cookie = cookie_of(second), .token = token_of(first)}),
            200);
  // Nobody gets another one's token, and who had signed in before commands nothing in his name.
  const net::HttpResponse third =
      send({.method = "POST", .cookie = cookie_of(second), .body = R"({"key":"other"})"});
  EXPECT_FALSE(holds(cookie_of(second)));
  EXPECT_NE(token_of(third), token_of(first));
  EXPECT_EQ(admitted({.method = "POST", .cookie = cookie_of(third), .token = token_of(first)}),
            403);
  // A cookie from elsewhere is nobody's.
  const net::HttpResponse fourth = send({.method = "POST",
                                         .cookie = cookie_of(third),
                                         .body = R"({"key":"other"})",
                                         .address = "10.0.0.8"});
  EXPECT_NE(token_of(fourth), token_of(third));
  EXPECT_TRUE(holds(cookie_of(third)));
}

// Behind one proxy two gateways have the same host and port, and a browser one jar for both.
TEST_F(ConsoleSessions, OfTwoGatewaysBehindOneHostBothAreKept) {
  Sessions other({.account_of = [](std::string_view) { return Sessions::Account{.id = "o"}; },
                  .is_lesser = [](std::string_view) { return false; },
                  .is_valid = [](const std::string&) { return true; },
                  .on_event = [](std::string_view, const Sessions::Account&, std::string_view) {},
                  .clock = clock_});
  const std::string here = cookie_of(sign_in("right"));
  const std::string there =
      cookie_of(other.answer(request({.method = "POST", .body = R"({"key":"right"})"})));
  EXPECT_NE(here.substr(0, here.find('=')), there.substr(0, there.find('=')));
  EXPECT_TRUE(holds(here + "; " + there));
  EXPECT_TRUE(holds(there + "; " + here));
}

TEST_F(ConsoleSessions, AKeyOfALesserRoleIsNotWrongButMayNot) {
  for (int i = 0; i < 2 * Sessions::kAttempts; ++i) {
    const net::HttpResponse refused = sign_in("viewer's");
    ASSERT_EQ(refused.status, 403) << i;
    EXPECT_THAT(refused.body, HasSubstr("only a key with role=admin signs in here"));
    EXPECT_EQ(refused.headers.get("Set-Cookie"), "");
  }
  EXPECT_EQ(events_.back(), "a key without role=admin,,10.0.0.7");
  EXPECT_EQ(sign_in("right").status, 200) << "these were no guesses";
}

TEST_F(ConsoleSessions, AllEndWithTheLastOperator) {
  const std::string cookie = cookie_of(sign_in("right"));
  ASSERT_TRUE(holds(cookie));
  sessions_.end_all();  // and the key is an operator's again before anybody asks
  EXPECT_FALSE(holds(cookie));
}

TEST_F(ConsoleSessions, IsSecureWhereTheBrowserSpeaksTls) {
  const net::HttpResponse behind =
      send({.method = "POST", .body = R"({"key":"right"})", .origin = "https://fleet.example"});
  EXPECT_THAT(std::string(behind.headers.get("Set-Cookie")), testing::EndsWith("; Secure"));
  net::HttpRequest direct = request({.method = "POST", .body = R"({"key":"right"})"});
  direct.tls = true;
  EXPECT_THAT(std::string(sessions_.answer(direct).headers.get("Set-Cookie")),
              testing::EndsWith("; Secure"));
}

TEST_F(ConsoleSessions, AChangeNeedsCookieTokenPageAndAddress) {
  const net::HttpResponse in = sign_in("right");
  const Sent right{.method = "POST", .cookie = cookie_of(in), .token = token_of(in)};
  ASSERT_EQ(admitted(right), 200);
  const auto with = [&](auto change) {
    Sent sent = right;
    change(sent);
    return admitted(sent);
  };
  EXPECT_EQ(with([](Sent& s) { s.cookie = ""; }), 401);
  EXPECT_EQ(with([](Sent& s) { s.cookie.back() = s.cookie.back() == 'a' ? 'b' : 'a'; }), 401);
  EXPECT_EQ(with([](Sent& s) { s.token = ""; }), 403);
  EXPECT_EQ(with([](Sent& s) { s.token = s.cookie.substr(29); }), 403);
  EXPECT_EQ(with([](Sent& s) { s.site = "cross-site"; }), 403);
  EXPECT_EQ(with([](Sent& s) { s.site = "same-site"; }), 403) << "another port of this host";
  EXPECT_EQ(with([](Sent& s) { s.site = "", s.origin = "http://evil:8091"; }), 403);
  EXPECT_EQ(with([](Sent& s) { s.site = "", s.origin = "null"; }), 403);
  EXPECT_EQ(with([](Sent& s) { s.site = ""; }), 200);
  EXPECT_EQ(with([](Sent& s) { s.address = "10.0.0.8"; }), 401) << "a stolen cookie";
  const net::HttpResponse another = sign_in("other");
  EXPECT_EQ(with([&](Sent& s) { s.token = token_of(another); }), 403) << "another session's";
}

TEST_F(ConsoleSessions, WhoseARequestIsIsKnownWithoutItsToken) {
  const Sent sent{.method = "PUT", .cookie = cookie_of(sign_in("right"))};
  ASSERT_EQ(admitted(sent), 403);
  ASSERT_TRUE(sessions_.whose(request(sent)).has_value());
  EXPECT_EQ(sessions_.whose(request(sent))->name, "ann");
  EXPECT_FALSE(sessions_.whose(request({.method = "PUT"})).has_value());
}

TEST_F(ConsoleSessions, EndAfterTwelveHoursAndWithTheKey) {
  const net::HttpResponse in = sign_in("right");
  clock_.advance_ns((Sessions::kSeconds - 1) * kSecond_ns);
  EXPECT_EQ(Json::parse(send({.cookie = cookie_of(in)}).body)->integer("seconds"), 1);
  clock_.advance_ns(kSecond_ns);
  EXPECT_FALSE(holds(cookie_of(in)));
  const net::HttpResponse again = sign_in("right");
  ASSERT_TRUE(holds(cookie_of(again)));
  keys_.erase("right");
  EXPECT_FALSE(holds(cookie_of(again)));
  keys_.insert("right");
  EXPECT_FALSE(holds(cookie_of(again))) << "it does not come back";
}

TEST_F(ConsoleSessions, SigningOutEndsOneOrAllOfAnAccount) {
  const net::HttpResponse here = sign_in("right");
  const net::HttpResponse there = sign_in("right", "10.0.0.8");
  const net::HttpResponse third = sign_in("right");
  const net::HttpResponse other = sign_in("other");
  EXPECT_EQ(send({.method = "DELETE", .cookie = cookie_of(here)}).status, 403) << "no token";
  const net::HttpResponse out =
      send({.method = "DELETE", .cookie = cookie_of(here), .token = token_of(here)});
  EXPECT_EQ(out.status, 200);
  EXPECT_THAT(std::string(out.headers.get("Set-Cookie")),
              testing::StartsWith(cookie_of(here).substr(0, 29) + "; Path=/;"))
      << "the same one is forgotten";
  EXPECT_THAT(std::string(out.headers.get("Set-Cookie")), HasSubstr("Max-Age=0"));
  EXPECT_FALSE(holds(cookie_of(here)));
  EXPECT_TRUE(holds(cookie_of(there), "10.0.0.8"));
  EXPECT_EQ(send({.method = "DELETE",
                  .cookie = cookie_of(third),
                  .token = token_of(third),
                  .query = "all=true"})
                .status,
            200);
  EXPECT_FALSE(holds(cookie_of(there), "10.0.0.8"));
  EXPECT_TRUE(holds(cookie_of(other)));
}

TEST_F(ConsoleSessions, WrongKeysAreThrottledByAddress) {
  for (int i = 0; i < Sessions::kAttempts; ++i) EXPECT_EQ(sign_in("wrong").status, 401);
  asked_ = 0;
  const net::HttpResponse refused = sign_in("right");
  EXPECT_EQ(refused.status, 429) << "a right one is no oracle";
  EXPECT_EQ(refused.headers.get("Retry-After"), "12");
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(sign_in("right", "10.0.0.8").status, 200);
  clock_.advance_ns(Sessions::kAttemptSeconds * kSecond_ns);
  EXPECT_EQ(sign_in("right").status, 200);
  EXPECT_EQ(sign_in("wrong").status, 401);
  EXPECT_EQ(sign_in("wrong").status, 429);
}

TEST_F(ConsoleSessions, TenThousandAttemptsFromEverywhereAskForFewKeys) {
  for (int i = 0; i < 10'000; ++i) {
    clock_.advance_ns(kSecond_ns / 1000);
    sign_in("wrong", "10.1." + std::to_string(i / 250) + "." + std::to_string(i % 250));
  }
  EXPECT_LE(asked_, Sessions::kAttemptsOfAll + 11);
  clock_.advance_ns(5 * kSecond_ns);
  EXPECT_EQ(sign_in("right", "10.0.0.9").status, 200);
}

TEST_F(ConsoleSessions, AreBounded) {
  const net::HttpResponse first = sign_in("right");
  for (size_t i = 0; i < Sessions::kSessionsMax; ++i) {
    clock_.advance_ns(kSecond_ns);
    EXPECT_TRUE(holds(cookie_of(first))) << i;
    ASSERT_EQ(sign_in("other").status, 200);
  }
  EXPECT_FALSE(holds(cookie_of(first))) << "the oldest";
}

TEST_F(ConsoleSessions, WhatIsNoSignInIsRefused) {
  EXPECT_EQ(send({.method = "POST", .body = "{"}).status, 400);
  EXPECT_EQ(send({.method = "POST", .body = "[]"}).status, 400);
  EXPECT_EQ(send({.method = "POST", .body = R"({"key":7})"}).status, 400);
  EXPECT_EQ(send({.method = "POST", .body = R"({"key":""})"}).status, 400);
  EXPECT_EQ(send({.method = "POST", .body = std::string(5000, ' ')}).status, 413);
  EXPECT_EQ(send({.method = "PUT"}).status, 405);
  EXPECT_EQ(send({.method = "POST", .body = R"({"key":"right"})", .site = "cross-site"}).status,
            403);
  for (const char* cookie : {"pelton_console_8091", "pelton_console_8091=", ";;;", "=", "x"}) {
    EXPECT_FALSE(holds(cookie)) << cookie;
  }
}

}  // namespace
}  // namespace pelton::console
