// One run in virtual time: order, pieces side by side, retries, time-outs, bounds, cancellation.
#include "chain/chain_run.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::chain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Kind = RunEvent::Kind;

constexpr int64_t kSecond = 1'000'000'000;

Chain chain_of(const std::string& text) {
  Result<Chain> chain = parse_chain(text, "c.toml");
  EXPECT_TRUE(chain.ok()) << chain.error().message;
  return *std::move(chain);
}

CallAnswer answered(std::string_view text) {
  return {.fault = CallAnswer::Fault::kNone,
          .status = 200,
          .body = streamed_body(Endpoint::kChat, text, "stop",
                                *Json::parse(R"({"prompt_tokens":3,"completion_tokens":2})")),
          .detail = {}};
}
CallAnswer refused(int status) {
  return {.fault = CallAnswer::Fault::kNone,
          .status = status,
          .body = R"({"error":{"message":"not today"}})",
          .detail = {}};
}

std::vector<std::string> names_of(const std::vector<StepCall>& calls) {
  std::vector<std::string> names;
  for (const StepCall& call : calls) names.push_back(call.step->name);
  return names;
}

const std::string kTwo = R"(name = "c"
input = {q = "string"}
output = {text = "${both.text}", stream_from = "both"}
[[step]]
name = "a"
use = "model:m"
with = {prompt = "A ${input.q}", system = "s"}
[[step]]
name = "b"
use = "model:m"
with = {prompt = "B ${input.q}"}
[[step]]
name = "both"
use = "model:*"
with = {prompt = "${a.text}+${b.text}"}
)";

std::string pieces_chain(std::string_view more) {
  return R"(name = "c"
input = {items = "[string]"}
output = {text = "${all.text}"}
[[step]]
name = "each"
use = "model:m"
for_each = "${input.items}"
with = {prompt = "${index}: ${item}"}
)" + std::string(more) +
         R"(
[[step]]
name = "all"
use = "builtin:join"
with = {parts = "${each[*].text}", separator = ","}
)";
}

Json items(int count) {
  Json::Array all;
  for (int i = 0; i < count; ++i) all.emplace_back("i" + std::to_string(i));
  Json input{Json::Object{}};
  input.set("items", Json(std::move(all)));
  return input;
}

TEST(ChainRun, RunsWhatNeedsNothingSideBySide) {
  const Chain chain = chain_of(kTwo);
  ChainRun run(chain, *Json::parse(R"({"q":"x"})"), {.any_model = "any", .streamed = true}, 0);
  const ChainRun::Work first = run.advance(0);
  EXPECT_THAT(names_of(first.calls), ElementsAre("a", "b"));
  EXPECT_EQ(first.calls[0].path, "/v1/chat/completions");
  EXPECT_EQ(first.calls[0].body,
            R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"A x"}],)"
            R"("model":"m"})");
  run.on_answer(first.calls[1].id, answered("two"), kSecond);
  EXPECT_THAT(run.advance(kSecond).calls, SizeIs(0));
  run.on_answer(first.calls[0].id, answered("one"), 2 * kSecond);
  const ChainRun::Work last = run.advance(2 * kSecond);
  ASSERT_THAT(names_of(last.calls), ElementsAre("both"));
  EXPECT_THAT(last.calls[0].body, HasSubstr("one+two"));
  EXPECT_THAT(last.calls[0].body, HasSubstr(R"("model":"any")"));
  EXPECT_TRUE(last.calls[0].streamed);
  run.on_text(last.calls[0].id, "do");
  const ChainRun::Work text = run.advance(2 * kSecond);
  ASSERT_THAT(text.events, SizeIs(1));
  EXPECT_EQ(text.events[0].text, "do");
  run.on_answer(last.calls[0].id, answered("done"), 3 * kSecond);
  run.advance(3 * kSecond);
  ASSERT_TRUE(run.over());
  EXPECT_EQ(run.output().dump(), R"({"text":"done"})");
  EXPECT_EQ(run.usage().prompt_tokens, 9);
  EXPECT_EQ(run.summaries()[0].duration_ns, 2 * kSecond);
}

TEST(ChainRun, HasNoMorePiecesAtOnceThanAsked) {
  const Chain chain = chain_of(pieces_chain("parallel = 3"));
  ChainRun run(chain, items(10), {}, 0);
  std::vector<StepCall> running = run.advance(0).calls;
  EXPECT_THAT(running, SizeIs(3));
  int answers = 0;
  while (!run.over()) {
    ASSERT_FALSE(running.empty());
    ASSERT_LE(running.size(), 3);
    const StepCall call = running.back();  // the last first
    running.pop_back();
    run.on_answer(call.id, answered(std::to_string(call.piece)), 0);
    ++answers;
    for (StepCall& next : run.advance(0).calls) running.push_back(std::move(next));
  }
  EXPECT_EQ(answers, 10);
  EXPECT_EQ(run.output().dump(), R"({"text":"0,1,2,3,4,5,6,7,8,9"})");
}

TEST(ChainRun, TenThousandPiecesKeepTheirValuesOnly) {
  const Chain chain = chain_of(pieces_chain("parallel = 64"));
  ChainRun run(chain, items(10'000), {}, 0);
  std::vector<StepCall> running = run.advance(0).calls;
  size_t most = 0;
  while (!run.over()) {
    ASSERT_FALSE(running.empty());
    most = std::max(most, running.size());
    run.on_answer(running.back().id, answered("x"), 0);
    running.pop_back();
    for (StepCall& next : run.advance(0).calls) running.push_back(std::move(next));
  }
  EXPECT_EQ(most, 64);
  EXPECT_FALSE(run.failure()) << run.failure()->message;
}

TEST(ChainRun, TriesAgainAfterAWhile) {
  const Chain chain =
      chain_of(pieces_chain("parallel = 1\nretry = {max = 2, wait_s = 1, on = [\"5xx\"]}"));
  ChainRun run(chain, items(1), {}, 0);
  StepCall call = run.advance(0).calls.at(0);
  run.on_answer(call.id, refused(503), 0);
  EXPECT_THAT(run.advance(0).calls, SizeIs(0));
  EXPECT_EQ(run.wake_ns(), kSecond);
  call = run.advance(kSecond).calls.at(0);
  EXPECT_EQ(call.attempt, 1);
  run.on_answer(call.id, refused(503), kSecond);
  run.advance(kSecond);
  EXPECT_EQ(run.wake_ns(), 3 * kSecond);  // twice as long
  call = run.advance(3 * kSecond).calls.at(0);
  run.on_answer(call.id, refused(503), 3 * kSecond);
  ASSERT_TRUE(run.over());
  EXPECT_EQ(run.failure()->message, "step 'each', piece 0: answered 503: not today");
  EXPECT_EQ(run.failure()->status, 503);
}

// A retry whose time has come while all calls are under way waits for an answer, not for a clock.
TEST(ChainRun, WithoutRoomNoTimeIsWaitedFor) {
  const Chain chain =
      chain_of(pieces_chain("parallel = 2\nretry = {max = 2, wait_s = 1, on = [\"5xx\"]}"));
  ChainRun run(chain, items(4), {.calls_max = 1}, 0);
  const StepCall first = run.advance(0).calls.at(0);
  run.on_answer(first.id, refused(503), 0);
  ASSERT_THAT(run.advance(0).calls, SizeIs(1)) << "another piece has its place";
  const std::optional<int64_t> wake = run.wake_ns();
  ASSERT_TRUE(wake);
  EXPECT_GT(*wake, kSecond) << "the call's deadline alone";
}

TEST(ChainRun, BodiesUnderWayAreBounded) {
  const Chain chain = chain_of(pieces_chain(""));
  ChainRun run(chain, items(3), {.bodies_bytes_max = 100}, 0);
  std::vector<StepCall> calls = run.advance(0).calls;
  ASSERT_THAT(calls, SizeIs(2));
  run.on_answer(calls[0].id, answered("x"), 0);
  calls = run.advance(0).calls;
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0].piece, 2);
}

TEST(ChainRun, DoesNotTryAgainWhatItShouldNot) {
  const Chain chain = chain_of(pieces_chain("retry = {max = 2, on = [\"5xx\"]}"));
  ChainRun run(chain, items(3), {}, 0);
  const std::vector<StepCall> calls = run.advance(0).calls;
  run.on_answer(calls.at(1).id, refused(400), 0);
  ASSERT_TRUE(run.over());
  EXPECT_EQ(run.failure()->status, 400);
  const ChainRun::Work work = run.advance(0);
  EXPECT_THAT(work.ended, ElementsAre(calls[0].id, calls[2].id));
  EXPECT_THAT(work.calls, SizeIs(0));
}

TEST(ChainRun, EndsACallThatTakesTooLong) {
  const Chain chain = chain_of(pieces_chain("timeout_s = 2"));
  ChainRun run(chain, items(1), {}, 0);
  const StepCall call = run.advance(0).calls.at(0);
  EXPECT_EQ(run.wake_ns(), 2 * kSecond);
  const ChainRun::Work work = run.advance(2 * kSecond);
  EXPECT_THAT(work.ended, ElementsAre(call.id));
  ASSERT_TRUE(run.over());
  EXPECT_EQ(run.failure()->message, "step 'each', piece 0: no answer within 2 s");
  EXPECT_EQ(run.failure()->status, 408);
  run.on_answer(call.id, answered("late"), 3 * kSecond);  // nobody waits for it
}

TEST(ChainRun, KeepsItsDeadlineAndEndsAllWhenItIsCancelled) {
  const Chain chain = chain_of(kTwo);
  const Json input = *Json::parse(R"({"q":"x"})");
  ChainRun late(chain, input, {.deadline_ns = kSecond}, 0);
  EXPECT_EQ(late.advance(0).calls.at(0).deadline_ns, kSecond);
  EXPECT_THAT(late.advance(kSecond).ended, SizeIs(2));
  EXPECT_EQ(late.failure()->kind, RunFailure::Kind::kDeadline);
  ChainRun left(chain, input, {}, 0);
  left.advance(0);
  left.cancel();
  EXPECT_THAT(left.advance(0).ended, SizeIs(2));
  EXPECT_EQ(left.failure()->kind, RunFailure::Kind::kCancelled);
}

TEST(ChainRun, HeldBackItBeginsNothing) {
  const Chain chain = chain_of(pieces_chain("parallel = 2"));
  ChainRun run(chain, items(4), {}, 0);
  const std::vector<StepCall> calls = run.advance(0).calls;
  run.hold_back(true);
  run.on_answer(calls.at(0).id, answered("x"), 0);
  run.on_answer(calls.at(1).id, answered("x"), 0);
  EXPECT_THAT(run.advance(0).calls, SizeIs(0));
  EXPECT_FALSE(run.wake_ns());
  run.hold_back(false);
  EXPECT_THAT(run.advance(0).calls, SizeIs(2));
}

TEST(ChainRun, LeavesOutWhatItsConditionLeavesOut) {
  const Chain chain = chain_of(R"(name = "c"
input = {q = "string"}
output = {text = "${b.text ?? input.q}"}
[[step]]
name = "b"
use = "model:m"
when = "${contains(input.q, 'yes')}"
with = {prompt = "p"}
)");
  ChainRun out(chain, *Json::parse(R"({"q":"no"})"), {}, 0);
  EXPECT_TRUE(out.over());
  EXPECT_EQ(out.output().dump(), R"({"text":"no"})");
  EXPECT_TRUE(out.summaries()[0].skipped);
  ChainRun in(chain, *Json::parse(R"({"q":"yes"})"), {}, 0);
  EXPECT_THAT(in.advance(0).calls, SizeIs(1));
}

TEST(ChainRun, BoundsPiecesTextsAnswersAndValues) {
  const Chain few = chain_of(pieces_chain("pieces_max = 2"));
  ChainRun many(few, items(3), {}, 0);
  EXPECT_EQ(many.failure()->message,
            "step 'each': 'for_each' has 3 pieces; at most 2 (pieces_max)");
  const Chain chain = chain_of(pieces_chain(""));
  ChainRun text(chain, items(1), {.rendered_bytes_max = 20}, 0);
  text.advance(0);
  EXPECT_THAT(text.failure()->message, HasSubstr("piece 0: what its templates come to"));
  ChainRun values(chain, items(3), {.value_bytes_max = 1000}, 0);
  for (const StepCall& call : values.advance(0).calls) {
    values.on_answer(call.id, answered(std::string(500, 'x')), 0);
  }
  EXPECT_THAT(values.failure()->message, HasSubstr("would hold more than 1000 bytes"));
  ChainRun large(chain, items(1), {}, 0);
  const StepCall call = large.advance(0).calls.at(0);
  large.on_answer(
      call.id, {.fault = CallAnswer::Fault::kTooLarge, .status = 0, .body = {}, .detail = "9"}, 0);
  EXPECT_EQ(large.failure()->message, "step 'each', piece 0: the answer is too large: 9");
}

TEST(ChainRun, SaysWhichStepAnsweredWithHtml) {
  const Chain chain = chain_of(pieces_chain(""));
  ChainRun run(chain, items(1), {}, 0);
  CallAnswer html = answered("");
  html.body = "\n<html><body>Welcome</body></html>";
  run.on_answer(run.advance(0).calls.at(0).id, html, 0);
  ASSERT_TRUE(run.over());
  EXPECT_THAT(run.failure()->message,
              HasSubstr("step 'each', piece 0: the answer is no JSON but HTML"));
  EXPECT_EQ(run.failure()->status, 422);
}

TEST(ChainRun, ComputesSomeBuiltinsAtATime) {
  const Chain chain = chain_of(R"(name = "c"
input = {items = "[string]"}
output = {texts = "${each[*].text}"}
[[step]]
name = "each"
use = "builtin:template"
for_each = "${input.items}"
parallel = 256
with = {text = "${item}!"}
)");
  ChainRun run(chain, items(1000), {}, 0);
  int turns = 0;
  for (; !run.over(); ++turns) {
    const ChainRun::Work work = run.advance(0);
    EXPECT_LE(work.events.size(), 40);
    if (!run.over()) {
      EXPECT_EQ(run.wake_ns(), 0);
    }
  }
  EXPECT_GT(turns, 20);
  EXPECT_EQ(run.output().find("texts")->as_array().size(), 1000);
}

TEST(ChainRun, AsksHostsWithBodyOrQuery) {
  const Chain chain = chain_of(R"(name = "c"
input = {q = "string"}
output = {text = "${get.body.text}", status = "${post.status}", plain = "${post.text}"}
[[step]]
name = "get"
use = "http:http://h/find"
method = "GET"
with = {q = "${input.q}", n = 3, none = "${null}"}
[[step]]
name = "post"
use = "http:http://h/p"
answer = "text"
with = {list = [1, "${input.q}"]}
)");
  ChainRun run(chain, *Json::parse(R"({"q":"a b"})"), {}, 0);
  const std::vector<StepCall> calls = run.advance(0).calls;
  ASSERT_THAT(calls, SizeIs(2));
  EXPECT_THAT(calls[0].query, ElementsAre(std::pair<std::string, std::string>("q", "a b"),
                                          std::pair<std::string, std::string>("n", "3")));
  EXPECT_EQ(calls[1].body, R"({"list":[1,"a b"]})");
  run.on_answer(calls[0].id, {.fault = {}, .status = 200, .body = R"({"text":"t"})", .detail = {}},
                0);
  run.on_answer(calls[1].id, {.fault = {}, .status = 201, .body = "<p>", .detail = {}}, 0);
  run.advance(0);
  EXPECT_EQ(run.output().dump(), R"({"text":"t","status":201,"plain":"<p>"})");
}

}  // namespace
}  // namespace pelton::chain
