#include "api/load_model_request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(LoadModelRequest, SaysWhichModelAndHow) {
  const auto asked = parse_load_model_request(
      R"({"model":"/m","name":"a","aliases":["b","c"],"wait":false,"max_model_len":4096,)"
      R"("kv_cache_memory":"1GiB","enable_prefix_caching":false,"memory_utilization":0.5,)"
      R"("weights":null})");
  ASSERT_TRUE(asked.ok()) << asked.error().message;
  EXPECT_EQ(asked->model, "/m");
  EXPECT_EQ(asked->name, "a");
  EXPECT_THAT(asked->aliases, ElementsAre("b", "c"));
  EXPECT_FALSE(asked->wait);
  EXPECT_THAT(
      asked->options,
      ElementsAre(Pair("max_model_len", "4096"), Pair("kv_cache_memory", "1GiB"),
                  Pair("enable_prefix_caching", "false"), Pair("memory_utilization", "0.5")));
}

TEST(LoadModelRequest, NeedsNoMoreThanTheModel) {
  const auto asked = parse_load_model_request(R"({"model":"openai/gpt-oss-20b"})");
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked->name, "");
  EXPECT_TRUE(asked->aliases.empty());
  EXPECT_TRUE(asked->wait);
  EXPECT_TRUE(asked->options.empty());
}

TEST(LoadModelRequest, RefusesByName) {
  const auto refused = [](const std::string& body, const std::string& field,
                          const std::string& words) {
    const auto asked = parse_load_model_request(body);
    ASSERT_FALSE(asked.ok()) << body;
    EXPECT_EQ(asked.error().field, field) << body;
    EXPECT_THAT(asked.error().message, HasSubstr(words)) << body;
  };
  refused("{}", "model", "missing");
  refused(R"({"model":""})", "model", "missing");
  refused(R"({"model":7})", "model", "must be a string, not an integer");
  refused(R"({"model":"/m","model":"/n"})", "model", "stands twice");
  refused(R"({"model":"/m","name":["a"]})", "name", "must be a string");
  refused(R"({"model":"/m","name":""})", "name", "'name' is empty; leave it out");
  for (const char* name : {".", "..", "a/../b", "/", "a//b", "/a", "a/"}) {
    refused(fmt::format(R"({{"model":"/m","name":"{}"}})", name), "name", "stands in paths");
  }
  refused(R"({"model":"/m","name":")" + std::string(257, 'n') + "\"}", "name", "256");
  refused(R"({"model":"/m","aliases":"a"})", "aliases", "must be an array");
  refused(R"({"model":"/m","aliases":["a",1]})", "aliases[1]", "must be a string");
  refused(R"({"model":"/m","wait":"no"})", "wait", "true or false");
  refused(R"({"model":"/m","weights":{}})", "weights", "not an object");
  refused("[]", "", "must be a JSON object");
}

}  // namespace
}  // namespace pelton::api
