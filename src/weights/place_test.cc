#include "weights/place.h"

#include <gtest/gtest.h>

namespace pelton::weights {
namespace {

std::string url_of(const std::string& text, const PlaceAccess& access = {}) {
  const Result<Place> place = parse_place(text, access);
  return place.ok() ? place->url : place.error().message;
}

TEST(Place, HttpAsItIsAndS3AsItsEndpointHasIt) {
  EXPECT_EQ(url_of("http://host:8001/model/"), "http://host:8001/model");
  EXPECT_EQ(url_of("s3://bucket/a b/c"),
            "s3://bucket/a b/c: a place of weights has no query, "
            "fragment or blank");
  PlaceAccess access;
  access.aws.region = "eu-west-1";
  EXPECT_EQ(url_of("s3://bucket/a:b/c", access),
            "https://bucket.s3.eu-west-1.amazonaws.com/a%3Ab/c");
  EXPECT_EQ(url_of("s3://my.bucket", access), "https://s3.eu-west-1.amazonaws.com/my.bucket");
  access.s3_endpoint = "http://127.0.0.1:9000";
  EXPECT_EQ(url_of("s3://bucket/a", access), "http://127.0.0.1:9000/bucket/a");
  EXPECT_EQ(place_below(*parse_place("s3://bucket", access), "m").url,
            "http://127.0.0.1:9000/bucket/m");
}

TEST(Place, WhatIsNoneIsRefused) {
  for (const char* text : {"", "ftp://host/a", "host:80", "http://", "http://user@host/a", "s3://",
                           "s3://b", "s3://../a", "http://host/a?b", "/a/folder"}) {
    EXPECT_FALSE(parse_place(text, {}).ok()) << text;
  }
}

TEST(Place, KeysGoWhereTheyBelong) {
  PlaceAccess access{.key = "secret", .aws = {}, .s3_endpoint = "http://s3.example:9000"};
  access.aws.access_key = "test:tester";
  access.aws.secret_key = "testing";
  Place http = *parse_place("http://host/m", access);
  EXPECT_EQ(request_to(http, "chunks/a", {}, access, "d", 0).token, "secret");
  http.derived_key = true;
  EXPECT_EQ(request_to(http, "chunks/a", {}, access, "d", 0).token, peer_key("secret", "d"));
  EXPECT_NE(peer_key("secret", "d"), peer_key("secret", "e"));
  EXPECT_EQ(peer_key("", "d"), "");

  const Place s3 = *parse_place("s3://bucket/m", access);
  const hub::TransferRequest request = request_to(s3, "a b", {}, access, "d", 0);
  EXPECT_EQ(request.url, "http://s3.example:9000/bucket/m/a%20b");
  EXPECT_EQ(request.token, "");
  ASSERT_EQ(request.headers.size(), 3u);
  EXPECT_TRUE(request.headers[2].starts_with("authorization: AWS4-HMAC-SHA256 Credential=test:"));
  access.aws = {};
  EXPECT_TRUE(request_to(s3, "a", {}, access, "d", 0).headers.empty());
}

// A request's Host is without the scheme's own port, and so is what is signed.
TEST(Place, TheSchemesOwnPortIsNotSigned) {
  const auto signature = [](const std::string& endpoint) {
    PlaceAccess access{.key = "", .aws = {}, .s3_endpoint = endpoint};
    access.aws.access_key = "a";
    access.aws.secret_key = "b";
    return request_to(*parse_place("s3://bucket/m", access), "c", {}, access, "d", 0).headers[2];
  };
  EXPECT_EQ(signature("http://h:80"), signature("http://h"));
  EXPECT_EQ(signature("https://h:443"), signature("https://h"));
  EXPECT_NE(signature("https://h:80"), signature("https://h"));
}

}  // namespace
}  // namespace pelton::weights
