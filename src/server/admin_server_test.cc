#include "server/admin_server.h"

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "net/test_socket.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
  {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 2000}]}
]})";

// A server with an operator's listener beside it.
class AdminFixture {
 public:
  explicit AdminFixture(ServerFixture::Options options)
      : fixture(kScript, std::move(options)),
        loader_({.on_change = {}}, fixture.server().services()),
        admin_({.services = fixture.server().services(),
                .listener = fixture.http(),
                .loader = loader_,
                .order = [](const api::LoadModelRequest& asked) { return order(asked); },
                .memory =
                    [] {
                      return ModelMemory{.budget = 100, .left = 40, .by_model = {{"tiny", 60}}};
                    }}),
        http_(
            {.address = "127.0.0.1",
             .port = 0,
             .connections_max = AdminServer::kConnectionsMax,
             .body_bytes_max = AdminServer::kBodyBytesMax},
            [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
              admin_.handle(request, exchange);
            },
            fixture.log()) {
    EXPECT_TRUE(http_.start().ok());
  }
  ~AdminFixture() { http_.stop(std::chrono::milliseconds(0)); }

  int port() const { return http_.port(); }
  net::HttpResponse ask(std::string method, std::string path, std::string body = {},
                        const std::string& content_type = "application/json") {
    net::HttpCall call;
    call.method = std::move(method);
    call.port = http_.port();
    call.target = std::move(path);
    if (!body.empty()) call.headers.add("Content-Type", content_type);
    call.body = std::move(body);
    Result<net::HttpResponse> response = net::http_fetch(fixture.client(), std::move(call));
    EXPECT_TRUE(response.ok()) << (response.ok() ? "" : response.error().message);
    return response.ok() ? std::move(response).value() : net::HttpResponse{.status = 0};
  }
  Json ledger() { return parsed(ask("GET", "/debug/ledger").body); }
  Json clean_ledger() {
    for (int i = 0; i < 2000 && ledger().boolean("clean") == false; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return ledger();
  }

  ServerFixture fixture;

 private:
  // "executor" of "/m?executor=/damaged"; of others none.
  static std::string field_of(const std::string& model) {
    const size_t begin = model.find('?');
    if (begin == std::string::npos) return "";
    return model.substr(begin + 1, model.find('=') - begin - 1);
  }
  // A model whose load fails as its path says: "/not_found".
  static Result<ModelLoader::Order> order(const api::LoadModelRequest& asked) {
    static const std::map<std::string, ErrorCode> kFailures = {
        {"/not_found", ErrorCode::kNotFound},
        {"/damaged", ErrorCode::kBadCheckpoint},
        {"/large", ErrorCode::kDoesNotFit},
        {"/unreadable", ErrorCode::kIo},
        {"/unknown_kind", ErrorCode::kUnsupported},
        {"/m?chat_template=/nope", ErrorCode::kNotFound},
        {"/m?executor=/damaged", ErrorCode::kBadConfig},
        {"/m?tokenizer=/damaged", ErrorCode::kBadCheckpoint}};
    const auto found = kFailures.find(asked.model);
    if (found == kFailures.end()) {
      return Error{ErrorCode::kInvalidArgument, "'weights' must be 'int8'", "weights"};
    }
    return ModelLoader::Order{
        .names = {.id = asked.name.empty() ? "guest" : asked.name, .aliases = asked.aliases},
        .load = [code = found->second, field = field_of(asked.model)](
                    const ModelLoader::Stop&) -> Result<std::shared_ptr<ServedModel>> {
          return Error{code, "it is as it is", field};
        }};
  }

  ModelLoader loader_;
  AdminServer admin_;
  net::HttpServer http_;
};

const Json& at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* here = &json;
  for (const std::string_view key : path) {
    here = here->find(key);
    EXPECT_NE(here, nullptr) << key;
  }
  return *here;
}

int64_t number(const Json& json, std::initializer_list<std::string_view> path) {
  return at(json, path).as_integer();
}

std::string body(const char* words, bool stream) {
  return std::string(R"({"messages":[{"role":"user","content":")") + words + "\"}]" +
         (stream ? R"(,"stream":true})" : "}");
}

TEST(AdminServer, LedgerOfAServerThatLoads) {
  ServerFixture::Options options;
  options.loaded = false;
  AdminFixture admin(std::move(options));
  EXPECT_EQ(admin.ask("GET", "/health").status, 503);
  EXPECT_EQ(admin.ask("GET", "/ready").status, 503);
  const Json loading = admin.ledger();
  EXPECT_EQ(loading.string("state"), "loading");
  EXPECT_TRUE(loading.find("engine")->is_null());
  EXPECT_EQ(loading.boolean("clean"), true);
  EXPECT_EQ(admin.ask("GET", "/metrics").status, 200);
  admin.fixture.load();
  EXPECT_EQ(admin.ask("GET", "/ready").status, 200);
  const Json serving = admin.ledger();
  EXPECT_EQ(serving.string("state"), "serving");
  EXPECT_GT(number(serving, {"engine", "blocks", "full", "total"}), 0);
  admin.fixture.server().drain();
  EXPECT_EQ(admin.ledger().string("state"), "draining");
  EXPECT_EQ(admin.ask("GET", "/health").status, 200);
  EXPECT_EQ(admin.ask("GET", "/health/ready").status, 503);
}

// Load with every kind of end, then nothing is left of it.
TEST(AdminServer, LedgerGoesBackToWhatItWas) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      return std::nullopt;
    };
  };
  AdminFixture admin(std::move(options));
  admin.fixture.post("/v1/chat/completions", body("hi", false));  // the clients' threads are there
  const Json before = admin.clean_ledger();
  EXPECT_EQ(before.boolean("clean"), true);

  bool seen_dirty = false;
  {
    net::HttpClient client{{}};
    std::atomic<int> ended{0};
    constexpr uint64_t kSeed = 7;
    constexpr int kRequests = 200;
    std::vector<uint64_t> ids;
    for (int i = 0; i < kRequests; ++i) {
      const uint64_t dice = base::random_bits(kSeed, static_cast<uint64_t>(i));
      net::HttpCallEvents events;
      events.on_done = [&](Result<void>) { ++ended; };
      const char* words = dice % 3 == 0 ? "hi" : "endless";
      const std::string target = dice % 11 == 0 ? "/v1/nowhere" : "/v1/chat/completions";
      ids.push_back(client.start(
          admin.fixture.call("POST", target, dice % 13 == 0 ? "{" : body(words, dice % 2 == 0)),
          std::move(events)));
      if (i % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (i > 20) client.cancel(ids[dice % static_cast<uint64_t>(i)]);
      if (i % 20 == 0) seen_dirty = seen_dirty || admin.ledger().boolean("clean") == false;
    }
    for (const uint64_t id : ids) client.cancel(id);
    for (int i = 0; i < 2000 && ended < kRequests; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(ended, kRequests);
  }
  EXPECT_TRUE(seen_dirty);

  Json after = admin.clean_ledger();
  // The sockets of the clients that left are closed a moment later.
  for (int i = 0; i < 2000 && at(after, {"process", "descriptors"}).dump() !=
                                  at(before, {"process", "descriptors"}).dump();
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    after = admin.ledger();
  }
  EXPECT_EQ(after.boolean("clean"), true);
  EXPECT_EQ(at(after, {"process", "descriptors"}).dump(),
            at(before, {"process", "descriptors"}).dump());
  EXPECT_EQ(at(after, {"process", "threads"}).dump(), at(before, {"process", "threads"}).dump());
  for (const std::string_view group : {"full", "window", "host_full", "host_window"}) {
    EXPECT_EQ(number(after, {"engine", "blocks", group, "held"}), 0);
    EXPECT_EQ(number(after, {"engine", "blocks", group, "free"}) +
                  number(after, {"engine", "blocks", group, "kept"}),
              number(after, {"engine", "blocks", group, "total"}));
  }
  EXPECT_EQ(number(after, {"engine", "slots_free"}), number(before, {"engine", "slots_free"}));
  EXPECT_EQ(number(after, {"server", "generations"}), 0);
  const Json& requests = at(after, {"server", "requests"});
  EXPECT_EQ(requests.integer("open"), 0);
  for (const char* kind : {"ok", "client_errors", "cancelled"}) {
    EXPECT_GT(requests.integer(kind), 0) << kind;
  }
  EXPECT_EQ(*requests.integer("received"),
            *requests.integer("ok") + *requests.integer("client_errors") +
                *requests.integer("server_errors") + *requests.integer("cancelled"));
}

// Name and labels → value. Every line must be one that Prometheus reads.
std::map<std::string, double> samples(const std::string& page) {
  std::map<std::string, double> found;
  std::string family;
  size_t begin = 0;
  while (begin < page.size()) {
    const size_t end = page.find('\n', begin);
    const std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      continue;
    }
    if (line.starts_with('#')) continue;
    const size_t blank = line.rfind(' ');
    EXPECT_TRUE(line.starts_with(family)) << line;
    EXPECT_TRUE(found.emplace(line.substr(0, blank), std::stod(line.substr(blank))).second) << line;
  }
  return found;
}

TEST(AdminServer, MetricsUnderVllmsNames) {
  AdminFixture admin({});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(admin.fixture.post("/v1/chat/completions", body("hi", i == 0)).status, 200);
  }
  EXPECT_EQ(admin.fixture.get("/v1/nowhere").status, 404);
  const net::HttpResponse page = admin.ask("GET", "/metrics");
  EXPECT_EQ(page.headers.get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  std::map<std::string, double> found = samples(page.body);
  const std::string labels = R"({model_name="tiny",engine="0"})";
  const auto vllm = [&](const std::string& name) {
    EXPECT_TRUE(found.count("vllm:" + name + labels)) << name;
    return found["vllm:" + name + labels];
  };
  EXPECT_EQ(vllm("num_requests_running"), 0);
  EXPECT_EQ(vllm("num_requests_waiting"), 0);
  EXPECT_EQ(vllm("kv_cache_usage_perc"), 0);
  EXPECT_EQ(vllm("num_preemptions_total"), 0);
  EXPECT_EQ(vllm("kv_block_lifetime_seconds_count"), 0);  // nothing had to make room
  EXPECT_EQ(vllm("kv_block_idle_before_evict_seconds_count"), 0);
  EXPECT_GT(vllm("kv_block_reuse_gap_seconds_count"), 0);
  EXPECT_EQ(vllm("time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(vllm("e2e_request_latency_seconds_count"), 3);
  EXPECT_EQ(vllm("request_generation_tokens_count"), 3);
  EXPECT_EQ(vllm("inter_token_latency_seconds_count"), vllm("generation_tokens_total") - 3);
  EXPECT_EQ(vllm("prefix_cache_queries_total"), vllm("prompt_tokens_total"));
  EXPECT_GT(vllm("prefix_cache_hits_total"), vllm("prompt_tokens_total") / 3);
  EXPECT_LT(vllm("prefix_cache_hits_total"), vllm("prompt_tokens_total"));
  EXPECT_EQ(
      found[R"(vllm:request_success_total{model_name="tiny",engine="0",finished_reason="stop"})"],
      3);
  EXPECT_EQ(
      found[R"(http_requests_total{handler="/v1/chat/completions",method="POST",status="200"})"],
      3);
  EXPECT_EQ(found[R"(http_requests_total{handler="none",method="none",status="404"})"], 1);
  EXPECT_GT(found["process_open_fds"], 0);
  EXPECT_EQ(found["pelton_ready"], 1);
  // The same at the public listener, which counts this very request as open.
  EXPECT_EQ(samples(admin.fixture.get("/metrics").body)["pelton_http_requests_open"], 1);
}

constexpr std::string_view kVllmLabels = R"({model_name="tiny",engine="0"})";

// As for vLLM each answer is a request of the engine's.
TEST(AdminServer, SeveralAnswersCountAsSoManyPrompts) {
  AdminFixture admin({});
  const std::string two = R"({"messages":[{"role":"user","content":"hi"}],"n":2})";
  const Json answer = parsed(admin.fixture.post("/v1/chat/completions", two).body);
  const double twice = 2 * static_cast<double>(number(answer, {"usage", "prompt_tokens"}));
  std::map<std::string, double> found = samples(admin.ask("GET", "/metrics").body);
  for (const char* name :
       {"prompt_tokens_total", "request_prompt_tokens_sum", "prefix_cache_queries_total"}) {
    EXPECT_EQ(found["vllm:" + std::string(name) + std::string(kVllmLabels)], twice) << name;
  }
}

// By its client's request, and not by a stop string.
TEST(AdminServer, WhatIsCancelledIsNoSuccess) {
  AdminFixture admin({});
  const auto ended = [&](const std::string& how) {
    return samples(
        admin.ask("GET", "/metrics")
            .body)[R"(vllm:request_success_total{model_name="tiny",engine="0",finished_reason=")" +
                   how + "\"}"];
  };
  const Json response =
      parsed(admin.fixture.post("/v1/responses", R"({"input":"endless","background":true})").body);
  const std::string path = "/v1/responses/" + *response.string("id");
  EXPECT_EQ(admin.fixture.post(path + "/cancel", "").status, 200);
  admin.clean_ledger();
  EXPECT_EQ(ended("abort"), 1);
  EXPECT_EQ(ended("stop"), 0);
  const std::string stopped =
      R"({"messages":[{"role":"user","content":"endless"}],"stop":"and on"})";
  EXPECT_EQ(admin.fixture.post("/v1/chat/completions", stopped).status, 200);
  EXPECT_EQ(ended("abort"), 1);
  EXPECT_EQ(ended("stop"), 1);
}

// By route and method: never by what a client calls for.
TEST(AdminServer, TellsHowLongAndHowLargeRequestsWere) {
  AdminFixture admin({});
  double asked = 0;
  double answered = 0;
  for (int i = 0; i < 3; ++i) {
    const std::string words = body("hi", i == 0);
    asked += static_cast<double>(words.size());
    const net::HttpResponse response = admin.fixture.post("/v1/chat/completions", words);
    answered += static_cast<double>(response.body.size());
  }
  EXPECT_EQ(admin.fixture.get("/v1/nowhere").status, 404);
  EXPECT_EQ(admin.fixture.get("/v1/models/tiny").status, 200);
  const std::string page = admin.ask("GET", "/metrics").body;
  std::map<std::string, double> found = samples(page);
  const std::string chat = R"({handler="/v1/chat/completions",method="POST"})";
  EXPECT_EQ(found["http_request_duration_seconds_count" + chat], 3);
  EXPECT_GT(found["http_request_duration_seconds_sum" + chat], 0);
  EXPECT_EQ(found["http_request_size_bytes_count" + chat], 3);
  EXPECT_EQ(found["http_request_size_bytes_sum" + chat], asked);
  EXPECT_EQ(found["http_response_size_bytes_count" + chat], 3);
  EXPECT_EQ(found["http_response_size_bytes_sum" + chat], answered);
  EXPECT_EQ(found[R"(http_request_duration_seconds_count{handler="none",method="none"})"], 1);
  EXPECT_EQ(found[R"(http_request_duration_seconds_count{handler="/v1/models/*",method="GET"})"],
            1);
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("nowhere")));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("models/tiny")));
}

TEST(AdminServer, EachWaitingRequestCountsOnce) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.sequences_max = 1;
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::nullopt;
    };
  };
  AdminFixture admin(std::move(options));
  net::HttpClient client{{}};
  std::vector<net::HttpClient::CallId> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(client.start(
        admin.fixture.call("POST", "/v1/chat/completions", body("endless", true)), {}));
  }
  const auto metric = [&](const std::string& name) {
    return samples(admin.ask("GET", "/metrics").body)[name + R"({model_name="tiny",engine="0"})"];
  };
  for (int i = 0; i < 2000 && metric("vllm:num_requests_waiting") < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(metric("vllm:num_requests_waiting"), 2);
  EXPECT_EQ(metric("vllm:num_requests_running"), 1);
  for (const net::HttpClient::CallId call : calls) client.cancel(call);
  EXPECT_EQ(admin.clean_ledger().boolean("clean"), true);
}

TEST(AdminServer, MetricsBehindTheKey) {
  ServerFixture::Options options;
  options.server.keys.add("secret");
  AdminFixture admin(std::move(options));
  EXPECT_EQ(admin.fixture.get("/metrics").status, 401);
  EXPECT_EQ(admin.ask("GET", "/metrics").status, 200);
}

TEST(AdminServer, EachListenerHasItsOwnRoutes) {
  AdminFixture admin({});
  EXPECT_EQ(admin.fixture.get("/debug/ledger").status, 404);
  for (const char* path :
       {"/v1/chat/completions", "/v1/models", "/debug", "/debug/ledger/", "/x"}) {
    EXPECT_EQ(admin.ask("GET", path).status, 404) << path;
  }
  const net::HttpResponse wrong = admin.ask("POST", "/debug/ledger");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.get("Allow"), "GET, HEAD");
  EXPECT_EQ(admin.ask("HEAD", "/debug/ledger").body, "");
}

// What a load comes to, in words and numbers that a program can act on.
TEST(AdminServer, ALoadThatFailsSaysHow) {
  AdminFixture admin({});
  const auto load = [&](const std::string& body) {
    return admin.ask("POST", "/admin/models", body);
  };
  const std::tuple<const char*, int, const char*> cases[] = {
      {"/not_found", 404, "model_not_found"}, {"/damaged", 400, "bad_checkpoint"},
      {"/large", 507, "insufficient_memory"}, {"/unreadable", 400, "bad_file"},
      {"/unknown_kind", 400, "unsupported"},
  };
  for (const auto& [model, status, code] : cases) {
    const net::HttpResponse answer = load(std::string(R"({"model":")") + model + "\"}");
    EXPECT_EQ(answer.status, status) << answer.body;
    const Json body = parsed(answer.body);
    EXPECT_EQ(at(body, {"error"}).string("code"), code);
    EXPECT_EQ(at(body, {"error"}).string("message"), "it is as it is");
    const Json entry = parsed(admin.ask("GET", "/admin/models/guest").body);
    EXPECT_EQ(entry.string("state"), "failed");
    EXPECT_EQ(entry.string("error"), "it is as it is");
  }
  const Json report = parsed(admin.ask("GET", "/admin/models").body);
  EXPECT_EQ(number(report, {"memory", "budget_bytes"}), 100);
  EXPECT_EQ(number(report, {"memory", "left_bytes"}), 40);
  const Json::Array& models = at(report, {"models"}).as_array();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].dump(),
            R"({"name":"tiny","aliases":["org/alias"],"default":true,"state":"serving",)"
            R"("memory_bytes":60,"wakes":0,"cold_start_seconds":null,"error":null})");
  EXPECT_EQ(admin.ask("DELETE", "/admin/models/guest").body,
            R"({"name":"guest","state":"unloaded"})");
  EXPECT_EQ(admin.ask("GET", "/admin/models/guest").status, 404);
  EXPECT_EQ(admin.ask("DELETE", "/admin/models/guest").status, 404);
}

// A file that another field names is not the model that is asked for.
TEST(AdminServer, ALoadThatFailsNamesTheField) {
  AdminFixture admin({});
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/m?chat_template=/nope", "chat_template", "bad_file"},
      {"/m?executor=/damaged", "executor", "bad_file"},
      {"/m?tokenizer=/damaged", "tokenizer", "bad_checkpoint"}};
  for (const auto& [model, field, code] : cases) {
    const net::HttpResponse answer =
        admin.ask("POST", "/admin/models", std::string(R"({"model":")") + model + "\"}");
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json body = parsed(answer.body);
    EXPECT_EQ(at(body, {"error"}).string("param"), field);
    EXPECT_EQ(at(body, {"error"}).string("code"), code);
  }
}

// GET and DELETE say the same.
TEST(AdminServer, AnAliasIsNoModelsOwnName) {
  AdminFixture admin({});
  const net::HttpResponse looked = admin.ask("GET", "/admin/models/org/alias");
  EXPECT_EQ(looked.status, 400) << looked.body;
  EXPECT_THAT(looked.body, testing::HasSubstr("'org/alias' is an alias of 'tiny': say that name"));
  EXPECT_EQ(admin.ask("DELETE", "/admin/models/org/alias").body, looked.body);
  EXPECT_EQ(admin.ask("GET", "/admin/models/nobody").status, 404);
}

TEST(AdminServer, WhatIsNoOrderIsRefused) {
  AdminFixture admin({});
  const auto status = [&](const std::string& method, const std::string& path,
                          const std::string& body = {},
                          const std::string& type = "application/json") {
    return admin.ask(method, path, body, type).status;
  };
  const std::string good = R"({"model":"/large"})";
  EXPECT_EQ(status("POST", "/admin/models", good, "text/plain"), 415) << "as a page could send";
  EXPECT_EQ(status("POST", "/admin/models", good, "application/x-www-form-urlencoded"), 415);
  EXPECT_EQ(status("POST", "/admin/models"), 415);
  EXPECT_EQ(status("POST", "/admin/models", "{"), 400);
  EXPECT_EQ(status("POST", "/admin/models", "{}"), 400);
  EXPECT_EQ(status("POST", "/admin/models", R"({"model":"/nothing"})"), 400);
  EXPECT_EQ(status("POST", "/admin/models", R"({"model":"/large","name":"tiny"})"), 409);
  EXPECT_EQ(status("POST", "/admin/models", R"({"model":"/large","aliases":["org/alias"]})"), 409);
  EXPECT_EQ(status("DELETE", "/admin/models"), 405);
  EXPECT_EQ(status("PUT", "/admin/models/tiny", good), 405);
  EXPECT_EQ(status("DELETE", "/admin/models/org/alias"), 400) << "an alias";
  EXPECT_EQ(status("DELETE", "/admin/models/tiny?wait=perhaps"), 400);
  EXPECT_EQ(status("DELETE", "/admin/models/tiny?drain_seconds=1.5"), 400);
  for (const char* path :
       {"/admin/models/tiny?drain=0", "/admin/models/tiny?wait=true&wait=false"}) {
    const net::HttpResponse refused = admin.ask("DELETE", path);
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_THAT(refused.body, testing::HasSubstr(path[19] == 'd' ? "'drain'" : "'wait'"));
  }
  EXPECT_THAT(admin.ask("POST", "/admin/models?wait=false", "{}").body,
              testing::HasSubstr("no query parameter 'wait'"));
  EXPECT_EQ(status("DELETE", "/admin/models/tiny"), 400) << "which the loader has not loaded";
  EXPECT_EQ(status("POST", "/admin/models", R"({"model":"/large","wait":false})"), 202);
  admin.fixture.server().announce_drain();
  EXPECT_EQ(status("POST", "/admin/models", good), 503);
  EXPECT_THAT(admin.ask("GET", "/admin/models/tiny").body, testing::HasSubstr("\"draining\""));
}

TEST(AdminServer, HostileRequestsGetAnAnswerAndLeaveNothing) {
  AdminFixture admin({});
  const std::pair<std::string, const char*> cases[] = {
      {"GET /debug/../debug/ledger HTTP/1.1\r\nHost: x\r\n\r\n", " 400 "},
      {"GET /debug/%2e%2e/metrics HTTP/1.1\r\nHost: x\r\n\r\n", " 400 "},
      {"GET /debug/ledger%00 HTTP/1.1\r\nHost: x\r\n\r\n", " 400 "},
      {"\x16\x03\x01\x02", " 400 "},
      {"GET /metrics HTTP/1.1\r\n\r\n", " 400 "},
      {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1100000\r\n\r\n", " 413 "},
      {"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n", " 431 "},
  };
  for (const auto& [request, status] : cases) {
    net::TestSocket socket(admin.port());
    socket.send(request);
    EXPECT_THAT(socket.read_until("\r\n"), testing::HasSubstr(status)) << request.substr(0, 60);
  }
  EXPECT_EQ(admin.clean_ledger().boolean("clean"), true);
}

}  // namespace
}  // namespace pelton::server
