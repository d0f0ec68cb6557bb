// Responses that go on from others, and what becomes of stored ones.
#include <future>
#include <string>

#include <gtest/gtest.h>

#include "server/response_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"step_ms": 1, "rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello world.<|return|>"},
  {"when": "weather", "then": "<|channel|>analysis<|message|>I need the tool for that.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>"},
  {"when": "sunny", "then": "<|channel|>final<|message|>It is sunny.<|return|>"},
  {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 300}]}
]})";

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","name":"get_weather","parameters":{"type":"object"}}])";

Json create(ServerFixture& fixture, const std::string& members) {
  const net::HttpResponse answer = fixture.post("/v1/responses", "{" + members + "}");
  EXPECT_EQ(answer.status, 200) << answer.body;
  return parsed(answer.body);
}

int64_t cached(const Json& response) {
  return response.find("usage")
      ->find("input_tokens_details")
      ->integer("cached_tokens")
      .value_or(-1);
}

net::HttpResponse send(ServerFixture& fixture, std::string method, const std::string& target,
                       std::string_view key) {
  net::HttpCall call = fixture.call(std::move(method), target, "");
  if (!key.empty()) call.headers.add("Authorization", "Bearer " + std::string(key));
  return fixture.fetch(std::move(call));
}

TEST(StoredResponses, AToolLoopGoesOnWithAllThatWasComputed) {
  ServerFixture::Options options;
  options.server.sampled_turn_tokens_max = 0;  // so it is the store that knows the turn
  ServerFixture fixture(kScript, std::move(options));
  const std::string tools(kTools);
  const Json first = create(fixture, R"("input":"weather?",)" + tools);
  const Json& call = first.find("output")->as_array().back();
  ASSERT_EQ(call.string("type"), "function_call");
  const std::string result = R"("input":[{"type":"function_call_output","call_id":")" +
                             *call.string("call_id") + R"(","output":"sunny"}],)";
  const Json second =
      create(fixture, result + R"("previous_response_id":")" + *first.string("id") + "\"," + tools);
  EXPECT_EQ(second.string("previous_response_id"), first.string("id"));
  EXPECT_EQ(text_of_response(second).items.at(0).text, "It is sunny.");
  const int64_t known = *first.find("usage")->integer("total_tokens");
  const int block = fixture.engine().capacity().block_tokens;
  EXPECT_GE(cached(second), (known - 1) / block * block) << "open reasoning and call, as sampled";

  // A third turn; and a branch from the first.
  const Json third = create(fixture, R"("input":"thanks","previous_response_id":")" +
                                         *second.string("id") + "\"," + tools);
  EXPECT_EQ(third.string("status"), "completed");
  EXPECT_GT(*third.find("usage")->integer("input_tokens"),
            *first.find("usage")->integer("input_tokens"));
  const Json branch =
      create(fixture, result + R"("previous_response_id":")" + *first.string("id") + "\"," + tools);
  EXPECT_EQ(text_of_response(branch), text_of_response(second));
}

TEST(StoredResponses, AreReadListedAndDeleted) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse created =
      fixture.post("/v1/responses", R"({"input":[{"role":"user","content":"one"},
        {"role":"assistant","content":"two"},{"role":"user","content":"three"}]})");
  const std::string id = *parsed(created.body).string("id");
  const std::string target = "/v1/responses/" + id;
  EXPECT_EQ(fixture.get(target).body, created.body);

  const Json items = parsed(fixture.get(target + "/input_items?order=asc&limit=2").body);
  EXPECT_EQ(items.find("data")->as_array().size(), 2u);
  EXPECT_EQ(items.boolean("has_more"), true);
  EXPECT_EQ(items.find("data")->as_array()[1].find("content")->as_array()[0].string("type"),
            "output_text");
  const Json rest =
      parsed(fixture.get(target + "/input_items?order=asc&after=" + *items.string("last_id")).body);
  EXPECT_EQ(rest.find("data")->as_array().size(), 1u);
  EXPECT_EQ(rest.boolean("has_more"), false);
  EXPECT_EQ(fixture.get(target + "/input_items?limit=0").status, 400);
  EXPECT_EQ(fixture.get(target + "/input_items?after=nothing").status, 400);
  EXPECT_EQ(fixture.get(target + "/other").status, 404);

  EXPECT_EQ(send(fixture, "POST", target + "/cancel", "").status, 400) << "it has ended";
  const Json deleted = parsed(send(fixture, "DELETE", target, "").body);
  EXPECT_EQ(deleted.boolean("deleted"), true);
  EXPECT_EQ(fixture.get(target).status, 404);
  EXPECT_EQ(send(fixture, "DELETE", target, "").status, 404);
  EXPECT_EQ(send(fixture, "POST", target + "/cancel", "").status, 404);
}

TEST(StoredResponses, UnknownOnesAreToldApart) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse answer =
      fixture.post("/v1/responses", R"({"input":"x","previous_response_id":"resp_none"})");
  EXPECT_EQ(answer.status, 400);
  const Json error = *parsed(answer.body).find("error");
  EXPECT_EQ(error.string("code"), "previous_response_not_found");
  EXPECT_EQ(error.string("param"), "previous_response_id");
  EXPECT_EQ(fixture.get("/v1/responses/resp_none").status, 404);
  EXPECT_EQ(fixture.get("/v1/responses/resp_none/input_items").status, 404);
  EXPECT_EQ(fixture.post("/v1/responses/x/y/z", "{}").status, 404);
}

// A path below a stored thing's has methods of its own.
TEST(StoredResponses, AMethodThatThePathLacksIsNoUnknownAddress) {
  ServerFixture fixture(kScript, {});
  struct Wrong {
    const char* method;
    const char* path;
    const char* allowed;
  };
  for (const auto& [method, path, allowed] : {
           Wrong{"GET", "/v1/batches/x/cancel", "POST"},
           Wrong{"PUT", "/v1/batches/x/cancel", "POST"},
           Wrong{"POST", "/v1/batches/x", "GET, HEAD"},
           Wrong{"DELETE", "/v1/files/x/content", "GET, HEAD"},
           Wrong{"GET", "/v1/responses/x/cancel", "POST"},
           Wrong{"DELETE", "/v1/responses/x/input_items", "GET, HEAD"},
           Wrong{"POST", "/v1/responses/compact", "GET, HEAD, DELETE"},
           Wrong{"PUT", "/v1/models/org/alias", "GET, HEAD"},
       }) {
    const net::HttpResponse response = send(fixture, method, path, "");
    EXPECT_EQ(response.status, 405) << method << path;
    EXPECT_EQ(response.headers.get("Allow"), allowed) << method << path;
  }
}

TEST(StoredResponses, StoreFalseLeavesNothing) {
  ServerFixture fixture(kScript, {});
  const Json response = create(fixture, R"("input":"hi","store":false)");
  EXPECT_EQ(response.boolean("store"), false);
  EXPECT_EQ(fixture.get("/v1/responses/" + *response.string("id")).status, 404);
  EXPECT_EQ(fixture
                .post("/v1/responses",
                      R"({"input":"x","previous_response_id":")" + *response.string("id") + "\"}")
                .status,
            400);
}

TEST(StoredResponses, OnlyTheKeyThatMadeItSeesIt) {
  ServerFixture::Options options;
  ASSERT_TRUE(options.server.keys.add_file("ann-key ann\nbob-key bob\n", "keys").ok());
  ServerFixture fixture(kScript, std::move(options));
  const auto post = [&](std::string_view key, std::string body) {
    net::HttpCall call = fixture.call("POST", "/v1/responses", std::move(body));
    call.headers.add("Authorization", "Bearer " + std::string(key));
    return fixture.fetch(std::move(call));
  };
  const std::string id = *parsed(post("ann-key", R"({"input":"hi"})").body).string("id");
  const std::string target = "/v1/responses/" + id;
  EXPECT_EQ(send(fixture, "GET", target, "ann-key").status, 200);
  for (const char* method : {"GET", "DELETE"}) {
    EXPECT_EQ(send(fixture, method, target, "bob-key").status, 404);
    EXPECT_EQ(send(fixture, method, target, "").status, 401);
  }
  EXPECT_EQ(send(fixture, "GET", target + "/input_items", "bob-key").status, 404);
  EXPECT_EQ(send(fixture, "POST", target + "/cancel", "bob-key").status, 404);
  const std::string follow = R"({"input":"x","previous_response_id":")" + id + "\"}";
  EXPECT_EQ(post("bob-key", follow).status, 400);
  EXPECT_EQ(post("ann-key", follow).status, 200);
}

TEST(StoredResponses, ARunningOneIsCancelled) {
  ServerFixture fixture(kScript, {});
  std::string stream;
  std::promise<std::string> id;
  bool known = false;
  std::promise<void> done;
  net::HttpClient client({});
  client.start(fixture.call("POST", "/v1/responses", R"({"input":"endless","stream":true})"),
               {.on_body =
                    [&](std::string_view bytes) {
                      stream += bytes;
                      const size_t at = stream.find("\"id\":\"resp_");
                      if (known || at == std::string::npos || stream.size() < at + 35) return;
                      known = true;
                      id.set_value(stream.substr(at + 6, 29));
                    },
                .on_done = [&](const Result<void>&) { done.set_value(); }});
  const std::string target = "/v1/responses/" + id.get_future().get();
  const Json cancelled = parsed(fixture.post(target + "/cancel", "").body);
  EXPECT_EQ(cancelled.string("status"), "cancelled");
  done.get_future().get();
  const ResponseText text = text_of_stream(stream);
  EXPECT_EQ(text.status, "cancelled");
  EXPECT_EQ(text_of_response(cancelled), text);
  EXPECT_LT(text.output_tokens, 3000);
  // Once more: the same answer.
  EXPECT_EQ(parsed(fixture.post(target + "/cancel", "").body).string("status"), "cancelled");
  EXPECT_EQ(parsed(fixture.get(target).body).string("status"), "cancelled");
}

TEST(StoredResponses, InputTokensAreCounted) {
  ServerFixture fixture(kScript, {});
  const Json response = create(fixture, R"("input":"hi","instructions":"Be kind.")");
  const Json counted = parsed(
      fixture.post("/v1/responses/input_tokens", R"({"input":"hi","instructions":"Be kind."})")
          .body);
  EXPECT_EQ(counted.string("object"), "response.input_tokens");
  EXPECT_EQ(counted.integer("input_tokens"), response.find("usage")->integer("input_tokens"));
}

}  // namespace
}  // namespace pelton::server
