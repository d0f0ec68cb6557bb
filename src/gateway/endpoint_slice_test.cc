#include "gateway/endpoint_slice.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

const SliceTarget kTarget{.pool = "box", .port = "fleet"};

constexpr std::string_view kSlice = R"({"metadata":{"name":"w-1","resourceVersion":"7"},
  "addressType":"IPv4","ports":[{"name":"http","port":8000},{"name":"fleet","port":9101}],
  "endpoints":[
    {"addresses":["10.0.0.1"],"zone":"a","conditions":{"ready":true}},
    {"addresses":["10.0.0.2"],"conditions":{"ready":false}},
    {"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":true,"terminating":true}},
    {"addresses":["10.0.0.4"],"conditions":{"ready":false,"serving":false,"terminating":true}},
    {"addresses":["10.0.0.5"]},
    {"addresses":["name.example"]},{"addresses":[]},{"addresses":7},7]})";

TEST(EndpointSlice, ReadyOnesAndThoseThatEndAreWorkers) {
  const auto json = Json::parse(kSlice);
  ASSERT_TRUE(json.ok());
  const auto slice = parse_endpoint_slice(*json, kTarget);
  ASSERT_TRUE(slice.ok());
  EXPECT_EQ(slice->name, "w-1");
  const std::vector<WorkerConfig> wanted = {
      {.pool = "box", .host = "10.0.0.1", .port = 9101, .zone = "a"},
      {.pool = "box", .host = "10.0.0.3", .port = 9101, .zone = {}, .draining = true},
      {.pool = "box", .host = "10.0.0.5", .port = 9101, .zone = {}}};
  EXPECT_EQ(slice->workers, wanted);
  const auto by_number = parse_endpoint_slice(*json, {.pool = "box", .port = "8000"});
  ASSERT_TRUE(by_number.ok());
  EXPECT_EQ(by_number->workers.front().port, 8000);
  const auto other = parse_endpoint_slice(*json, {.pool = "box", .port = "metrics"});
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->workers.empty());
}

TEST(EndpointSlice, WhatHasNoNameIsNone) {
  EXPECT_FALSE(parse_endpoint_slice(Json(7), kTarget).ok());
  EXPECT_FALSE(parse_endpoint_slice(*Json::parse("{}"), kTarget).ok());
  EXPECT_FALSE(parse_endpoint_slice(*Json::parse(R"({"metadata":{"name":7}})"), kTarget).ok());
}

}  // namespace
}  // namespace pelton::gateway
