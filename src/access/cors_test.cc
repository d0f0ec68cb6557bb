#include "access/cors.h"

#include <gtest/gtest.h>

namespace pelton::access {
namespace {

std::string header(const CorsOrigins& cors, std::string_view origin, std::string_view name) {
  net::HttpHeaders headers;
  cors.add_headers(origin, headers);
  return std::string(headers.get(name));
}

TEST(CorsOrigins, NobodyUnlessSaid) {
  const CorsOrigins none;
  EXPECT_FALSE(none.allow("https://a.example"));
  EXPECT_EQ(header(none, "https://a.example", "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(header(none, "https://a.example", "Vary"), "");
}

TEST(CorsOrigins, ThoseNamedAndNoOthers) {
  const CorsOrigins cors =
      CorsOrigins::parse({"https://a.example", "http://localhost:3000", "http://[::1]:80"}).value();
  EXPECT_EQ(header(cors, "https://a.example", "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(header(cors, "https://evil.example", "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(header(cors, "", "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(header(cors, "null", "Access-Control-Allow-Origin"), "");
  // A cache must not give one page's answer to another.
  EXPECT_EQ(header(cors, "https://evil.example", "Vary"), "Origin");
}

TEST(CorsOrigins, AnyPage) {
  const CorsOrigins cors = CorsOrigins::parse({"*"}).value();
  EXPECT_TRUE(cors.allow("null"));
  EXPECT_EQ(header(cors, "https://a.example", "Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(header(cors, "https://a.example", "Access-Control-Allow-Credentials"), "");
}

TEST(CorsOrigins, OnlyWhatBrowsersWrite) {
  for (const char* bad :
       {"", "null", "a.example", "https://", "https://a.example/", "HTTPS://a.example",
        "https://a.example?x", "https://*.example", "https://a.example:x", "://a", "https://a b"}) {
    EXPECT_FALSE(CorsOrigins::parse({bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace pelton::access
