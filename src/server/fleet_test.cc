// A gateway's side of the fleet listener, played by hand: answers that go on after any of their
// updates give the bytes that the undisturbed answer had.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cluster/envelope.h"
#include "cluster/frame.h"
#include "cluster/token_list.h"
#include "server/fleet_server.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using cluster::append_frame;
using cluster::Frame;
using cluster::FrameType;

constexpr std::string_view kScript = R"({"step_ms": 1, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Sunny, and a wind from the west.<|return|>"},
    {"when": "think", "then": "<|channel|>analysis<|message|>They ask for a number of words.<|end|><|start|>assistant<|channel|>final<|message|>Sunny as ever, ÄÖ and more.<|return|>"},
    {"when": "long", "then": ["<|channel|>final<|message|>", {"text": "one more ", "times": 900}]},
    {"when": "call", "then": "<|channel|>commentary to=functions.note <|constrain|>json<|message|>{\"text\": \"it is sunny\"}<|call|>"},
    {"when": "json", "then": "<|channel|>final<|message|>{\"a\":\"sunny and\\nwindy\"}"}]})";

// What takes effect together.
struct Update {
  std::vector<std::string> said;  // frames for the next worker
  std::string bytes;
  bool last = false;
};

std::vector<Update> updates_of(const std::string& wire) {
  cluster::FrameReader reader;
  reader.push(wire);
  std::vector<Update> updates;
  bool open = false;
  for (;;) {
    const auto frame = reader.next();
    EXPECT_TRUE(frame.ok());
    if (!frame.ok() || !*frame) return updates;
    if (!open) updates.emplace_back();
    Update& update = updates.back();
    if ((*frame)->type == FrameType::kBytes) update.bytes += (*frame)->payload;
    if ((*frame)->type == FrameType::kTokens || (*frame)->type == FrameType::kFinished) {
      append_frame(update.said.emplace_back(), **frame);
    }
    EXPECT_NE((*frame)->type, FrameType::kError) << (*frame)->payload;
    update.last = (*frame)->has(Frame::kLast);
    open = (*frame)->has(Frame::kMore);
  }
}

class FleetListener : public testing::Test {
 protected:
  FleetListener() { EXPECT_TRUE(fleet_.open({.name = "one"}).ok()); }

  // As a gateway sends it again whose connection broke before it heard anything.
  int status_of(int64_t dispatch, const std::string& gateway) {
    const cluster::RunEnvelope envelope{.incarnation = fleet_.incarnation(),
                                        .request_id = "req_1",
                                        .gateway = gateway,
                                        .dispatch = dispatch,
                                        .method = "POST",
                                        .path = "/v1/chat/completions"};
    std::string frames;
    append_frame(frames, {.type = FrameType::kRun, .payload = encode(envelope)});
    append_frame(frames, {.type = FrameType::kBody,
                          .payload = R"({"messages":[{"role":"user","content":"x"}]})"});
    return fixture_
        .fetch({.method = "POST", .port = fleet_.port(), .target = "/fleet/v1/run", .body = frames})
        .status;
  }

  std::string run(const std::string& path, const std::string& body, const std::string& said = {},
                  bool delivered = false) {
    cluster::RunEnvelope envelope{.incarnation = fleet_.incarnation(),
                                  .request_id = "req_1",
                                  .gateway = "g",
                                  .method = "POST",
                                  .path = path,
                                  .seed = 99,
                                  .created_ms = 1'700'000'000'000,
                                  .delivered = delivered};
    std::string frames;
    append_frame(frames, {.type = FrameType::kRun, .payload = encode(envelope)});
    frames += said;
    append_frame(frames, {.type = FrameType::kBody, .payload = body});
    net::HttpCall call{
        .method = "POST", .port = fleet_.port(), .target = "/fleet/v1/run", .body = frames};
    const net::HttpResponse response = fixture_.fetch(std::move(call));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.body;
  }

  static std::string bytes_of(const std::vector<Update>& updates) {
    std::string bytes;
    for (const Update& update : updates) bytes += update.bytes;
    return bytes;
  }

  // Which of several choices comes first is a matter of threads.
  static std::vector<std::string> sorted_events(const std::string& bytes) {
    std::vector<std::string> events = events_of(bytes);
    std::sort(events.begin(), events.end());
    return events;
  }

  void check_every_cut(const std::string& path, const std::string& body) {
    const std::vector<Update> whole = updates_of(run(path, body));
    ASSERT_GT(whole.size(), 1u) << bytes_of(whole);
    ASSERT_TRUE(whole.back().last);
    std::string said;
    std::string sent;
    for (size_t cut = 0; cut + 1 < whole.size(); ++cut) {
      for (const std::string& frame : whole[cut].said) said += frame;
      sent += whole[cut].bytes;
      const std::vector<Update> rest = updates_of(run(path, body, said, !sent.empty()));
      ASSERT_FALSE(rest.empty());
      EXPECT_EQ(sorted_events(sent + bytes_of(rest)), sorted_events(bytes_of(whole)))
          << path << " after update " << cut;
      EXPECT_TRUE(rest.back().last);
    }
  }

  // Without a prefix cache: what a later run finds there, its usage would say.
  ServerFixture fixture_{kScript, {.engine = {.prefix_cache = false}}};
  FleetServer fleet_{fixture_.server(), fixture_.log()};
};

std::string chat(const std::string& words, const std::string& more) {
  return R"({"stream":true,"messages":[{"role":"user","content":")" + words + "\"}]" + more + "}";
}

// Whatever this worker's clock and zone say; a date that is fixed for all its prompts goes before.
TEST(FleetDate, IsSaidByTheGateway) {
  if (is_qwen3_shape()) GTEST_SKIP() << "its prompts have no date";
  for (const bool is_fixed : {false, true}) {
    ServerFixture fixture(kScript, {.model = [&](ServedModel& model) {
                            if (!is_fixed) model.current_date.reset();
                          }});
    FleetServer fleet(fixture.server(), fixture.log());
    ASSERT_TRUE(fleet.open({.name = "one"}).ok());
    const cluster::RunEnvelope envelope{.incarnation = fleet.incarnation(),
                                        .request_id = "req_1",
                                        .gateway = "g",
                                        .method = "POST",
                                        .path = "/v1/chat/completions/render",
                                        .created_ms = 1'700'000'000'000,
                                        .date = "2001-02-03"};
    std::string frames;
    append_frame(frames, {.type = FrameType::kRun, .payload = encode(envelope)});
    append_frame(frames, {.type = FrameType::kBody,
                          .payload = R"({"messages":[{"role":"user","content":"x"}]})"});
    const std::string wire =
        fixture
            .fetch(
                {.method = "POST", .port = fleet.port(), .target = "/fleet/v1/run", .body = frames})
            .body;
    const std::string line = is_fixed ? "Current date: 2025-06-28" : "Current date: 2001-02-03";
    EXPECT_NE(wire.find(line), std::string::npos) << wire;
  }
}

// RB-03: what was taken and not heard of is not begun a second time; the next attempt is another
// one.
TEST_F(FleetListener, RB_03_an_attempt_is_begun_once) {
  EXPECT_EQ(status_of(7, "g"), 200);
  EXPECT_EQ(status_of(7, "g"), 425);
  EXPECT_EQ(status_of(8, "g"), 200);
  EXPECT_EQ(status_of(7, "another"), 200);
}

TEST_F(FleetListener, AChatGoesOnAfterAnyUpdate) {
  check_every_cut("/v1/chat/completions", chat("x", ""));
  check_every_cut("/v1/chat/completions",
                  chat("think", R"(,"stream_options":{"include_usage":true})"));
}

TEST_F(FleetListener, SoDoSeveralChoicesAndTheirLogProbabilities) {
  check_every_cut("/v1/chat/completions", chat("x", R"(,"n":3,"logprobs":true,"top_logprobs":2)"));
}

TEST_F(FleetListener, SoDoStopStringsHalfMatched) {
  check_every_cut("/v1/chat/completions", chat("x", R"(,"stop":["from the east","the west"])"));
}

TEST_F(FleetListener, SoDoToolCallsAndSchemas) {
  check_every_cut("/v1/chat/completions", chat("call", R"(,"tools":[{"type":"function","function":{
      "name":"note","parameters":{"type":"object","properties":{"text":{"type":"string"}}}}}])"));
  check_every_cut(
      "/v1/chat/completions",
      chat("json", R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x",
      "strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},
      "required":["a"],"additionalProperties":false}}})"));
}

TEST_F(FleetListener, SoDoPenaltiesAndLengths) {
  check_every_cut(
      "/v1/chat/completions",
      chat("think", R"(,"frequency_penalty":0.5,"repetition_penalty":1.2,"max_tokens":20)"));
}

TEST_F(FleetListener, SoDoOtherProtocols) {
  check_every_cut("/v1/completions",
                  R"({"stream":true,"prompt":"a","n":2,"max_tokens":9,"logprobs":1})");
  check_every_cut("/v1/messages",
                  R"({"stream":true,"max_tokens":60,"messages":[{"role":"user","content":"x"}]})");
  check_every_cut("/inference/v1/generate",
                  R"({"stream":true,"token_ids":[5,6,7],"sampling_params":{"max_tokens":9}})");
}

// Their objects carry the time at which they end, which is another one: the text is compared.
TEST_F(FleetListener, SoDoResponses) {
  const std::string body = R"({"stream":true,"input":"x"})";
  const auto parts_of = [](const std::string& bytes) {
    std::string text;
    int64_t last = -1;
    for (const std::string& event : events_of(bytes)) {
      const Json json = parsed(event);
      EXPECT_GT(json.integer("sequence_number").value_or(-1), last) << event;
      last = json.integer("sequence_number").value_or(-1);
      if (json.string("type") == "response.output_text.delta") text += *json.string("delta");
    }
    return std::pair(text, last);
  };
  const std::vector<Update> whole = updates_of(run("/v1/responses", body));
  std::string said;
  std::string sent;
  for (size_t cut = 0; cut + 1 < whole.size(); ++cut) {
    for (const std::string& frame : whole[cut].said) said += frame;
    sent += whole[cut].bytes;
    const std::string rest = bytes_of(updates_of(run("/v1/responses", body, said, !sent.empty())));
    EXPECT_EQ(parts_of(sent + rest), parts_of(bytes_of(whole))) << cut;
  }
}

TEST_F(FleetListener, AWholeBodyIsTheSameWithItsLogProbabilities) {
  const std::string body = R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"n":2})";
  const std::vector<Update> whole = updates_of(run("/v1/chat/completions", body));
  std::string said;
  for (size_t cut = 0; cut + 1 < whole.size(); ++cut) {
    for (const std::string& frame : whole[cut].said) said += frame;
    EXPECT_EQ(bytes_of(updates_of(run("/v1/chat/completions", body, said))), bytes_of(whole));
  }
}

// What was said is repeated some hundred tokens at a time, so that others have their turns between.
TEST_F(FleetListener, ALongAnswerGoesOnWhereItWas) {
  const std::string body = chat("a long one", R"(,"max_tokens":2000)");
  const std::vector<Update> whole = updates_of(run("/v1/chat/completions", body));
  std::string said;
  std::string sent;
  size_t cut = 0;
  for (; cut < whole.size() * 4 / 5; ++cut) {
    for (const std::string& frame : whole[cut].said) said += frame;
    sent += whole[cut].bytes;
  }
  const std::vector<Update> rest = updates_of(run("/v1/chat/completions", body, said, true));
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(events_of(sent + bytes_of(rest)), events_of(bytes_of(whole)));
}

TEST_F(FleetListener, RefusesWhatIsNotForIt) {
  const auto status_of = [&](const std::string& frames) {
    net::HttpCall call{
        .method = "POST", .port = fleet_.port(), .target = "/fleet/v1/run", .body = frames};
    return fixture_.fetch(std::move(call)).status;
  };
  EXPECT_EQ(status_of(""), 400);
  EXPECT_EQ(status_of("no frames"), 400);
  std::string frames;
  append_frame(frames, {.type = FrameType::kRun, .payload = R"({"protocol":1,"incarnation":"x"})"});
  EXPECT_EQ(status_of(frames), 409);
  EXPECT_EQ(status_of(frames.substr(0, frames.size() - 1)), 400);
  // Tokens that do not begin where the ones before end.
  append_frame(frames,
               {.type = FrameType::kTokens, .payload = encode(cluster::TokenList{.first = 1})});
  EXPECT_EQ(status_of(frames), 400);
}

TEST_F(FleetListener, SaysThatASessionIsNotKnown) {
  std::string frames;
  const std::string said = encode(cluster::SaidEnvelope{
      .incarnation = fleet_.incarnation(), .gateway = "g", .dispatch = 7, .first = 0});
  append_frame(frames, {.type = FrameType::kSaid, .payload = said});
  append_frame(frames, {.type = FrameType::kBody, .payload = "{}"});
  const net::HttpResponse answer = fixture_.fetch(
      {.method = "POST", .port = fleet_.port(), .target = "/fleet/v1/say", .body = frames});
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(parsed(answer.body).find("error")->string("code"), "session_not_found") << answer.body;
}

}  // namespace
}  // namespace pelton::server
