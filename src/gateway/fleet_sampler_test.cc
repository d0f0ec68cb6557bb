#include "gateway/fleet_sampler.h"

#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;

Fleet::Row worker(std::string name, std::string pool, cluster::WorkerState state, int running) {
  Fleet::Row row;
  row.name = std::move(name);
  row.pool = std::move(pool);
  row.url = "http://10.0.0.1:1";
  row.state = state;
  row.load.running = running;
  row.load.waiting = 1;
  return row;
}

Json object(const std::string& members) {
  Result<Json> json = Json::parse("{" + members + "}");
  EXPECT_TRUE(json.ok()) << members;
  return std::move(*json);
}

std::string at(const Json& json, std::initializer_list<const char*> path) {
  const Json* one = &json;
  for (const char* const key : path) {
    one = one->find(key);
    if (one == nullptr) return "nothing";
  }
  return one->dump();
}

TEST(FleetSampler, RatesAreOfWhatHasEndedSinceTheLastSample) {
  FleetSampler sampler;
  FleetSampler::Sums sums{.open = 3, .waiting = 1};
  sums.ended = {{.pool = "a", .by_outcome = {40, 0, 0, 0}},
                {.pool = "b", .by_outcome = {0, 5, 0, 0}}};
  EXPECT_EQ(at(object(sampler.sample(sums, {}, 7 * kSecond_ns, 5)), {"ended", "ok"}), "0.0");
  sums.ended[0].by_outcome = {43, 0, 1, 0};
  const Json sample = object(sampler.sample(sums, {}, 7 * kSecond_ns + kSecond_ns / 2, 6));
  EXPECT_EQ(at(sample, {"ended", "ok"}), "6.0");
  EXPECT_EQ(at(sample, {"ended", "error"}), "2.0");
  EXPECT_EQ(at(sample, {"ended", "client_error"}), "0.0");
  EXPECT_EQ(at(sample, {"open"}), "3");
  EXPECT_EQ(at(sample, {"waiting"}), "1");
  EXPECT_EQ(at(sample, {"at"}), "6");
  // A clock that stands still divides by nothing.
  EXPECT_EQ(
      at(object(sampler.sample(sums, {}, 7 * kSecond_ns + kSecond_ns / 2, 6)), {"ended", "ok"}),
      "0.0");
}

TEST(FleetSampler, PoolsAreSummedOverTheirWorkers) {
  const std::vector<Fleet::Row> workers = {worker("x", "a", cluster::WorkerState::kReady, 2),
                                           worker("y", "a", cluster::WorkerState::kDown, 3),
                                           worker("z", "b", cluster::WorkerState::kReady, 0)};
  const Json sample = object(FleetSampler().sample({}, workers, 1, 0));
  EXPECT_EQ(at(sample, {"pools", "a"}), R"({"workers":2,"ready":1,"running":2,"waiting":1})");
  EXPECT_EQ(at(sample, {"pools", "b", "ready"}), "1");
}

// As long as console::Feed takes, whatever the pools are called.
TEST(FleetSampler, ASampleIsShort) {
  std::vector<Fleet::Row> workers;
  for (int i = 0; i < 1000; ++i) {
    workers.push_back(worker("w", "pool-" + std::string(50, 'p') + std::to_string(i),
                             cluster::WorkerState::kReady, 1'000'000'000));
  }
  EXPECT_LT(FleetSampler().sample({}, workers, 1, 0).size(), 4096);
}

TEST(FleetSampler, WhatAWorkerSaidBeforeItFellSilentIsNotItsLoad) {
  const std::vector<Fleet::Row> workers = {worker("x", "a", cluster::WorkerState::kDown, 4)};
  const auto rows = worker_rows(workers);
  EXPECT_NE(rows.begin()->second.find(R"("reports":false)"), std::string::npos);
  EXPECT_FALSE(reports_now(cluster::WorkerState::kDown));
  EXPECT_TRUE(reports_now(cluster::WorkerState::kSuspect));
}

TEST(FleetSampler, RowsSayWhoIsThereAndWhatBecameOfRequests) {
  const std::vector<Fleet::Row> workers = {worker("x\"<b>", "a", cluster::WorkerState::kReady, 2)};
  const auto rows = worker_rows(workers);
  ASSERT_EQ(rows.size(), 1);
  const Result<Json> row = Json::parse(rows.begin()->second);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->string("name").value(), "x\"<b>");
  EXPECT_EQ(row->string("state").value(), "ready");
  EXPECT_EQ(at(*row, {"running"}), "2");
  FleetSampler::Sums sums;
  sums.ended = {{.pool = "a", .by_outcome = {1, 2, 3, 4}}};
  sums.held = {{"a", 7}, {"cold", 0}};
  EXPECT_EQ(
      request_rows(sums),
      (std::map<std::string, std::string>{
          {"a", R"({"pool":"a","ok":1,"client_error":2,"error":3,"left":4,"held":7})"},
          {"cold", R"({"pool":"cold","ok":0,"client_error":0,"error":0,"left":0,"held":0})"}}));
}

}  // namespace
}  // namespace pelton::gateway
