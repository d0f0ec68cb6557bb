#include "eval/evaluator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "eval/generated_tasks.h"
#include "net/http_server.h"

namespace pelton::eval {
namespace {

using testing::HasSubstr;

net::HttpResponse completion(const std::string& content) {
  net::HttpResponse response;
  Json message;
  message.set("role", "assistant").set("content", content);
  Json choice;
  choice.set("message", std::move(message)).set("finish_reason", "stop");
  Json usage;
  usage.set("prompt_tokens", 5).set("completion_tokens", 2);
  Json json;
  json.set("choices", Json(Json::Array{std::move(choice)})).set("usage", std::move(usage));
  response.body = json.dump();
  return response;
}

net::HttpResponse refusal(int status) {
  net::HttpResponse response{
      .status = status, .headers = {}, .body = R"({"error":{"message":"not now"}})"};
  return response;
}

// "What is 3 plus 4?" -> 7; a server that knows no more.
std::string sum_in(const Json& body) {
  const std::string question = *body.find("messages")->as_array()[0].string("content");
  int a = 0;
  int b = 0;
  if (std::sscanf(question.c_str(), "What is %d plus %d?", &a, &b) == 2)
    return std::to_string(a + b);
  return "I cannot say.";
}

TEST(Evaluator, a_server_that_wants_to_be_left_alone_for_ever_is_asked_again) {
  using std::chrono::milliseconds;
  EXPECT_EQ(retry_after("3"), milliseconds(3000));
  EXPECT_EQ(retry_after(""), milliseconds(0));
  EXPECT_EQ(retry_after("-5"), milliseconds(0));
  EXPECT_EQ(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), milliseconds(0));
  for (const char* const long_time : {"11", "2200000", "4300000000", "99999999999999999999"}) {
    EXPECT_EQ(retry_after(long_time), milliseconds(10'000)) << long_time;
  }
}

class EvaluatorTest : public testing::Test {
 protected:
  using Answerer = std::function<net::HttpResponse(const Json& body)>;

  EvaluatorTest() : log_(clock_, {.level = base::LogLevel::kNone}) {
    tasks_ = *generate_tasks("arithmetic", 1, 40);
    setting_ = {.model = "m",
                .sampling = Json(Json::Object{{"temperature", 0}, {"seed", 1}}),
                .tasks = tasks_digest(tasks_)};
  }

  void serve(Answerer answer) {
    answer_ = std::move(answer);
    server_ = std::make_unique<net::HttpServer>(
        net::HttpServer::Options{.port = 0},
        [this](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
          asked_.fetch_add(1);
          if (drips_) {
            exchange->start_stream(200, {});
            return drip(exchange);
          }
          if (keeps_ && keeps_()) return kept_.push_back(exchange);
          const Result<Json> body = Json::parse(request.body);
          exchange->send(body.ok() ? answer_(*body) : refusal(400));
        },
        log_);
    ASSERT_TRUE(server_->start().ok());
  }
  // A byte, and soon the next.
  static void drip(const std::shared_ptr<net::Exchange>& exchange) {
    if (exchange->closed()) return;
    exchange->write(" ");
    exchange->post_after(std::chrono::milliseconds(20), [exchange] { drip(exchange); });
  }
  ~EvaluatorTest() override {
    if (server_) server_->stop(std::chrono::milliseconds(0));
    std::remove(journal_.c_str());
  }

  EvaluatorOptions options() const {
    EvaluatorOptions options{
        .call = *net::make_http_call(
            "POST", fmt::format("http://127.0.0.1:{}/v1/chat/completions", server_->port()))};
    options.concurrency = 4;
    return options;
  }

  base::SystemClock clock_;
  base::Log log_;
  std::vector<Task> tasks_;
  Setting setting_;
  Answerer answer_;
  std::atomic<int> asked_ = 0;
  std::function<bool()> keeps_;                       // whether a question has no answer ever
  std::vector<std::shared_ptr<net::Exchange>> kept_;  // of those
  bool drips_ = false;                                // answers are blanks without an end
  const std::string journal_ =
      testing::TempDir() + fmt::format("evaluator_test.{}.partial", ::getpid());
  std::unique_ptr<net::HttpServer> server_;
};

TEST_F(EvaluatorTest, a_server_that_lies_about_usage_is_judged_counted_and_named) {
  const std::string lies[] = {R"({"prompt_tokens":-4,"completion_tokens":2})",
                              R"({"prompt_tokens":5,"completion_tokens":0})",
                              R"({"prompt_tokens":5,"completion_tokens":2,"total_tokens":99})",
                              R"({"prompt_tokens":5,"completion_tokens":1000000})"};
  setting_.sampling.set("max_completion_tokens", 64);
  std::atomic<int> count = 0;
  serve([&](const Json& body) {
    net::HttpResponse response = completion(sum_in(body));
    const int number = count.fetch_add(1);
    if (number % 10 >= 4) return response;
    Json json = *Json::parse(response.body);
    json.set("usage", *Json::parse(lies[number % 10]));
    response.body = json.dump();
    return response;
  });
  EvaluatorOptions kept = options();
  kept.journal = journal_;
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, kept);
  ASSERT_TRUE(evaluation.ok()) << evaluation.error().message;
  EXPECT_EQ(asked_, 40);  // none is asked again
  const SetScore score = scores(*evaluation).back();
  EXPECT_EQ(score.usage_faults, 16);
  EXPECT_EQ(score.errors, 0);
  EXPECT_GT(score.right, 0);
  EXPECT_EQ(figures(*evaluation, {}).integer("usage_faults"), 16);
  const std::string text = result_text(*evaluation);
  EXPECT_THAT(text, HasSubstr("\"usage_faults\":16"));
  EXPECT_THAT(text, HasSubstr("\"usage_fault\":\"total_tokens 99 of 5 and 2\""));
  EXPECT_EQ(result_text(*parse_result(text, "f")), text);
  EXPECT_THAT(scores_text(*evaluation, 0),
              HasSubstr("cannot be true in 16 of 40 answers, first in"));
  const std::string page = result_page(*evaluation, {}, {});
  EXPECT_THAT(page, HasSubstr("usage that cannot be</th>"));
  EXPECT_THAT(page, HasSubstr("cannot be true in 16 of 40 answers"));
  // What the journal has stays counted.
  const Result<Evaluation> again = evaluate(tasks_, setting_, kept);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(asked_, 40);
  EXPECT_EQ(result_text(*again), text);
}

TEST_F(EvaluatorTest, asks_each_task_once_and_judges_it) {
  std::mutex mutex;
  std::set<std::string> models;
  serve([&](const Json& body) {
    std::lock_guard lock(mutex);
    models.insert(body.string("model").value_or("") + body.find("seed")->dump());
    return completion(sum_in(body));
  });
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, options());
  ASSERT_TRUE(evaluation.ok()) << evaluation.error().message;
  EXPECT_EQ(asked_, 40);
  EXPECT_EQ(models, std::set<std::string>{"m1"});
  int right = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Outcome& outcome = evaluation->outcomes[i];
    EXPECT_EQ(outcome.id, tasks_[i].id);
    EXPECT_EQ(outcome.is_right, outcome.answer != "I cannot say.") << outcome.answer;
    EXPECT_EQ(outcome.prompt_tokens, 5);
    right += outcome.is_right ? 1 : 0;
  }
  EXPECT_GT(right, 3);
  EXPECT_LT(right, 40);
}

// Errors, cut answers and answers that are none in the middle: the result is the undisturbed one.
TEST_F(EvaluatorTest, a_server_in_trouble_is_asked_again) {
  serve([](const Json& body) { return completion(sum_in(body)); });
  const std::string undisturbed = result_text(*evaluate(tasks_, setting_, options()));
  std::atomic<int> count = 0;
  answer_ = [&](const Json& body) {
    switch (count++ % 5) {
      case 1:
        return refusal(429);
      case 2:
        return refusal(503);
      case 3: {
        net::HttpResponse half = completion(sum_in(body));
        half.body.resize(half.body.size() / 2);
        return half;
      }
      default:
        return completion(sum_in(body));
    }
  };
  tasks_.resize(12);
  setting_.tasks = tasks_digest(tasks_);
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, options());
  ASSERT_TRUE(evaluation.ok());
  for (const Outcome& outcome : evaluation->outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_THAT(undisturbed, HasSubstr(outcome_json(outcome).dump()));
  }
}

// One that keeps a question for ever: its answer is none after a while, and it is asked again.
TEST_F(EvaluatorTest, a_server_that_never_answers_is_asked_again) {
  std::atomic<int> count = 0;
  serve([&](const Json& body) { return completion(sum_in(body)); });
  keeps_ = [&] { return count++ == 0; };
  tasks_.resize(2);
  setting_.tasks = tasks_digest(tasks_);
  EvaluatorOptions impatient = options();
  impatient.answer_time_max = std::chrono::milliseconds(200);
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, impatient);
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(scores(*evaluation).back().errors, 0);
  EXPECT_GE(asked_, 3);

  keeps_ = [] { return true; };
  impatient.retries_max = 1;
  asked_ = 0;
  const Result<Evaluation> none = evaluate(tasks_, setting_, impatient);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(asked_, 4);  // twice each
  for (const Outcome& outcome : none->outcomes) EXPECT_THAT(outcome.error, HasSubstr("took too"));
}

// However often a byte comes: what counts is when the whole answer is there.
TEST_F(EvaluatorTest, a_server_that_drips_for_ever_gives_no_answer) {
  serve([&](const Json& body) { return completion(sum_in(body)); });
  drips_ = true;
  tasks_.resize(1);
  setting_.tasks = tasks_digest(tasks_);
  EvaluatorOptions impatient = options();
  impatient.answer_time_max = std::chrono::milliseconds(400);
  impatient.retries_max = 1;
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, impatient);
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(asked_, 2);
  EXPECT_THAT(evaluation->outcomes[0].error, HasSubstr("took too long in all"));
}

// The second answer would have as many bytes: it is not fetched.
TEST_F(EvaluatorTest, an_answer_that_is_too_large_is_fetched_once) {
  serve([](const Json&) { return completion(std::string(size_t{17} << 20, 'x')); });
  tasks_.resize(2);
  setting_.tasks = tasks_digest(tasks_);
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, options());
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(asked_, 2);
  for (const Outcome& one : evaluation->outcomes) EXPECT_THAT(one.error, HasSubstr("larger than"));
}

TEST_F(EvaluatorTest, a_refusal_for_good_is_one_of_its_task) {
  serve([](const Json& body) {
    return sum_in(body) == "I cannot say." ? refusal(400) : completion(sum_in(body));
  });
  const Result<Evaluation> evaluation = evaluate(tasks_, setting_, options());
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(asked_, 40);
  int errors = 0;
  for (const Outcome& outcome : evaluation->outcomes) {
    if (outcome.error.empty()) continue;
    ++errors;
    EXPECT_EQ(outcome.error, "status 400: not now");
    EXPECT_FALSE(outcome.is_right);
  }
  EXPECT_EQ(scores(*evaluation)[0].errors, errors);
  EXPECT_GT(errors, 0);
}

TEST_F(EvaluatorTest, what_was_interrupted_goes_on_where_it_was) {
  std::atomic<bool> stop = false;
  serve([&](const Json& body) {
    if (asked_ == 15) stop = true;
    return completion(sum_in(body));
  });
  const std::string undisturbed = result_text(*evaluate(tasks_, setting_, options()));
  asked_ = 0;
  EvaluatorOptions kept = options();
  kept.journal = journal_;
  kept.stopped = [&] { return stop.load(); };
  const Result<Evaluation> first = evaluate(tasks_, setting_, kept);
  if (!first.ok()) {  // it may have been through before it was looked at
    EXPECT_EQ(first.error().code, ErrorCode::kCancelled);
  }
  // A line that was cut as the process died counts for nothing.
  const std::string journal = *base::read_file(journal_);
  ASSERT_TRUE(base::write_file(journal_, journal + R"({"set":"arithmetic","id")").ok());
  const int64_t answered = std::ranges::count(journal, '\n') - 1;
  stop = false;
  asked_ = 100;  // not to stop again
  const Result<Evaluation> second = evaluate(tasks_, setting_, kept);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(asked_ - 100, 40 - answered);
  EXPECT_EQ(result_text(*second), undisturbed);

  setting_.sampling.set("seed", 2);
  const Result<Evaluation> other = evaluate(tasks_, setting_, kept);
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("another model, tasks or settings"));
}

TEST(ReadAnswer, takes_calls_and_refuses_what_is_none) {
  const Result<ReadAnswer> read = read_answer(
      R"({"choices":[{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}],"usage":{"prompt_tokens":-1}})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->answer.calls.at(0).name, "f");
  EXPECT_EQ(read->prompt_tokens, 0);
  for (const char* none : {"", "[]", "{}", R"({"choices":[]})", R"({"choices":[{}]})",
                           R"({"choices":[{"message":1}]})"}) {
    EXPECT_FALSE(read_answer(none).ok()) << none;
  }
}

}  // namespace
}  // namespace pelton::eval
