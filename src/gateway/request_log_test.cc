#include "gateway/request_log.h"

#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

namespace pelton::gateway {
namespace {

std::vector<kv::BlockHash> names_of(size_t count) {
  std::vector<kv::BlockHash> names;
  for (size_t i = 0; i < count; ++i) names.push_back({.low = i + 1, .high = 7 * (i + 1)});
  return names;
}

RequestFacts facts_of(size_t names) {
  return {.arrived_unix_ms = 1'790'000'000'123,
          .pool = "box",
          .input_tokens = 300,
          .output_tokens = 41,
          .cached_tokens = 256,
          .names = names_of(names),
          .block_tokens = 64,
          .status = 200,
          .outcome = "ok",
          .first_token_s = 0.0315,
          .duration_s = 0.4102};
}

class RequestLogFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("request_log_test." + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
    path_ = folder_ / "requests.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<RequestLog> open(int64_t bytes_max) {
    auto opened = RequestLog::open(path_, {.bytes_max = bytes_max}, log_);
    EXPECT_TRUE(opened.ok());
    return *std::move(opened);
  }
  static std::vector<Json> lines_of(const std::string& path) {
    std::vector<Json> lines;
    std::istringstream text(*base::read_file(path, size_t{1} << 24));
    for (std::string line; std::getline(text, line);) {
      Result<Json> json = Json::parse(line);
      EXPECT_TRUE(json.ok()) << line;
      lines.push_back(*std::move(json));
    }
    return lines;
  }

  std::filesystem::path folder_;
  std::string path_;
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kError, .json = false}};
};

TEST(RequestLog, ALineIsNumbers) {
  const Result<Json> json = Json::parse(request_line(facts_of(2), "salt"));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->integer("timestamp"), 1'790'000'000'123);
  EXPECT_EQ(json->integer("input_length"), 300);
  EXPECT_EQ(json->integer("output_length"), 41);
  EXPECT_EQ(json->integer("cached_tokens"), 256);
  EXPECT_EQ(json->integer("block_tokens"), 64);
  EXPECT_EQ(json->find("hash_ids")->as_array().size(), 2U);
  EXPECT_EQ(json->number("first_token_ms"), 31.5);
  EXPECT_EQ(json->string("outcome"), "ok");
  EXPECT_EQ(json->string("class"), "1k:64");
}

TEST(RequestLog, AClassIsOfLengths) {
  EXPECT_EQ(length_class(0, 0), "1k:64");
  EXPECT_EQ(length_class(1'024, 64), "1k:64");
  EXPECT_EQ(length_class(1'025, 65), "4k:256");
  EXPECT_EQ(length_class(16'385, 257), "64k:1k");
  EXPECT_EQ(length_class(65'537, 1'025), "128k:4k");
  EXPECT_EQ(length_class(131'073, 4'097), "more:more");
}

TEST(RequestLog, NamesAreSalted) {
  const std::string one = request_line(facts_of(3), "salt");
  EXPECT_EQ(one, request_line(facts_of(3), "salt"));
  EXPECT_NE(one, request_line(facts_of(3), "another"));
  const Json ids = *Json::parse(one)->find("hash_ids");
  const Json others = *Json::parse(request_line(facts_of(3), "another"))->find("hash_ids");
  for (size_t i = 0; i < 3; ++i) {
    const int64_t id = ids.as_array()[i].as_integer();
    EXPECT_NE(id, others.as_array()[i].as_integer());
    EXPECT_GE(id, 0);
    EXPECT_LT(id, int64_t{1} << 52);
  }
}

TEST(RequestLog, NamesAreOfGroupsOfBlocks) {
  const std::vector<kv::BlockHash> names = names_of(11);
  const GroupedNames sixteens = grouped_names(names, 16);
  EXPECT_EQ(sixteens.block_tokens, 64);
  EXPECT_EQ(sixteens.names, (std::vector<kv::BlockHash>{names[3], names[7]}));
  const GroupedNames wide = grouped_names(names, 128);
  EXPECT_EQ(wide.block_tokens, 128);
  EXPECT_EQ(wide.names, names);
  EXPECT_TRUE(grouped_names(names, 0).names.empty());
  EXPECT_EQ(grouped_names(names_of(100'000), 64).names.size(), 4096U);  // a line stays short
}

TEST_F(RequestLogFile, IsBoundedAndGoneOnWith) {
  const auto line_bytes = static_cast<int64_t>(request_line(facts_of(0), "").size());
  {
    const auto log = open(10 * line_bytes);
    for (int i = 0; i < 25; ++i) log->note(facts_of(0));
  }
  EXPECT_EQ(lines_of(path_).size(), 5U);
  EXPECT_EQ(lines_of(path_ + ".1").size(), 10U);  // of those before it nothing is left
  {
    const auto log = open(10 * line_bytes);
    for (int i = 0; i < 4; ++i) log->note(facts_of(0));
  }
  EXPECT_EQ(lines_of(path_).size(), 9U);
}

TEST_F(RequestLogFile, WhatADiskDoesNotTakeIsCounted) {
  auto opened = RequestLog::open("/dev/full", {}, log_);
  ASSERT_TRUE(opened.ok());
  for (int i = 0; i < 3; ++i) (*opened)->note(facts_of(0));
  for (int i = 0; i < 1000 && (*opened)->lost() < 3; ++i) ::usleep(10'000);
  EXPECT_EQ((*opened)->lost(), 3);
}

}  // namespace
}  // namespace pelton::gateway
