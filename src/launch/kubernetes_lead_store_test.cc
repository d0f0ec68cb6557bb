// Who leads by a Lease, against a double of the API server that keeps Leases and ConfigMaps as the
// real one does: versions, merge patches, conflicts, lists by pages.
#include "launch/kubernetes_lead_store.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "launch/lead.h"
#include "net/http_server.h"
#include "net/url.h"

namespace pelton::launch {
namespace {

class SetClock final : public base::Clock {
 public:
  int64_t now_ns() const override { return now_s * 1'000'000'000; }
  int64_t unix_ms() const override { return now_s * 1000; }
  int64_t now_s = 1'800'000'000;
};

class TestApi {
 public:
  explicit TestApi(base::Log& log)
      : server_(
            {.address = "127.0.0.1", .port = 0},
            [this](const net::HttpRequest& request,
                   const std::shared_ptr<net::Exchange>& exchange) {
              std::lock_guard lock(mutex);
              ++calls;
              exchange->send(fault ? fault(request) : answer(request));
            },
            log) {
    EXPECT_TRUE(server_.start().ok());
  }
  ~TestApi() { server_.stop(std::chrono::milliseconds(0)); }
  TestApi(const TestApi&) = delete;
  TestApi& operator=(const TestApi&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_.port()); }
  static net::HttpResponse json(int status, const std::string& body) {
    net::HttpResponse response{.status = status, .headers = {}, .body = body};
    response.headers.add("Content-Type", "application/json");
    return response;
  }

  // All below under this lock.
  std::mutex mutex;
  std::map<std::string, Json> objects;  // by path
  std::function<net::HttpResponse(const net::HttpRequest&)> fault;
  int calls = 0;

  net::HttpResponse answer(const net::HttpRequest& request) {
    const std::string& path = request.path;
    if (request.method == "GET" && path.ends_with("/configmaps")) return list(request);
    if (request.method == "POST") {
      Json object = Json::parse(request.body).value();
      const std::string key = path + "/" + object.find("metadata")->string("name").value();
      if (objects.contains(key)) return json(409, R"({"message":"already exists"})");
      return put(201, key, std::move(object));
    }
    const auto found = objects.find(path);
    if (found == objects.end()) return json(404, R"({"message":"not found"})");
    if (request.method == "GET") return json(200, found->second.dump());
    EXPECT_EQ(request.headers.get("Content-Type"), "application/merge-patch+json");
    const Json patch = Json::parse(request.body).value();
    const auto wanted = patch.find("metadata")->string("resourceVersion");
    if (wanted && wanted != found->second.find("metadata")->string("resourceVersion")) {
      return json(409, R"({"message":"the object has been modified"})");
    }
    return put(200, path, merged(found->second, patch));
  }
  // By somebody else: `kubectl annotate`.
  void touch(const std::string& path) {
    std::lock_guard lock(mutex);
    put(200, path, objects.at(path));
  }

 private:
  static Json merged(const Json& into, const Json& patch) {
    if (!into.is_object() || !patch.is_object()) return patch;
    Json all = into;
    for (const Json::Member& one : patch.as_object()) {
      const Json* before = into.find(one.key);
      all.set(one.key, before == nullptr ? one.value : merged(*before, one.value));
    }
    return all;
  }
  net::HttpResponse put(int status, const std::string& path, Json object) {
    Json metadata = *object.find("metadata");
    metadata.set("resourceVersion", fmt::format("{}", ++version_));
    object.set("metadata", metadata);
    objects[path] = object;
    return json(status, object.dump());
  }
  // Pages of one.
  net::HttpResponse list(const net::HttpRequest& request) {
    EXPECT_EQ(net::query_value(request.query, "labelSelector"), "pelton.dev/autoscaler=lead");
    const std::string from = net::query_value(request.query, "continue").value_or("");
    std::string item;
    std::string next;
    for (const auto& [path, object] : objects) {
      if (!path.starts_with(request.path + "/") || path <= from) continue;
      if (item.empty()) {
        item = object.dump();
        next = path;
      } else {
        return json(200, fmt::format(R"({{"metadata":{{"resourceVersion":"1","continue":"{}"}},)"
                                     R"("items":[{}]}})",
                                     next, item));
      }
    }
    return json(200, R"({"metadata":{"resourceVersion":"1"},"items":[)" + item + "]}");
  }

  int version_ = 0;
  net::HttpServer server_;
};

class KubernetesLead : public testing::Test {
 protected:
  std::unique_ptr<KubernetesLeadStore> store() {
    return std::make_unique<KubernetesLeadStore>(
        KubernetesLeadStore::Options{
            .api = {.api = api_.url(), .time_max = std::chrono::milliseconds(2'000)},
            .name_space = "ml",
            .name = "lead"},
        clock_);
  }
  // 0: another one leads.
  static uint64_t enter(LeadStore& store, const std::string& name) {
    const Result<std::optional<LeadStore::Term>> entered = store.enter(name);
    EXPECT_TRUE(entered.ok()) << entered.error().message;
    return entered.ok() && *entered ? (*entered)->epoch : 0;
  }
  static constexpr const char* kLease = "/apis/coordination.k8s.io/v1/namespaces/ml/leases/lead";

  SetClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  TestApi api_{log_};
};

TEST_F(KubernetesLead, TheFirstTakesItAndTheSecondWaitsItsWholeTime) {
  const auto one = store();
  const auto other = store();
  EXPECT_EQ(enter(*one, "one"), 1u);
  EXPECT_EQ(enter(*other, "other"), 0u);
  clock_.now_s += 4;
  ASSERT_TRUE(one->renew().ok());
  clock_.now_s += 4;
  EXPECT_EQ(enter(*other, "other"), 0u) << "renewed: the time begins when that is seen";
  clock_.now_s += 6;
  EXPECT_EQ(enter(*other, "other"), 0u);
  clock_.now_s += 1;
  EXPECT_EQ(enter(*other, "other"), 2u) << "untouched for longer than its six seconds";
  const Result<std::chrono::nanoseconds> renewed = one->renew();
  ASSERT_FALSE(renewed.ok());
  EXPECT_EQ(renewed.error().code, ErrorCode::kNotFound);
}

TEST_F(KubernetesLead, WhatIsGivenUpIsFreeAtOnce) {
  const auto one = store();
  const auto other = store();
  EXPECT_EQ(enter(*one, "one"), 1u);
  ASSERT_TRUE(one->give_up().ok());
  EXPECT_EQ(enter(*other, "other"), 2u);
  EXPECT_EQ(enter(*one, "one"), 0u);
  const Json lease = api_.objects.at(kLease);
  EXPECT_EQ(lease.find("spec")->string("holderIdentity"), "other");
  EXPECT_EQ(lease.find("spec")->integer("leaseDurationSeconds"), 6);
  EXPECT_THAT(lease.find("spec")->string("renewTime").value(),
              testing::MatchesRegex("20..-..-..T..:..:..\\.......Z"));
}

TEST_F(KubernetesLead, SomebodyElsesNoteOnTheLeaseIsNoLoss) {
  const auto one = store();
  EXPECT_EQ(enter(*one, "one"), 1u);
  api_.touch(kLease);
  EXPECT_TRUE(one->renew().ok());
  api_.objects.erase(kLease);
  EXPECT_FALSE(one->renew().ok());
}

TEST_F(KubernetesLead, TwoThatTakeItAtOnceAreOne) {
  const auto one = store();
  const auto other = store();
  EXPECT_EQ(enter(*one, "one"), 1u);
  ASSERT_TRUE(one->give_up().ok());
  // The other's look and its write have ours in between.
  bool between = false;
  api_.fault = [&](const net::HttpRequest& request) {
    if (request.method == "PATCH" && !std::exchange(between, true)) {
      net::HttpRequest first = request;
      first.body.replace(first.body.find("other"), 5, "third");
      api_.answer(first);
    }
    return api_.answer(request);
  };
  EXPECT_EQ(enter(*other, "other"), 0u);
}

TEST_F(KubernetesLead, WhatIsRememberedIsTheNextOnes) {
  const auto one = store();
  const auto other = store();
  EXPECT_EQ(enter(*one, "one"), 1u);
  for (const char* pool : {"main", "Ünsinn/3", "main"}) {
    EXPECT_TRUE(one->write({.pool = pool, .text = "{\"a\":1}"}).value());
  }
  ASSERT_TRUE(one->give_up().ok());
  EXPECT_EQ(enter(*other, "other"), 2u);
  const std::vector<LeadStore::Entry> read = other->read().value();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].text, "{\"a\":1}");
  EXPECT_TRUE(other->write({.pool = "main", .text = "{\"a\":2}"}).value());
}

TEST_F(KubernetesLead, WhoLeadsNoMoreWritesOverNothing) {
  const auto one = store();
  const auto other = store();
  EXPECT_EQ(enter(*one, "one"), 1u);
  EXPECT_TRUE(one->write({.pool = "main", .text = "{\"a\":1}"}).value());
  clock_.now_s += 1;
  EXPECT_EQ(enter(*other, "other"), 0u);
  clock_.now_s += 7;
  EXPECT_EQ(enter(*other, "other"), 2u);
  EXPECT_TRUE(other->write({.pool = "main", .text = "{\"a\":2}"}).value());
  EXPECT_FALSE(one->write({.pool = "main", .text = "{\"a\":3}"}).value());
  EXPECT_EQ(other->read().value().at(0).text, "{\"a\":2}");
}

TEST_F(KubernetesLead, AnAnswerThatIsNoneIsAnError) {
  const auto one = store();
  for (const char* body : {"", "{", "[]", "{}", R"({"metadata":{}})", R"({"metadata":7})"}) {
    api_.fault = [&](const net::HttpRequest&) { return TestApi::json(200, body); };
    EXPECT_FALSE(one->enter("one").ok()) << body;
    EXPECT_FALSE(one->read().ok()) << body;
  }
  for (const int status : {401, 403, 429, 500}) {
    api_.fault = [&](const net::HttpRequest&) { return TestApi::json(status, "{}"); };
    EXPECT_FALSE(one->enter("one").ok()) << status;
  }
  api_.fault = nullptr;
  EXPECT_EQ(enter(*one, "one"), 1u);
}

// The owner of a store: leads by its own clock, and gives up when it ends.
TEST_F(KubernetesLead, ALeadIsGivenUpAtItsEnd) {
  SharedClock shared;
  {
    Lead first(store(), std::chrono::seconds(6), shared, log_);
    EXPECT_TRUE(first.try_to_lead());
    EXPECT_TRUE(first.leads());
    Lead second(store(), std::chrono::seconds(6), shared, log_);
    EXPECT_FALSE(second.try_to_lead());
  }
  Lead third(store(), std::chrono::seconds(6), shared, log_);
  EXPECT_TRUE(third.try_to_lead());
  EXPECT_EQ(third.epoch(), 2u);
}

}  // namespace
}  // namespace pelton::launch
