// For tests: a double of Kubernetes' API server with its controllers, as much of it as a launcher
// asks: one workload's scale, leases, pods (listed by pages, watched), faults on demand.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "net/http_server.h"
#include "net/url.h"

namespace pelton::launch {

class TestKubernetes {
 public:
  struct Pod {
    int number = 0;
    std::string name;
    std::string uid_time;  // creationTimestamp
    std::string phase = "Running";
    std::string waiting;  // a container's reason
    int exit_code = 0;    // of its last run
    bool is_ending = false;
    int version = 1;
    std::map<std::string, std::string> annotations;
  };

  explicit TestKubernetes(bool is_set, base::Log& log)
      : is_set_(is_set),
        server_(
            {.address = "127.0.0.1", .port = 0},
            [this](const net::HttpRequest& request,
                   const std::shared_ptr<net::Exchange>& exchange) { answer(request, exchange); },
            log) {
    EXPECT_TRUE(server_.start().ok());
  }
  ~TestKubernetes() { server_.stop(std::chrono::milliseconds(0)); }
  TestKubernetes(const TestKubernetes&) = delete;
  TestKubernetes& operator=(const TestKubernetes&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_.port()); }

  // Everything below under this lock.
  std::mutex mutex;
  std::string token = "first";
  int replicas = 0;
  std::vector<Pod> pods;
  std::map<std::string, std::string> leases;  // name: annotation
  std::map<std::string, int> lease_versions;
  int created = 0;             // pods, ever
  bool pods_start = true;      // else they stay Pending
  bool new_pods_fail = false;  // their container ends with exit code 4, again and again
  bool pods_end = true;        // what is deleted is gone at once
  bool lists_expired = false;  // a watch finds its version too old, once
  std::function<std::optional<net::HttpResponse>(const net::HttpRequest&)> fault;
  std::map<std::string, int> calls;  // by method and what of

  // The pod gets on, or goes.
  void change(const std::string& name, const std::function<void(Pod&)>& change) {
    std::lock_guard lock(mutex);
    for (Pod& one : pods) {
      if (one.name != name) continue;
      change(one);
      note("MODIFIED", one);
    }
  }
  void remove(const std::string& name) {
    std::lock_guard lock(mutex);
    remove_locked(name);
  }
  std::vector<Pod> all_pods() {
    std::lock_guard lock(mutex);
    return pods;
  }
  // Every watch ends amid a line.
  void cut() {
    std::lock_guard lock(mutex);
    for (const auto& one : watches_) {
      one->post_cut();
    }
    watches_.clear();
  }

 private:
  struct Watch {
    std::shared_ptr<net::Exchange> exchange;
    void post_cut() {
      auto mine = std::move(exchange);
      mine->post([mine] {
        mine->write("{\"type\":\"MODI");
        mine->finish();
      });
    }
  };

  static net::HttpResponse json(int status, std::string body) {
    net::HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
    response.headers.add("Content-Type", "application/json");
    return response;
  }
  static net::HttpResponse status(int code, const std::string& message) {
    return json(code, R"({"kind":"Status","message":")" + message + "\"}");
  }

  std::string pod_text(const Pod& one) const {
    Json annotations = Json(Json::Object());
    for (const auto& [key, value] : one.annotations) annotations.set(key, Json(value));
    Json metadata = Json(Json::Object());
    metadata.set("name", one.name).set("creationTimestamp", one.uid_time);
    metadata.set("resourceVersion", fmt::format("{}", one.version));
    metadata.set("annotations", annotations);
    if (one.is_ending) metadata.set("deletionTimestamp", "2026-11-28T00:00:00Z");
    Json labels = Json(Json::Object());
    if (is_set_) labels.set("apps.kubernetes.io/pod-index", fmt::format("{}", one.number));
    metadata.set("labels", labels);
    std::string state = R"({"running":{}})";
    if (!one.waiting.empty()) state = R"({"waiting":{"reason":")" + one.waiting + R"("}})";
    const std::string last =
        one.exit_code == 0 ? "{}"
                           : fmt::format(R"({{"terminated":{{"exitCode":{}}}}})", one.exit_code);
    const bool runs = one.phase == "Running";
    return fmt::format(
        R"({{"metadata":{},"status":{{"phase":"{}"{},"containerStatuses":[{{"state":{},"lastState":{}}}]}}}})",
        metadata.dump(), one.phase,
        runs ? fmt::format(R"(,"podIP":"10.0.0.{}")", one.number + 1) : "", state, last);
  }

  void note(const std::string& type, Pod& one) {
    one.version = ++version_;
    const std::string line =
        fmt::format(R"({{"type":"{}","object":{}}})", type, pod_text(one)) + "\n";
    for (const auto& watch : watches_) {
      auto exchange = watch->exchange;
      exchange->post([exchange, line] { exchange->write(line); });
    }
  }

  void remove_locked(const std::string& name) {
    const auto found = std::ranges::find(pods, name, &Pod::name);
    if (found == pods.end()) return;
    Pod gone = *found;
    pods.erase(found);
    note("DELETED", gone);
    control();
  }

  // Of a Deployment the pods that do not run go first, then the cheapest, then the youngest; of a
  // set the last.
  void control() {
    const auto lives = [](const Pod& one) { return !one.is_ending; };
    while (std::ranges::count_if(pods, lives) < replicas) {
      Pod one;
      one.number = is_set_ ? 0 : created;
      while (is_set_ && std::ranges::any_of(
                            pods, [&](const Pod& other) { return other.number == one.number; })) {
        ++one.number;
      }
      ++created;
      one.name = fmt::format("w-{}", one.number);
      one.uid_time = fmt::format("2026-11-28T00:{:02}:00Z", created);
      if (!pods_start) one.phase = "Pending";
      if (new_pods_fail) {
        one.waiting = "CrashLoopBackOff";
        one.exit_code = 4;
      }
      pods.push_back(one);
      note("ADDED", pods.back());
    }
    while (std::ranges::count_if(pods, lives) > replicas) {
      const auto rank = [&](const Pod& one) {
        const auto cost = one.annotations.find("controller.kubernetes.io/pod-deletion-cost");
        return std::tuple(one.is_ending, is_set_ ? -one.number : 0, one.phase == "Running",
                          cost == one.annotations.end() ? 0 : std::stoi(cost->second), -one.number);
      };
      const auto victim = std::ranges::min_element(pods, {}, rank);
      victim->is_ending = true;
      note("MODIFIED", *victim);
      if (!pods_end) continue;
      Pod gone = *victim;
      pods.erase(victim);
      note("DELETED", gone);
    }
  }

  void answer(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
    std::lock_guard lock(mutex);
    if (fault) {
      if (std::optional<net::HttpResponse> wrong = fault(request)) return exchange->send(*wrong);
    }
    if (request.headers.get("Authorization") != "Bearer " + token) {
      ++calls["refused"];
      return exchange->send(status(401, "who are you"));
    }
    if (request.path.ends_with("/scale")) return exchange->send(scale(request));
    if (request.path.find("/leases") != std::string::npos) return exchange->send(lease(request));
    if (request.path.ends_with("/pods")) return list_or_watch(request, exchange);
    if (request.path.find("/pods/") != std::string::npos) return exchange->send(patch_pod(request));
    exchange->send(status(404, "nothing there"));
  }

  net::HttpResponse scale(const net::HttpRequest& request) {
    ++calls[request.method + " scale"];
    if (request.path.find("/ml/") == std::string::npos ||
        request.path.find("/w/") == std::string::npos) {
      return status(404, "no such workload");
    }
    if (request.method == "PATCH") {
      if (request.headers.get("Content-Type") != "application/merge-patch+json") {
        return status(415, "no patch");
      }
      const Result<Json> body = Json::parse(request.body);
      const Json* metadata = body->find("metadata");
      if (metadata != nullptr &&
          metadata->string("resourceVersion") != fmt::format("{}", scale_version_)) {
        return status(409, "the object has been modified");
      }
      replicas = static_cast<int>(*body->find("spec")->integer("replicas"));
      ++scale_version_;
      control();
    }
    return json(
        200,
        fmt::format(
            R"({{"kind":"Scale","metadata":{{"name":"w","resourceVersion":"{}"}},"spec":{{"replicas":{}}},"status":{{"selector":"app=w"}}}})",
            scale_version_, replicas));
  }

  net::HttpResponse lease(const net::HttpRequest& request) {
    ++calls[request.method + " lease"];
    const Result<Json> body = Json::parse(request.body.empty() ? "{}" : request.body);
    std::string name = request.path.substr(request.path.rfind('/') + 1);
    if (request.method == "POST") name = *body->find("metadata")->string("name");
    if (request.method == "POST" && leases.contains(name)) return status(409, "it is there");
    if (request.method != "POST" && !leases.contains(name)) return status(404, "no such lease");
    if (request.method != "GET") {
      const Json* metadata = body->find("metadata");
      const std::string version = fmt::format("{}", lease_versions[name]);
      if (request.method == "PATCH" && metadata->string("resourceVersion") != version) {
        return status(409, "the object has been modified");
      }
      leases[name] = *metadata->find("annotations")->string("pelton/replicas");
      ++lease_versions[name];
    }
    Json annotations = Json(Json::Object());
    annotations.set("pelton/replicas", leases[name]);
    Json metadata = Json(Json::Object());
    metadata.set("name", name).set("resourceVersion", fmt::format("{}", lease_versions[name]));
    metadata.set("annotations", annotations);
    Json all = Json(Json::Object());
    all.set("metadata", metadata);
    return json(200, all.dump());
  }

  net::HttpResponse patch_pod(const net::HttpRequest& request) {
    ++calls["PATCH pod"];
    const std::string name = request.path.substr(request.path.rfind('/') + 1);
    const auto found = std::ranges::find(pods, name, &Pod::name);
    if (found == pods.end()) return status(404, "no such pod");
    const Result<Json> body = Json::parse(request.body);
    if (body->find("metadata")->string("resourceVersion") != fmt::format("{}", found->version)) {
      ++calls["conflict pod"];
      return status(409, "the object has been modified");
    }
    for (const Json::Member& one : body->find("metadata")->find("annotations")->as_object()) {
      if (one.value.is_null()) {
        found->annotations.erase(one.key);
      } else {
        found->annotations[one.key] = one.value.as_string();
      }
    }
    note("MODIFIED", *found);
    return json(200, pod_text(*found));
  }

  void list_or_watch(const net::HttpRequest& request,
                     const std::shared_ptr<net::Exchange>& exchange) {
    if (net::query_value(request.query, "labelSelector") != "app=w") {
      return exchange->send(status(400, "no selector"));
    }
    if (!net::query_value(request.query, "watch")) {
      ++calls["list"];
      // Pages of one.
      const std::string from = net::query_value(request.query, "continue").value_or("0");
      const auto first = static_cast<size_t>(std::stoi(from));
      const std::string next =
          first + 1 < pods.size() ? fmt::format(R"(,"continue":"{}")", first + 1) : "";
      const std::string item = first < pods.size() ? pod_text(pods[first]) : "";
      return exchange->send(
          json(200, fmt::format(R"({{"metadata":{{"resourceVersion":"{}"{}}},"items":[{}]}})",
                                version_, next, item)));
    }
    ++calls["watch"];
    net::HttpHeaders headers;
    headers.add("Content-Type", "application/json");
    exchange->start_stream(200, std::move(headers));
    const std::string after = net::query_value(request.query, "resourceVersion").value_or("");
    if (std::exchange(lists_expired, false) || after != fmt::format("{}", version_)) {
      exchange->write("{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n");
      return exchange->finish();
    }
    exchange->write(
        fmt::format(R"({{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{}"}}}}}})",
                    version_) +
        "\n");
    watches_.push_back(std::make_shared<Watch>(Watch{exchange}));
  }

  const bool is_set_;
  int version_ = 1;
  int scale_version_ = 1;
  std::vector<std::shared_ptr<Watch>> watches_;
  net::HttpServer server_;
};

}  // namespace pelton::launch
