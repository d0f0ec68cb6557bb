#include "cluster/envelope.h"

#include <gtest/gtest.h>

#include "cluster/token_list.h"

namespace pelton::cluster {
namespace {

TEST(Envelope, ComesBackAsItWas) {
  const RunEnvelope sent{
      .incarnation = "abc",
      .request_id = "req_1",
      .gateway = "g",
      .attempt = 2,
      .dispatch = 77,
      .method = "POST",
      .path = "/v1/chat/completions",
      .query = "a=b",
      .remote = "10.0.0.1:5",
      .headers = {{"Accept", "text/event-stream"}, {"x", ""}},
      .tenant = "wheel",
      .weight = 2.5,
      .seed = 0xFFFF'FFFF'FFFF'FFF1,
      .created_ms = 1'795'000'000'123,
      .date = "2026-11-18",
      .deadline_ms = 5'000,
      .delivered = true,
      .peer = {.host = "h", .port = 9, .tokens = 64, .ticket = "t", .ahead = true}};
  const Result<RunEnvelope> got = decode_run_envelope(encode(sent));
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(encode(*got), encode(sent));
  EXPECT_EQ(got->seed, sent.seed);
  EXPECT_EQ(got->headers, sent.headers);
  EXPECT_EQ(got->date, sent.date);
  EXPECT_EQ(got->peer.ticket, sent.peer.ticket);
  EXPECT_TRUE(got->peer.ahead);
}

TEST(Envelope, WhatWasFoundOfAPrompt) {
  const PromptFound sent{.cached_tokens = 9, .host_tokens = 4, .disk_tokens = 3, .peer_tokens = 2};
  const Result<PromptFound> got = decode_prompt_found(encode(sent));
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(encode(*got), encode(sent));
  for (const char* bad :
       {R"({"cached_tokens":-1})", R"({"cached_tokens":1,"host_tokens":"x"})", "[]",
        R"({"cached_tokens":8,"host_tokens":4,"disk_tokens":3,"peer_tokens":2})",
        R"({"cached_tokens":1,"peer_tokens":2147483648})"}) {
    EXPECT_FALSE(decode_prompt_found(bad).ok()) << bad;
  }
}

TEST(Envelope, MessagesToASession) {
  const SaidEnvelope sent{
      .incarnation = "a1", .gateway = "g", .dispatch = 9, .first = 4, .drains = true};
  const Result<SaidEnvelope> got = decode_said_envelope(encode(sent));
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(encode(*got), encode(sent));
  EXPECT_EQ(got->first, 4);
  EXPECT_TRUE(got->drains);
  for (const char* bad : {R"({"first":-1})", R"({"dispatch":"x"})", R"({"drains":1})", "[]"}) {
    EXPECT_FALSE(decode_said_envelope(bad).ok()) << bad;
  }
}

TEST(Envelope, IsRefusedByField) {
  struct Bad {
    const char* json;
    const char* field;
  };
  for (const Bad& bad :
       {Bad{R"({"protocol":2})", "protocol"},
        {R"({"protocol":1,"weight":0})", "weight"},
        {R"({"protocol":1,"weight":"x"})", "weight"},
        {R"({"protocol":1,"seed":"xyz"})", "seed"},
        {R"({"protocol":1,"seed":"11111111111111111"})", "seed"},
        {R"({"protocol":1,"attempt":-1})", "attempt"},
        {R"({"protocol":1,"headers":[["a"]]})", "headers"},
        {R"({"protocol":1,"delivered":1})", "delivered"},
        {R"({"protocol":1,"date":"2026-11-1"})", "date"},
        {R"({"protocol":1,"date":"2026-11-1\n"})", "date"},
        {R"({"protocol":1,"date":"2026/11/18"})", "date"},
        // KV-11: half of what says where keys and values are.
        {R"({"protocol":1,"peer_port":65536})", "peer_port"},
        {R"({"protocol":1,"peer_port":1})", "peer_port"},
        {R"({"protocol":1,"peer_port":1,"peer_host":"h","peer_tokens":9})", "peer_port"},
        {R"({"protocol":1,"peer_port":1,"peer_host":"h","peer_ticket":"t"})", "peer_port"}}) {
    const Result<RunEnvelope> got = decode_run_envelope(bad.json);
    ASSERT_FALSE(got.ok()) << bad.json;
    EXPECT_EQ(got.error().field, bad.field) << bad.json;
  }
  EXPECT_FALSE(decode_run_envelope("[]").ok());
  EXPECT_FALSE(decode_answer_head(R"({"status":99})").ok());
  EXPECT_FALSE(decode_worker_record(R"({"protocol":1})").ok());
}

TEST(Envelope, AnImpossibleLoadIsClamped) {
  const Result<WorkerLoad> load = decode_worker_load(
      R"({"running":-5,"waiting":1e300,"waiting_tokens":"many","wait_s":-1,"busy_ms":null,"ready":1})");
  ASSERT_TRUE(load.ok());
  EXPECT_EQ(load->running, 0);
  EXPECT_EQ(load->waiting, 1 << 24);
  EXPECT_EQ(load->waiting_tokens, 0);
  EXPECT_EQ(load->wait_s, 0);
  EXPECT_FALSE(load->ready);
  const Result<WorkerLoad> lies = decode_worker_load(
      R"({"kv_used":7,"context_tokens":-1,"costs":{"fixed_s":-1,"prefill_token_s":1e9,"row_s":"x"}})");
  ASSERT_TRUE(lies.ok());
  EXPECT_EQ(lies->kv_used, 1);
  EXPECT_EQ(lies->context_tokens, 0);
  EXPECT_EQ(lies->costs.fixed_s, StepCosts().fixed_s);
  EXPECT_EQ(lies->costs.prefill_token_s, StepCosts().prefill_token_s);
  const Result<WorkerLoad> adapters = decode_worker_load(
      R"({"adapter_places":-1,"adapter_wait_s":-2,"adapter_hits":2,"adapters":[7,["a"],["b","c"]]})");
  ASSERT_TRUE(adapters.ok());
  EXPECT_EQ(adapters->adapter_places, 0);
  EXPECT_EQ(adapters->adapter_wait_s, 0);
  EXPECT_EQ(adapters->adapter_hits, 1);
  EXPECT_EQ(adapters->adapters, (std::vector<ResidentAdapter>{{.name = "b", .digest = "c"}}));
}

TEST(Envelope, ARecordAndALoadComeBackAsTheyWere) {
  const WorkerRecord record{.name = "w",
                            .incarnation = "i",
                            .models = {"m"},
                            .slots = 3,
                            .batch_tokens = 512,
                            .block_tokens = 16,
                            .windows = {128, 0},
                            .block_name = "ff",
                            .kv_port = 7,
                            .kv_id = "k",
                            .kv_ahead = true,
                            .role = WorkerRole::kDecode,
                            .date = "2026-11-23",
                            .adapters = {"sql", "org/support"},
                            .fingerprints = {{"m", "0123"}, {"alias", "0123"}}};
  const Result<WorkerRecord> got = decode_worker_record(encode(record));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(encode(*got), encode(record));
  EXPECT_EQ(got->windows, record.windows);
  EXPECT_EQ(got->kv_port, 7);
  EXPECT_TRUE(got->kv_ahead);
  EXPECT_EQ(got->role, WorkerRole::kDecode);
  EXPECT_EQ(got->adapters, record.adapters);
  EXPECT_EQ(got->fingerprints, record.fingerprints);
  const WorkerLoad load{.running = 2,
                        .context_tokens = 500,
                        .kv_used = 0.5,
                        .costs = {.fixed_s = 0.25, .prefill_token_s = 0.5, .row_s = 0},
                        .adapters = {{.name = "sql", .digest = "00ff"}},
                        .adapter_places = 4,
                        .adapter_wait_s = 0.125,
                        .adapter_hits = 0.75};
  const Result<WorkerLoad> again = decode_worker_load(encode(load));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(encode(*again), encode(load));
  EXPECT_EQ(again->costs.fixed_s, 0.25);
  EXPECT_EQ(again->adapters, load.adapters);
  EXPECT_EQ(again->adapter_hits, 0.75);
  EXPECT_FALSE(decode_worker_record(R"({"protocol":1,"incarnation":"i","windows":[-1]})").ok());
  EXPECT_FALSE(decode_worker_record(R"({"protocol":1,"incarnation":"i","role":"cook"})").ok());
  // Before its model is there it has no KV port; with one it is refused without.
  EXPECT_TRUE(decode_worker_record(R"({"protocol":1,"incarnation":"i","role":"decode"})").ok());
  EXPECT_FALSE(
      decode_worker_record(R"({"protocol":1,"incarnation":"i","role":"decode","models":["m"]})")
          .ok());
  for (const char* wrong : {R"("m")", R"(["m"])", R"({"m":1})"}) {
    const Result<WorkerRecord> refused = decode_worker_record(
        std::string(R"({"protocol":1,"incarnation":"i","fingerprints":)") + wrong + "}");
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().field, "fingerprints");
  }
}

TEST(TokenList, ComesBackAsItWas) {
  const TokenList ids{
      .first = 9, .with_logprobs = false, .tokens = {{.token = 1}, {.token = 200'000}}};
  EXPECT_EQ(*decode_token_list(encode(ids)), ids);
  const TokenList scored{
      .first = 0,
      .with_logprobs = true,
      .tokens = {{.token = 5, .logprob = -0.25f, .top = {{5, -0.25f}, {6, -2.0f}}}, {.token = 7}}};
  EXPECT_EQ(*decode_token_list(encode(scored)), scored);
}

TEST(TokenList, IsRefusedWhereverItIsCut) {
  const std::string wire =
      encode(TokenList{.first = 1,
                       .with_logprobs = true,
                       .tokens = {{.token = 5, .logprob = -1, .top = {{6, -2}}}}});
  for (size_t size = 0; size < wire.size(); ++size) {
    // After five bytes it is a list without tokens.
    EXPECT_EQ(decode_token_list(std::string_view(wire).substr(0, size)).ok(), size == 5) << size;
  }
  EXPECT_FALSE(decode_token_list(std::string("\0\0\0\0\0\xFF\xFF\xFF\xFF", 9)).ok());
  EXPECT_FALSE(decode_token_list(std::string("\0\0\0\0\2", 5)).ok());
}

}  // namespace
}  // namespace pelton::cluster
