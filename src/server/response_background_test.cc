// "background": responses that are made though nobody waits; and what else of /v1/responses reaches
// beyond one request: items named by their ids, and inputs cut to fit.
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/background_response.h"
#include "server/catalogue_rows.h"
#include "server/response_stream_text.h"
#include "server/server_fixture.h"
#include "store/memory_response_store.h"

namespace pelton::server {
namespace {

constexpr char kPath[] = "/v1/responses";
constexpr std::string_view kScript = R"({"step_ms": 1, "rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello world.<|return|>"},
  {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 300}]},
  {"when": "weather", "then": "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"city\":\"Bern\"}<|call|>"}
]})";

Json get(ServerFixture& fixture, const std::string& id) {
  const net::HttpResponse response = fixture.get(std::string(kPath) + "/" + id);
  EXPECT_EQ(response.status, 200) << response.body;
  return parsed(response.body);
}

Json wait_until_ended(ServerFixture& fixture, const std::string& id) {
  for (int i = 0; i < 2000; ++i) {
    Json body = get(fixture, id);
    if (body.string("status") != "in_progress") return body;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "it never ends";
  return {};
}

std::string begin(ServerFixture& fixture, const std::string& members) {
  const net::HttpResponse response = fixture.post(kPath, R"({"background":true,)" + members + "}");
  EXPECT_EQ(response.status, 200) << response.body;
  const Json body = parsed(response.body);
  EXPECT_EQ(body.string("status"), "in_progress");
  EXPECT_EQ(body.find("background")->dump(), "true");
  EXPECT_TRUE(body.find("output")->as_array().empty());
  return body.string("id").value_or("");
}

TEST(ResponseBackground, is_answered_at_once_and_found_later) {
  ServerFixture fixture(kScript, {});
  const std::string id = begin(fixture, R"("input":"hi")");
  const Json ended = wait_until_ended(fixture, id);
  EXPECT_EQ(ended.string("status"), "completed");
  EXPECT_EQ(ended.string("id"), id);
  const ResponseText text = text_of_response(ended);
  ASSERT_EQ(text.items.size(), 2u);
  EXPECT_EQ(text.items[1].text, "Hello world.");
  // It is as good as any to go on from, and to delete.
  const net::HttpResponse next =
      fixture.post(kPath, R"({"input":"more","previous_response_id":")" + id + "\"}");
  EXPECT_EQ(next.status, 200) << next.body;
  EXPECT_EQ(fixture.fetch(fixture.call("DELETE", std::string(kPath) + "/" + id, "")).status, 200);
  EXPECT_EQ(fixture.get(std::string(kPath) + "/" + id).status, 404);
  for (int i = 0; i < 400 && !fixture.engine().ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(fixture.engine().ledger().clean());
}

TEST(ResponseBackground, is_not_gone_on_from_while_it_is_made) {
  ServerFixture fixture(kScript, {});
  const std::string id = begin(fixture, R"("input":"endless")");
  const net::HttpResponse next =
      fixture.post(kPath, R"({"input":"more","previous_response_id":")" + id + "\"}");
  EXPECT_EQ(next.status, 400);
  const Json body = parsed(next.body);
  EXPECT_EQ(body.find("error")->string("code"), "previous_response_in_progress");
  EXPECT_THAT(body.find("error")->string("message").value(),
              testing::HasSubstr("still being made"));
  EXPECT_EQ(fixture.post(std::string(kPath) + "/" + id + "/cancel", "").status, 200);
}

TEST(ResponseBackground, can_be_cancelled_while_it_is_made_and_not_be_deleted) {
  ServerFixture fixture(kScript, {});
  const std::string id = begin(fixture, R"("input":"endless")");
  EXPECT_EQ(get(fixture, id).string("status"), "in_progress");
  EXPECT_EQ(fixture.fetch(fixture.call("DELETE", std::string(kPath) + "/" + id, "")).status, 400);
  const net::HttpResponse cancelled = fixture.post(std::string(kPath) + "/" + id + "/cancel", "");
  EXPECT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(parsed(cancelled.body).string("status"), "cancelled");
  EXPECT_EQ(wait_until_ended(fixture, id).string("status"), "cancelled");
  EXPECT_EQ(fixture.server().services().statistics.counts().open(), 0);
}

// The client leaves amid the stream; another follows it from where that one was.
TEST(ResponseBackground, its_stream_is_followed_later_from_any_event) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse streamed = fixture.post(
      kPath, R"({"input":"endless","background":true,"stream":true,"max_output_tokens":200})");
  ASSERT_EQ(streamed.status, 200);
  const std::vector<std::string> all = events_of(streamed.body);
  const Json first = parsed(all.front());
  EXPECT_EQ(first.string("type"), "response.created");
  const std::string id = first.find("response")->string("id").value_or("");
  EXPECT_EQ(parsed(all.back()).string("type"), "response.incomplete");
  EXPECT_EQ(text_of_stream(streamed.body), text_of_response(get(fixture, id)));
  for (const size_t after : {size_t{0}, size_t{7}, all.size() - 2}) {
    const net::HttpResponse rest = fixture.get(
        std::string(kPath) + "/" + id + "?stream=true&starting_after=" + std::to_string(after));
    ASSERT_EQ(rest.status, 200) << rest.body;
    const std::vector<std::string> events = events_of(rest.body);
    ASSERT_EQ(events.size(), all.size() - after - 1);
    EXPECT_EQ(events.front(), all[after + 1]);
    EXPECT_EQ(events.back(), all.back());
  }
  EXPECT_EQ(events_of(fixture.get(std::string(kPath) + "/" + id + "?stream=true").body), all);
  for (const char* bad : {"x", "-2", "1.5", "", "9223372036854775807"}) {
    const net::HttpResponse refused =
        fixture.get(std::string(kPath) + "/" + id + "?stream=true&starting_after=" + bad);
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_EQ(parsed(refused.body).find("error")->string("param"), "starting_after");
  }
}

TEST(ResponseBackground, goes_on_when_its_client_leaves) {
  ServerFixture fixture(kScript, {});
  std::string id;
  {
    net::HttpClient client({});
    std::promise<std::string> begun;
    std::string body;
    bool told = false;
    client.start(fixture.call("POST", kPath,
                              R"({"input":"endless","background":true,"stream":true,
                                "max_output_tokens":150})"),
                 {.on_body =
                      [&](std::string_view bytes) {
                        body += bytes;
                        if (told || body.find("output_text.delta") == std::string::npos) return;
                        told = true;
                        begun.set_value(body);
                      },
                  .on_done = [](const Result<void>&) {}});
    const std::string seen = begun.get_future().get();
    id = parsed(events_of(seen.substr(0, seen.find("\n\n") + 2)).front())
             .find("response")
             ->string("id")
             .value_or("");
  }
  const Json ended = wait_until_ended(fixture, id);
  EXPECT_EQ(ended.string("status"), "incomplete");
  EXPECT_EQ(ended.find("usage")->integer("output_tokens"), 150);
}

TEST(ResponseBackground, that_it_failed_is_told_found_and_deleted) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.fail_step = [](const engine::StepPlan&) -> std::optional<Error> {
      return Error{ErrorCode::kInternal, "test", ""};
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  for (const bool stream : {false, true}) {
    std::string id;
    if (stream) {
      const net::HttpResponse streamed =
          fixture.post(kPath, R"({"input":"hi","background":true,"stream":true})");
      ASSERT_EQ(streamed.status, 200);
      const std::vector<std::string> events = events_of(streamed.body);
      ASSERT_EQ(events.size(), 3u);
      EXPECT_EQ(parsed(events[0]).string("type"), "response.created");
      EXPECT_EQ(parsed(events[2]).string("type"), "response.failed");
      EXPECT_EQ(parsed(events[2]).integer("sequence_number"), 2);
      id = parsed(events[0]).find("response")->string("id").value_or("");
    } else {
      id = begin(fixture, R"("input":"hi")");
    }
    const Json ended = wait_until_ended(fixture, id);
    EXPECT_EQ(ended.string("status"), "failed");
    EXPECT_EQ(ended.find("error")->string("code"), "server_error");
    const net::HttpResponse late = fixture.post(std::string(kPath) + "/" + id + "/cancel", "");
    EXPECT_EQ(late.status, 400) << "there is nothing to cancel, and that is said";
    EXPECT_EQ(fixture.fetch(fixture.call("DELETE", std::string(kPath) + "/" + id, "")).status, 200);
    EXPECT_EQ(fixture.get(std::string(kPath) + "/" + id).status, 404);
  }
}

TEST(ResponseBackground, is_its_owners_alone) {
  ServerFixture::Options options;
  ASSERT_TRUE(options.server.keys.add_file("one tenant1\ntwo tenant2\n", "keys").ok());
  ServerFixture fixture(kScript, std::move(options));
  const auto ask = [&](const char* key, const char* method, const std::string& target,
                       const std::string& body) {
    net::HttpCall call = fixture.call(method, std::string(kPath) + target, body);
    call.headers.add("x-api-key", key);
    return fixture.fetch(std::move(call));
  };
  // While it is made, and after.
  const std::string id =
      parsed(ask("one", "POST", "", R"({"input":"endless","background":true})").body)
          .string("id")
          .value_or("");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ask("two", "GET", "/" + id, "").status, 404);
    EXPECT_EQ(ask("two", "GET", "/" + id + "?stream=true", "").status, 404);
    EXPECT_EQ(ask("two", "POST", "/" + id + "/cancel", "").status, 404);
    EXPECT_EQ(ask("two", "DELETE", "/" + id, "").status, 404);
    EXPECT_EQ(ask("one", "GET", "/" + id, "").status, 200);
    EXPECT_EQ(ask("one", "POST", "/" + id + "/cancel", "").status, 200) << "again: it is cancelled";
  }
  EXPECT_EQ(ask("one", "DELETE", "/" + id, "").status, 200);
}

// Whatever the text looks like: it is inside of an event, not the beginning of one.
TEST(ResponseBackground, a_text_that_looks_like_events_ends_as_any_other) {
  ServerFixture fixture(
      R"({"rules": [{"when": "", "then": "<|channel|>final<|message|>event: x\ndata: {}\n\n: data: y<|return|>"}]})",
      {});
  const net::HttpResponse streamed =
      fixture.post(kPath, R"({"input":"hi","background":true,"stream":true})");
  const std::string id =
      parsed(events_of(streamed.body).front()).find("response")->string("id").value_or("");
  const Json ended = wait_until_ended(fixture, id);
  EXPECT_EQ(ended.string("status"), "completed");
  EXPECT_EQ(text_of_response(ended).items.at(0).text, "event: x\ndata: {}\n\n: data: y");
  EXPECT_EQ(events_of(fixture.get(std::string(kPath) + "/" + id + "?stream=true").body),
            events_of(streamed.body));
}

// Its client's patience is about the answer that it gets at once.
TEST(ResponseBackground, takes_longer_than_its_client_waits) {
  ServerFixture fixture(kScript, {});
  for (const char* header : {"x-stainless-timeout", "x-stainless-read-timeout"}) {
    net::HttpCall call = fixture.call(
        "POST", kPath, R"({"input":"endless","background":true,"max_output_tokens":300})");
    call.headers.add(header, "0.05");
    const std::string id = parsed(fixture.fetch(std::move(call)).body).string("id").value_or("");
    const Json ended = wait_until_ended(fixture, id);
    EXPECT_EQ(ended.string("status"), "incomplete");
    EXPECT_EQ(ended.find("usage")->integer("output_tokens"), 300);
  }
}

TEST(ResponseBackground, is_stored_when_the_server_has_drained) {
  const base::SystemClock clock;
  store::MemoryResponseStore store({}, clock);
  std::string id;
  {
    ServerFixture::Options options;
    options.server.response_store = &store;
    ServerFixture fixture(kScript, std::move(options));
    id = begin(fixture, R"("input":"endless","max_output_tokens":120)");
    fixture.server().drain();
    fixture.engine().drain(10'000);
    fixture.http().stop(std::chrono::milliseconds(0));
  }
  const Result<store::StoredResponse> stored = store.find({.owner = "", .id = id});
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(parsed(stored->body).string("status"), "incomplete");
}

// A connection that takes what it is given and hears nothing: its reader sleeps.
class SleepingReader final : public net::Exchange {
 public:
  void send(net::HttpResponse response) override { status = response.status; }
  void start_stream(int begun, net::HttpHeaders) override { status = begun; }
  void write(std::string_view bytes) override { written += bytes; }
  void finish() override {
    finished = true;
    closed_ = nullptr;
  }
  size_t queued_bytes() const override { return asleep ? size_t{1} << 30 : 0; }
  void on_drained(std::function<void()> drained) override { wake = std::move(drained); }
  void on_closed(std::function<void()> closed) override { closed_ = std::move(closed); }
  bool closed() const override { return false; }
  void post(std::function<void()> work) override { work(); }
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}

  int status = 0;
  std::string written;
  bool asleep = false;
  bool finished = false;
  std::function<void()> wake;

 private:
  std::function<void()> closed_;  // keeps whoever writes here
};

TEST(ResponseBackground, who_reads_too_slowly_is_told_what_is_lost) {
  const auto reader = std::make_shared<SleepingReader>();
  const auto response = std::make_shared<BackgroundResponse>(
      BackgroundResponse::Options{.id = "resp_1",
                                  .owner = "",
                                  .body = "{}",
                                  .streamed = true,
                                  .connection = std::make_shared<SleepingReader>(),
                                  .on_closed = {}});
  const std::string megabyte(1 << 20, 'x');
  const auto event = [&](int number) {
    return "data: {\"n\":" + std::to_string(number) + ",\"x\":\"" + megabyte + "\"}\n\n";
  };
  response->write(event(0));
  Call call;
  call.exchange = reader;
  BackgroundResponse::follow(response, std::move(call), -1);
  EXPECT_EQ(events_of(reader->written).size(), 1u);
  reader->asleep = true;
  for (int i = 1; i < 10; ++i) response->write(event(i));
  EXPECT_LE(response->bytes(), BackgroundResponse::kEventBytesMax + megabyte.size());
  response->finish();
  reader->written.clear();
  reader->asleep = false;
  reader->wake();
  const std::vector<std::string> events = events_of(reader->written);
  ASSERT_EQ(events.size(), 1u) << "not the later ones as if nothing were missing";
  EXPECT_EQ(parsed(events[0]).string("type"), "error");
  EXPECT_EQ(parsed(events[0]).string("code"), "events_lost");
  EXPECT_EQ(parsed(events[0]).integer("sequence_number"), 1);
  EXPECT_TRUE(reader->finished);
  // From what is kept it can be followed still.
  const auto other = std::make_shared<SleepingReader>();
  Call again;
  again.exchange = other;
  BackgroundResponse::follow(response, std::move(again), 8);
  EXPECT_EQ(events_of(other->written).size(), 1u);
  EXPECT_TRUE(other->finished);
}

// The client of a stream leaves while another waits for the stream's end.
TEST(RunningResponse, who_cancels_what_is_left_by_its_client_is_answered) {
  ServerFixture fixture(R"({"step_ms": 300, "rules": [
      {"when": "", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 300}]}]})",
                        {});
  auto client = std::make_unique<net::HttpClient>(net::HttpClient::Options{});
  std::promise<std::string> begun;
  std::string body;
  bool told = false;
  client->start(fixture.call("POST", kPath, R"({"input":"x","stream":true})"),
                {.on_body =
                     [&](std::string_view bytes) {
                       body += bytes;
                       if (told || body.find("\n\n") == std::string::npos) return;
                       told = true;
                       begun.set_value(body.substr(0, body.find("\n\n") + 2));
                     },
                 .on_done = [](const Result<void>&) {}});
  const std::string id = parsed(events_of(begun.get_future().get()).front())
                             .find("response")
                             ->string("id")
                             .value_or("");
  auto cancelled = std::async(std::launch::async, [&] {
    return fixture.post(std::string(kPath) + "/" + id + "/cancel", "").status;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  client.reset();
  // It had come to its end before the client was seen to leave, or not.
  EXPECT_THAT(cancelled.get(), testing::AnyOf(200, 404));
}

TEST(ResponseBackground, is_refused_where_nobody_could_ask_for_it) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse unstored =
      fixture.post(kPath, R"({"input":"x","background":true,"store":false})");
  EXPECT_EQ(unstored.status, 400);
  EXPECT_EQ(parsed(unstored.body).find("error")->string("param"), "background");
  const std::string id = begin(fixture, R"("input":"hi")");
  wait_until_ended(fixture, id);
  const net::HttpResponse whole = fixture.get(std::string(kPath) + "/" + id + "?stream=true");
  EXPECT_EQ(whole.status, 400) << "it was not created with a stream";
}

TEST(ResponseBackground, what_still_runs_when_the_server_goes_is_let_go) {
  ServerFixture fixture(kScript, {});
  for (int i = 0; i < 5; ++i) begin(fixture, R"("input":"endless")");
}

TEST(ItemReference, stands_for_the_item_itself) {
  ServerFixture fixture(kScript, {});
  const Json called = parsed(
      fixture
          .post(kPath, R"({"input":"weather","tools":[{"type":"function","name":"get_weather"}]})")
          .body);
  const Json& call = called.find("output")->as_array().back();
  ASSERT_EQ(call.string("type"), "function_call");
  const std::string id = call.string("id").value_or("");
  const std::string result = R"({"type":"function_call_output","call_id":")" +
                             call.string("call_id").value_or("") + R"(","output":"sunny"})";
  const auto tokens = [&](const std::string& reference) {
    const net::HttpResponse counted = fixture.post(
        "/v1/responses/input_tokens",
        R"({"input":[{"role":"user","content":"weather"},)" + reference + "," + result + "]}");
    EXPECT_EQ(counted.status, 200) << counted.body;
    return parsed(counted.body).integer("input_tokens");
  };
  EXPECT_EQ(tokens(R"({"type":"item_reference","id":")" + id + "\"}"), tokens(call.dump()));
  const net::HttpResponse answered =
      fixture.post(kPath, R"({"input":[{"role":"user","content":"weather"},)"
                          R"({"type":"item_reference","id":")" +
                              id + "\"}," + result + "]}");
  ASSERT_EQ(answered.status, 200) << answered.body;
  // The items that it names are its own input from then on.
  const std::string next = parsed(answered.body).string("id").value_or("");
  const Json listed =
      parsed(fixture.get(std::string(kPath) + "/" + next + "/input_items?order=asc").body);
  EXPECT_EQ(listed.find("data")->as_array().at(1).string("type"), "function_call");
}

TEST(ItemReference, is_its_owners_alone) {
  ServerFixture::Options options;
  ASSERT_TRUE(options.server.keys.add_file("one tenant1\ntwo tenant2\n", "keys").ok());
  ServerFixture fixture(kScript, std::move(options));
  const auto ask = [&](const char* key, const std::string& body) {
    net::HttpCall call = fixture.call("POST", kPath, body);
    call.headers.add("x-api-key", key);
    return fixture.fetch(std::move(call));
  };
  const Json said = parsed(ask("one", R"({"input":"hi"})").body);
  const std::string id = said.find("output")->as_array().back().string("id").value_or("");
  const std::string body =
      R"({"input":[{"type":"item_reference","id":")" + id + R"("},{"role":"user","content":"x"}]})";
  EXPECT_EQ(ask("one", body).status, 200);
  const net::HttpResponse refused = ask("two", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(parsed(refused.body).find("error")->string("param"), "input[0]");
}

TEST(ItemReference, is_found_by_a_server_that_begins_anew_and_however_many_others_there_are) {
  const base::SystemClock clock;
  store::MemoryResponseStore store({}, clock);
  std::string id;
  for (const bool first : {true, false}) {
    ServerFixture::Options options;
    options.server.response_store = &store;
    ServerFixture fixture(kScript, std::move(options));
    if (first) {
      const Json said = parsed(fixture.post(kPath, R"({"input":"hi"})").body);
      id = said.find("output")->as_array().back().string("id").value_or("");
      for (int i = 0; i < 2; ++i) {
        const net::HttpResponse many =
            fixture.post(kPath, R"({"truncation":"auto","input":[)" +
                                    repeated(40'000, R"({"role":"user","content":"#"})") + "]}");
        EXPECT_EQ(many.status, 200) << many.body.substr(0, 300);
      }
    } else {
      const net::HttpResponse answered =
          fixture.post(kPath, R"({"input":[{"type":"item_reference","id":")" + id +
                                  R"("},{"role":"user","content":"x"}]})");
      EXPECT_EQ(answered.status, 200) << answered.body;
    }
  }
}

// A short name may stand for a large item, many times.
TEST(ItemReference, what_is_named_is_bounded) {
  ServerFixture fixture(kScript, {});
  const auto items_with = [&](const std::string& id, int count) {
    return R"({"truncation":"auto","input":[)" +
           repeated(count, R"({"type":"item_reference","id":")" + id + "\"}") +
           R"(,{"role":"user","content":"x"}]})";
  };
  const auto input_id = [&](const std::string& words) {
    const net::HttpResponse said =
        fixture.post(kPath, R"({"truncation":"auto","input":[{"role":"user","content":")" + words +
                                R"("},{"role":"user","content":"so?"}]})");
    EXPECT_EQ(said.status, 200) << said.body.substr(0, 300);
    const std::string response = parsed(said.body).string("id").value_or("");
    const Json items =
        parsed(fixture.get(std::string(kPath) + "/" + response + "/input_items?order=asc").body);
    return items.find("data")->as_array().front().string("id").value_or("");
  };
  const std::string small = input_id("few");
  EXPECT_EQ(fixture.post(kPath, items_with(small, 100)).status, 200);
  const net::HttpResponse many = fixture.post(kPath, items_with(small, 1025));
  EXPECT_EQ(many.status, 400);
  EXPECT_EQ(parsed(many.body).find("error")->string("param"), "input[1024]");
  const std::string large = input_id(std::string(1 << 20, 'x'));
  const net::HttpResponse much = fixture.post(kPath, items_with(large, 1000));
  EXPECT_EQ(much.status, 400) << "a gigabyte";
  EXPECT_EQ(parsed(much.body).find("error")->string("code"), "invalid_value");
  // No id of ours names anything, however it looks.
  for (const std::string& id :
       {std::string("x"), std::string("msg_"), std::string("msg_o1"), std::string("_i0"),
        std::string("msg_\\u0000i0"), std::string(300, '9'), small + "0", small.substr(4)}) {
    EXPECT_EQ(fixture.post(kPath, items_with(id, 1)).status, 400) << id;
  }
}

std::string turns_of(int count, const std::string& words) {
  std::string items;
  for (int i = 0; i < count; ++i) {
    if (i > 0) items += ',';
    items += R"({"role":"user","content":")" + words + std::to_string(i) +
             R"("},{"role":"assistant","content":"said"})";
  }
  return items;
}

TEST(Truncation, auto_drops_the_oldest_items_and_no_more_than_needed) {
  ServerFixture fixture(kScript, {});
  const std::string words(100, 'x');
  const auto ask = [&](const std::string& input, const std::string& more) {
    return fixture.post(kPath,
                        R"({"instructions":"Be brief.","input":[)" + input + "]" + more + "}");
  };
  const std::string long_input = turns_of(60, words) + R"(,{"role":"user","content":"and now"})";
  EXPECT_EQ(parsed(ask(long_input, "").body).find("error")->string("code"),
            "context_length_exceeded");
  const net::HttpResponse cut = ask(long_input, R"(,"truncation":"auto","max_output_tokens":500)");
  ASSERT_EQ(cut.status, 200) << cut.body.substr(0, 300);
  const int64_t used = parsed(cut.body).find("usage")->integer("input_tokens").value_or(0);
  const int64_t context = fixture.model().context_limit();
  EXPECT_LE(used + 500, context);
  EXPECT_GT(used + 500, context - 150) << "one turn less had been enough";
  // What fits is left alone.
  const std::string short_input = turns_of(3, words) + R"(,{"role":"user","content":"and now"})";
  const auto input_tokens = [&](const std::string& more) {
    return parsed(ask(short_input, more).body).find("usage")->integer("input_tokens");
  };
  EXPECT_EQ(input_tokens(R"(,"truncation":"auto")"), input_tokens(""));
  // The newest item alone is too long.
  const net::HttpResponse refused = ask(
      R"({"role":"user","content":")" + std::string(9000, 'x') + "\"}", R"(,"truncation":"auto")");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(parsed(refused.body).find("error")->string("code"), "context_length_exceeded");
}

TEST(Truncation, auto_drops_what_came_before_and_results_with_their_calls) {
  ServerFixture fixture(kScript, {});
  std::string previous;
  for (int i = 0; i < 14; ++i) {
    const net::HttpResponse next = fixture.post(
        kPath,
        R"({"truncation":"auto","max_output_tokens":300,"input":")" + std::string(400, 'y') + "\"" +
            (previous.empty() ? "" : R"(,"previous_response_id":")" + previous + "\"") + "}");
    ASSERT_EQ(next.status, 200) << i << next.body.substr(0, 300);
    previous = parsed(next.body).string("id").value_or("");
  }
  std::string items;
  for (int i = 0; i < 40; ++i) {
    const std::string id = std::to_string(i);
    items += R"({"type":"function_call","call_id":")" + id +
             R"(","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":")" + id +
             R"(","output":")" + std::string(90, 'z') + "\"},";
  }
  const net::HttpResponse cut = fixture.post(
      kPath, R"({"truncation":"auto","input":[)" + items + R"({"role":"user","content":"so?"}]})");
  EXPECT_EQ(cut.status, 200) << cut.body.substr(0, 300);
}

// What is kept is found from the newest on: of an input far beyond the context little is written
// more than once.
TEST(Truncation, a_long_input_takes_no_longer_than_to_refuse_it) {
  ServerFixture fixture(kScript, {});
  const auto seconds = [&](const std::string& input, const char* how) {
    const auto before = std::chrono::steady_clock::now();
    const net::HttpResponse response =
        fixture.post("/v1/responses/input_tokens",
                     "{\"truncation\":\"" + std::string(how) + "\",\"input\":[" + input + "]}");
    EXPECT_EQ(response.status, 200) << response.body.substr(0, 300);
    const int64_t tokens = parsed(response.body).integer("input_tokens").value_or(0);
    EXPECT_EQ(tokens <= fixture.model().context_limit(), *how == 'a') << tokens;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  };
  // Many short ones, and one among the last that can never be kept.
  const std::string input = repeated(30'000, R"({"role":"user","content":"short #"})") +
                            R"(,{"role":"user","content":")" + std::string(4 << 20, 'x') +
                            R"("},{"role":"user","content":"so?"})";
  const double whole = seconds(input, "disabled");
  EXPECT_LT(seconds(input, "auto"), 5 * whole + 0.5);
}

}  // namespace
}  // namespace pelton::server
