#include "net/url.h"

#include <gtest/gtest.h>

#include "net/http_message.h"
#include "net/http_time.h"

namespace pelton::net {
namespace {

TEST(Url, PercentCoding) {
  EXPECT_EQ(percent_decode("a%20b%2F%c3%A9"), "a b/\xC3\xA9");
  EXPECT_EQ(percent_decode("a+b"), "a+b");
  for (const char* broken : {"%", "%1", "a%", "%g0", "%0g", "%%20"}) {
    EXPECT_FALSE(percent_decode(broken).has_value()) << broken;
  }
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(percent_decode(percent_encode(all)), all);
}

TEST(Url, Queries) {
  const std::string query = "a=1&b=x%20y+z&flag&=empty&c=%zz&a=2&";
  EXPECT_EQ(query_value(query, "a"), "1");
  EXPECT_EQ(query_value(query, "b"), "x y z");
  EXPECT_EQ(query_value(query, "flag"), "");
  EXPECT_FALSE(query_value(query, "c").has_value());
  EXPECT_FALSE(query_value(query, "d").has_value());
  EXPECT_EQ(parse_query(query).size(), 5u);
}

TEST(Url, HttpUrls) {
  const Result<HttpUrl> url = parse_http_url("http://[::1]:8000/v1/x?y=z#frag");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8000);
  EXPECT_EQ(url->target, "/v1/x?y=z");
  EXPECT_EQ(parse_http_url("http://name")->target, "/");
  EXPECT_EQ(parse_http_url("http://name?q")->target, "/?q");
  EXPECT_EQ(parse_http_url("http://[fe80::1]")->host, "fe80::1");
  EXPECT_EQ(parse_http_url("http://[fe80::1]")->port, 80);
  for (const char* bad :
       {"", "ftp://a", "https:/a", "https://", "http://", "http:///x", "http://a:b",
        "http://a:70000", "http://u@h/", "http://a b/", "http://::1:80/", "http://a\r\nX: y/"}) {
    EXPECT_FALSE(parse_http_url(bad).ok()) << bad;
  }
  EXPECT_FALSE(url->tls);
  EXPECT_TRUE(parse_http_url("https://a/b")->tls);
  EXPECT_EQ(parse_http_url("https://a/b")->port, 443);
  EXPECT_EQ(parse_http_url("https://a:8443/b")->port, 8443);
  EXPECT_EQ(parse_http_url("https://[::1]")->host, "::1");
}

TEST(Url, HostPorts) {
  EXPECT_EQ(parse_host_port("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(parse_host_port("[::]:0")->host, "::");
  for (const char* bad : {"", ":80", "a:", "a", "::1:80", "[::1]", "a:-1", "a:65536", "a:1x"}) {
    EXPECT_FALSE(parse_host_port(bad).ok()) << bad;
  }
  EXPECT_EQ(format_host_port("::1", 5), "[::1]:5");
  EXPECT_EQ(format_host_port("1.2.3.4", 5), "1.2.3.4:5");
}

TEST(HttpMessage, HeadersCompareWithoutCase) {
  HttpHeaders headers;
  headers.add("Content-Type", "a");
  headers.add("content-type", "b");
  EXPECT_EQ(headers.get("CONTENT-TYPE"), "a");
  EXPECT_TRUE(headers.has("content-Type"));
  EXPECT_FALSE(headers.has("Content-Typ"));
  EXPECT_TRUE(header_list_contains("keep-alive,  Upgrade ", "upgrade"));
  EXPECT_FALSE(header_list_contains("keep-alives", "keep-alive"));
}

TEST(HttpTime, KnownDates) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(Url, D4_HostNames) {
  const auto name = [](std::string_view header) {
    return std::string(host_name(header).value_or("malformed"));
  };
  EXPECT_EQ(name(""), "");
  EXPECT_EQ(name("localhost"), "localhost");
  EXPECT_EQ(name("A_b-c.example:80"), "A_b-c.example");
  EXPECT_EQ(name("a:"), "a");
  EXPECT_EQ(name("127.0.0.1:65535"), "127.0.0.1");
  EXPECT_EQ(name("[::1]:80"), "::1");
  EXPECT_EQ(name("%41.example"), "%41.example");
  for (const char* const bad :
       {"a b", "a:b", "a:65536", "a:80:80", ":80",   "[::1", "::1", "[::1]x",   "[a]",  "[]", "a/b",
        "u@a", "a?b", "a#b",     "a\\b",    "\"a\"", "%4",   "%zz", "\xc3\xa4", "a\tb", "<a>"}) {
    EXPECT_EQ(name(bad), "malformed") << bad;
  }
  EXPECT_EQ(name(std::string(256, 'a')), "malformed");
}

}  // namespace
}  // namespace pelton::net
