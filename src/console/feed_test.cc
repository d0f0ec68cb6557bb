#include "console/feed.h"

#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::console {
namespace {

constexpr int64_t kFirst = 1000;

Feed::Table table(std::map<std::string, std::string> rows) {
  return {.name = "t", .rows = std::move(rows)};
}

TEST(ConsoleFeed, ANewPageGetsAllAndAnOlderOneWhatHasChanged) {
  Feed feed(kFirst);
  EXPECT_EQ(feed.after(0).data, "");
  feed.note("\"v\":1", {table({{"a", "{\"k\":\"a\"}"}, {"b", "{\"k\":\"b\"}"}})});
  feed.note("\"v\":2", {table({{"a", "{\"k\":\"a\"}"}, {"b", "{\"k\":\"b\",\"x\":1}"}})});
  EXPECT_EQ(feed.after(0).newest, kFirst + 1);
  EXPECT_EQ(feed.after(0).data,
            "{\"n\":1001,\"samples\":[{\"n\":1000,\"v\":1},{\"n\":1001,\"v\":2}],"
            "\"tables\":{\"t\":{\"all\":true,\"rows\":[{\"k\":\"a\"},{\"k\":\"b\",\"x\":1}]}}}");
  EXPECT_EQ(feed.after(kFirst).data,
            "{\"n\":1001,\"samples\":[{\"n\":1001,\"v\":2}],"
            "\"tables\":{\"t\":{\"all\":false,\"rows\":[{\"k\":\"b\",\"x\":1}]}}}");
  EXPECT_EQ(feed.after(kFirst + 1).data, "");
}

TEST(ConsoleFeed, WhatAnEarlierStartSaidIsReplaced) {
  Feed feed(kFirst);
  feed.note("\"v\":1", {table({{"a", "{}"}})});
  for (const int64_t number : {int64_t{-5}, kFirst - 1, kFirst + 7}) {
    EXPECT_EQ(feed.after(number).data, feed.after(0).data) << number;
  }
}

TEST(ConsoleFeed, ARowThatHasGoneMakesTheTableWhole) {
  Feed feed(kFirst);
  feed.note("\"v\":1", {table({{"a", "{\"k\":1}"}, {"b", "{\"k\":2}"}})});
  feed.note("\"v\":2", {table({{"b", "{\"k\":2}"}})});
  feed.note("\"v\":3", {table({{"b", "{\"k\":2}"}})});
  EXPECT_NE(feed.after(kFirst).data.find("{\"all\":true,\"rows\":[{\"k\":2}]}"), std::string::npos);
  EXPECT_NE(feed.after(kFirst + 1).data.find("{\"all\":false,\"rows\":[]}"), std::string::npos);
  // It comes back as it was: a change all the same.
  feed.note("\"v\":4", {table({{"a", "{\"k\":1}"}, {"b", "{\"k\":2}"}})});
  EXPECT_NE(feed.after(kFirst + 2).data.find("{\"all\":false,\"rows\":[{\"k\":1}]}"),
            std::string::npos);
}

TEST(ConsoleFeed, NobodyIsSentTablesOfAnEarlierSecond) {
  Feed feed(kFirst);
  feed.note("\"v\":1", {table({{"a", "{}"}})});
  feed.note("\"v\":2", {});
  EXPECT_EQ(feed.after(0).data, "");
  feed.note("\"v\":3", {table({})});
  EXPECT_NE(feed.after(0).data.find("\"v\":2"), std::string::npos);
  EXPECT_NE(feed.after(0).data.find("{\"all\":true,\"rows\":[]}"), std::string::npos);
}

TEST(ConsoleFeed, IsBounded) {
  Feed feed(kFirst);
  feed.note("\"v\":\"" + std::string(Feed::kSampleBytesMax, 'x') + "\"", {table({})});
  for (size_t i = 0; i < 2 * Feed::kSamples; ++i) {
    feed.note("\"v\":" + std::to_string(i), {table({})});
  }
  const Result<Json> news = Json::parse(feed.after(0).data);
  ASSERT_TRUE(news.ok());
  const Json::Array& samples = news->find("samples")->as_array();
  ASSERT_EQ(samples.size(), Feed::kSamples);
  EXPECT_EQ(samples.back().find("v")->dump(), std::to_string(2 * Feed::kSamples - 1));
  EXPECT_EQ(feed.after(0).data.find('x'), std::string::npos);
}

}  // namespace
}  // namespace pelton::console
