#include "bench/load_generator.h"

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/machine.h"
#include "bench/expected_duration.h"
#include "bench/generator_limit.h"
#include "bench/probe.h"
#include "bench/token_words.h"
#include "net/http_server.h"
#include "report/summary.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"
#include "workload/synthetic.h"

namespace pelton::bench {
namespace {

using report::Metric;
using report::RequestRecord;
using testing::HasSubstr;

Target target_at(int port, const std::string& backend) {
  const auto target = make_target({.backend = backend,
                                   .base_url = "http://127.0.0.1:" + std::to_string(port),
                                   .endpoint = {},
                                   .model = "m",
                                   .headers = {}});
  EXPECT_TRUE(target.ok());
  return *target;
}

workload::Conversation one_turn(std::string prompt, int output_tokens) {
  workload::Conversation conversation;
  conversation.turns.push_back({.prompt = std::move(prompt),
                                .ids = {},
                                .output_tokens = output_tokens,
                                .messages_json = {}});
  return conversation;
}

// A server that does what a test says, with the real HTTP between.
class FakeServer {
 public:
  using Handler = net::HttpServer::Handler;
  explicit FakeServer(Handler handler)
      : log_(clock_, {.level = base::LogLevel::kNone}),
        http_({.port = 0}, std::move(handler), log_) {
    EXPECT_TRUE(http_.start().ok());
  }
  ~FakeServer() { http_.stop(std::chrono::milliseconds(0)); }
  int port() const { return http_.port(); }

 private:
  base::SystemClock clock_;
  base::Log log_;
  net::HttpServer http_;
};

net::HttpHeaders event_stream() {
  net::HttpHeaders headers;
  headers.add("Content-Type", "text/event-stream");
  return headers;
}

std::string chunk(const std::string& text, int count) {
  return "data: {\"choices\":[{\"text\":\"" + text + "\"}],\"usage\":{\"prompt_tokens\":3," +
         "\"completion_tokens\":" + std::to_string(count) + "}}\n\n";
}

// `left` tokens, `gap` apart.
void write_tokens(const std::shared_ptr<net::Exchange>& exchange, int count, int left,
                  std::chrono::milliseconds gap) {
  if (left == 0) {
    exchange->write("data: [DONE]\n\n");
    return exchange->finish();
  }
  exchange->write(chunk("x", count + 1));
  exchange->post_after(gap, [exchange, count, left, gap] {
    if (!exchange->closed()) write_tokens(exchange, count + 1, left - 1, gap);
  });
}

TEST(LoadGenerator, ClosedLoopKeepsItsLimit) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  FakeServer server([&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) {
    most = std::max(most.load(), ++running);
    exchange->post_after(std::chrono::milliseconds(5), [&, exchange] {
      --running;
      exchange->send({.body = R"({"choices":[{"text":"a"}],"usage":{"completion_tokens":1}})"});
    });
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  LoadGenerator generator(target, {}, {.max_concurrency = 4}, clock);
  const std::vector<workload::Conversation> asked(40, one_turn("hi", 1));
  std::atomic<bool> stop{false};
  const LoadOutcome outcome = generator.run(asked, std::vector<double>(40, 0.0), stop);
  ASSERT_EQ(outcome.records.size(), 40u);
  EXPECT_EQ(most, 4);
  const report::Summary summary = report::summarize(outcome.records, outcome.duration_s, {});
  EXPECT_EQ(summary.completed, 40);
  EXPECT_EQ(summary.peak_concurrency, 4);
  EXPECT_GT(summary.values_ms.at(Metric::kClientQueue).back(), 30) << "the last waited for nine";
  EXPECT_EQ(generator.progress().done, 40);
}

// A server that stalls does not keep the generator from asking: what was due meanwhile has waited,
// and the wait is in the latencies (no coordinated omission).
TEST(LoadGenerator, AStalledServerIsAskedAllTheSame) {
  std::atomic<int> arrived{0};
  FakeServer server([&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) {
    const bool first = ++arrived == 1;
    exchange->post_after(std::chrono::milliseconds(first ? 300 : 1), [exchange] {
      exchange->send({.body = R"({"choices":[{"text":"a"}],"usage":{"completion_tokens":1}})"});
    });
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  const std::vector<workload::Conversation> asked(10, one_turn("hi", 1));
  std::vector<double> at_s;
  for (int i = 0; i < 10; ++i) at_s.push_back(0.02 * i);
  std::atomic<bool> stop{false};
  {
    LoadGenerator open(target, {}, {}, clock);
    const LoadOutcome outcome = open.run(asked, at_s, stop);
    ASSERT_EQ(outcome.records.size(), 10u);
    for (size_t i = 1; i < 10; ++i) {
      EXPECT_GE(outcome.records[i].start_ns, outcome.records[i].due_ns);
      EXPECT_LT(outcome.records[i].end_ns, 300'000'000) << "nobody waits for the first";
    }
  }
  arrived = 0;
  LoadGenerator one_by_one(target, {}, {.max_concurrency = 1}, clock);
  const LoadOutcome outcome = one_by_one.run(asked, at_s, stop);
  const report::Summary summary = report::summarize(outcome.records, outcome.duration_s, {});
  EXPECT_LT(report::value_ms(outcome.records[5], Metric::kE2el), 100);
  EXPECT_GT(summary.values_ms.at(Metric::kE2elQueued).at(5), 120) << "the stall is in there";
}

TEST(LoadGenerator, StreamsAreReadToTheToken) {
  FakeServer server([&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) {
    exchange->start_stream(200, event_stream());
    write_tokens(exchange, 0, 5, std::chrono::milliseconds(10));
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  LoadGenerator generator(target, {}, {.keep_texts = true}, clock);
  std::atomic<bool> stop{false};
  const LoadOutcome outcome = generator.run({one_turn("hi", 5)}, {0.0}, stop);
  ASSERT_EQ(outcome.records.size(), 1u);
  const RequestRecord& record = outcome.records[0];
  EXPECT_TRUE(record.ok) << record.error;
  EXPECT_TRUE(record.tokens_told);
  EXPECT_EQ(record.output_tokens, 5);
  EXPECT_EQ(record.pieces.size(), 5u);
  EXPECT_EQ(record.input_tokens, 3);
  EXPECT_EQ(record.text, "xxxxx");
  EXPECT_EQ(generator.progress().tokens, 5);
}

TEST(LoadGenerator, ConversationsRememberWhatWasSaid) {
  std::mutex mutex;
  std::vector<std::string> bodies;
  FakeServer server([&](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
    std::lock_guard lock(mutex);
    bodies.push_back(request.body);
    exchange->send({.body = R"({"choices":[{"message":{"content":"well"}}]})"});
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai-chat");
  workload::Conversation conversation = one_turn("one", 3);
  conversation.turns.push_back(conversation.turns[0]);
  conversation.turns[1].prompt = "two";
  conversation.turns[1].think_s = 0.05;
  LoadGenerator generator(target, {}, {}, clock);
  std::atomic<bool> stop{false};
  const LoadOutcome outcome = generator.run({conversation}, {0.0}, stop);
  ASSERT_EQ(outcome.records.size(), 2u);
  EXPECT_GE(outcome.records[1].start_ns - outcome.records[0].end_ns, 50'000'000);
  ASSERT_EQ(bodies.size(), 2u);
  EXPECT_THAT(bodies[1], HasSubstr(R"([{"role":"user","content":"one"},)"
                                   R"({"role":"assistant","content":"well"},)"
                                   R"({"role":"user","content":"two"}])"));
}

TEST(LoadGenerator, FailuresEndTheirConversation) {
  FakeServer server([&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) {
    exchange->send({.status = 429, .body = R"({"error":{"message":"full"}})"});
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai-chat");
  workload::Conversation conversation = one_turn("one", 3);
  conversation.turns.push_back(conversation.turns[0]);
  LoadGenerator generator(target, {}, {}, clock);
  std::atomic<bool> stop{false};
  const LoadOutcome outcome = generator.run({conversation}, {0.0}, stop);
  ASSERT_EQ(outcome.records.size(), 1u);
  EXPECT_EQ(outcome.records[0].error, "HTTP 429: full");
  EXPECT_EQ(outcome.interrupted, 0);
}

TEST(LoadGenerator, StopsWhenTold) {
  FakeServer server([&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) {
    exchange->start_stream(200, event_stream());
    write_tokens(exchange, 0, 100'000, std::chrono::milliseconds(20));
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  LoadGenerator generator(target, {}, {}, clock);
  std::atomic<bool> stop{false};
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const LoadOutcome outcome =
      generator.run({one_turn("a", 1), one_turn("b", 1)}, {0.0, 3600.0}, stop);
  stopper.join();
  EXPECT_TRUE(outcome.records.empty());
  EXPECT_EQ(outcome.interrupted, 2);
}

TEST(GeneratorLimit, SaysWhenItIsTheLimit) {
  const report::GeneratorWatch calm{.late_p99_ms = 2, .threads = 1};
  EXPECT_EQ(generator_limit(calm, {.share = 0.5, .windows = 50, .full_windows = 1}, 100), "");
  EXPECT_EQ(generator_limit(calm, {.share = 0.5, .windows = 50, .full_windows = 5}, 100), "");
  EXPECT_THAT(generator_limit(calm, {.share = 0.6, .windows = 50, .full_windows = 6}, 100),
              testing::AllOf(HasSubstr("6 of 50 windows"), HasSubstr("--client-threads 2")));
  const report::GeneratorWatch late{.late_p99_ms = 30, .threads = 1};
  EXPECT_THAT(generator_limit(late, {}, 100), HasSubstr("30.0 ms"));
  EXPECT_EQ(generator_limit(late, {}, 1000), "") << "3 % of an answer";
}

// Stopped while answers come and questions go: what is being launched still has its client.
TEST(LoadGenerator, StopsAmidALoad) {
  FakeServer server([&](net::HttpRequest, std::shared_ptr<net::Exchange> exchange) {
    exchange->send({.body = R"({"choices":[{"text":"a"}],"usage":{"completion_tokens":1}})"});
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  const std::vector<workload::Conversation> asked(100'000, one_turn("hi", 1));
  const std::vector<double> at_s(asked.size(), 0.0);
  for (int attempt = 0; attempt < 10; ++attempt) {
    LoadGenerator generator(target, {}, {.max_concurrency = 8, .client_threads = 2}, clock);
    std::atomic<bool> stop{false};
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + attempt));
      stop = true;
    });
    const LoadOutcome outcome = generator.run(asked, at_s, stop);
    stopper.join();
    EXPECT_EQ(outcome.records.size() + static_cast<size_t>(outcome.interrupted), asked.size());
  }
}

// A thread that never rests has full windows; one that sleeps has none.
TEST(ThreadWatch, SeesABusyThread) {
  const base::SystemClock clock;
  ThreadWatch watch;
  std::thread busy([&] {
    ThreadUse& use = watch.mine();
    const int64_t start = clock.now_ns();
    const int64_t cpu_until = base::thread_cpu_ns() + 300'000'000;
    while (base::thread_cpu_ns() < cpu_until) use.sample(clock.now_ns());
    use.settle(clock.now_ns());
    EXPECT_GT(use.share(), 0);
    // Others may use this processor too: its share is what it got of it.
    const auto passed = static_cast<double>(clock.now_ns() - start);
    EXPECT_NEAR(use.share(), 3e8 / passed, 0.1);
  });
  busy.join();
  EXPECT_GE(watch.busiest().windows, 1);
  ThreadWatch other;
  std::thread idle([&] {
    ThreadUse& use = other.mine();
    use.sample(clock.now_ns());
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    use.settle(clock.now_ns());
  });
  idle.join();
  EXPECT_EQ(other.busiest().full_windows, 0);
  EXPECT_LT(other.busiest().share, 0.5);
}

// Prompts made of them are as long as they say, to the token.
TEST(TokenWords, AreSingleTokens) {
  const std::string ranks =
      std::string(PELTON_SOURCE_DIR) + "/testdata/tokenizer/o200k_base.tiktoken";
  if (!std::filesystem::exists(ranks)) GTEST_SKIP() << "no vocabulary here";
  const auto tokenizer = tokenizer::Tokenizer::load(ranks);
  ASSERT_TRUE(tokenizer.ok());
  const auto words = token_words(*tokenizer);
  ASSERT_TRUE(words.ok()) << words.error().message;
  EXPECT_GT(words->word_count(), 5000u);
  const auto made =
      workload::random_conversations({.input_tokens = 3000, .output_tokens = 1}, {}, 5, *words, 1);
  for (const workload::Conversation& one : *made) {
    EXPECT_EQ(tokenizer->encode(one.turns[0].prompt), one.turns[0].ids);
    EXPECT_EQ(one.turns[0].ids.size(), 3000u);
  }
}

// Of `pelton synth`: no words in it, but runs of letters, not all of which stay apart.
TEST(TokenWords, OfASyntheticVocabularyStayApart) {
  for (const char* family : {"gpt_oss", "qwen3", "llama", "gemma3"}) {
    const auto made = tokenizer::synthetic_tokenizer_for(family, 24'000);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto tokenizer = tokenizer::Tokenizer::from_json(made->json, family);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto words = token_words(*tokenizer);
    ASSERT_TRUE(words.ok()) << family << ": " << words.error().message;
    EXPECT_GE(words->word_count(), 100u) << family;
    const auto conversations = workload::random_conversations(
        {.input_tokens = 1000, .output_tokens = 1}, {}, 5, *words, 1);
    for (const workload::Conversation& one : *conversations) {
      EXPECT_EQ(tokenizer->encode(one.turns[0].prompt), one.turns[0].ids) << family;
    }
  }
}

// Every two letters are a token, in no order: which of them a text has depends on its neighbours.
TEST(TokenWords, ThatNeverStayApartAreRefusedWithTheWayOut) {
  tokenizer::TokenizerFile file;
  file.split_pattern = "\\p{L}+";
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  const auto letter = [](int of52) {
    return std::string(1, static_cast<char>(of52 < 26 ? 'a' + of52 : 'A' + of52 - 26));
  };
  constexpr int kPairs = 52 * 52;
  for (int i = 0; i < kPairs; ++i) {
    const int pair = i * 1009 % kPairs;  // 1009 has no factor with it: each pair once
    file.merges.push_back({letter(pair / 52), letter(pair % 52)});
    file.tokens.push_back(file.merges.back().left + file.merges.back().right);
  }
  const auto tokenizer =
      tokenizer::Tokenizer::from_json(tokenizer::write_tokenizer_json(file), "letters");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto words = token_words(*tokenizer);
  ASSERT_FALSE(words.ok());
  EXPECT_EQ(words.error().field, "tokenizer");
  EXPECT_THAT(words.error().message, HasSubstr("without --tokenizer"));
}

TEST(Probe, LeavesOutWhatIsRefused) {
  std::atomic<int> asked{0};
  FakeServer server([&](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
    ++asked;
    if (request.body.find("continuous_usage_stats") != std::string::npos) {
      return exchange->send({.status = 400, .body = R"({"error":{"message":"unknown"}})"});
    }
    EXPECT_THAT(request.body, HasSubstr("\"max_tokens\":8"));
    exchange->send({.body = R"({"choices":[{"text":"a"}]})"});
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  const std::atomic<bool> stop{false};
  const auto counts = probe(target, {}, one_turn("hi", 500), clock, {.stop = stop});
  ASSERT_TRUE(counts.ok()) << counts.error().message;
  EXPECT_EQ(counts->counts, Counts::kAtEnd);
  EXPECT_GT(counts->first_token_s, 0);
  EXPECT_EQ(asked, 2);
}

TEST(Probe, WaitsForAServerAndSaysWhatIsWrong) {
  std::atomic<int> asked{0};
  FakeServer server([&](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
    if (request.path == "/v1/models") {
      return exchange->send({.body = R"({"data":[{"id":"org/first"},{"id":"second"}]})"});
    }
    if (++asked < 3) {
      return exchange->send({.status = 503, .body = R"({"error":{"message":"loading"}})"});
    }
    exchange->send({.status = 401, .body = R"({"error":{"message":"no key"}})"});
  });
  const base::SystemClock clock;
  const Target target = target_at(server.port(), "openai");
  const std::atomic<bool> stop{false};
  const auto now = probe(target, {}, one_turn("hi", 5), clock, {.stop = stop});
  ASSERT_FALSE(now.ok());
  EXPECT_THAT(now.error().message, HasSubstr("HTTP 503: loading"));
  const auto later = probe(target, {}, one_turn("hi", 5), clock,
                           {.ready_until_ns = clock.now_ns() + 30'000'000'000, .stop = stop});
  ASSERT_FALSE(later.ok());
  EXPECT_THAT(later.error().message, HasSubstr("HTTP 401: no key"));
  EXPECT_EQ(first_model(target, clock, {.stop = stop}).value(), "org/first");
}

TEST(Probe, AServerThatListsNoModelYetIsStillLoading) {
  FakeServer server([](const net::HttpRequest&, std::shared_ptr<net::Exchange> exchange) {
    exchange->send({.body = R"({"object":"list","data":[]})"});
  });
  const std::atomic<bool> stop{false};
  const base::SystemClock clock;
  const auto model = first_model(target_at(server.port(), "openai"), clock, {.stop = stop});
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, HasSubstr("lists no model yet"));
}

// Writes `piece` for ever, as fast as it is read (at least some KiB wait).
void write_for_ever(const std::shared_ptr<net::Exchange>& exchange, const std::string& piece,
                    const std::atomic<bool>& over) {
  if (over) return exchange->finish();
  while (exchange->queued_bytes() < 64 << 10) exchange->write(piece);
  exchange->post_after(std::chrono::milliseconds(1),
                       [exchange, piece, &over] { write_for_ever(exchange, piece, over); });
}

report::RequestRecord asked_of(const std::string& piece, const std::string& type,
                               LoadOptions options) {
  std::atomic<bool> over{false};
  FakeServer server([&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    net::HttpHeaders headers;
    headers.add("Content-Type", type);
    exchange->start_stream(200, headers);
    write_for_ever(exchange, piece, over);
  });
  const Target target = target_at(server.port(), "openai");
  const base::SystemClock clock;
  LoadGenerator generator(target, {}, std::move(options), clock);
  const std::atomic<bool> stop{false};
  const LoadOutcome outcome = generator.run({one_turn("hi", 20)}, {0}, stop);
  over = true;
  EXPECT_EQ(outcome.records.size(), 1u);
  return outcome.records.at(0);
}

// Each of them would never end, or take all memory.
TEST(LoadGenerator, E5_EndlessAnswersEnd) {
  const std::string stream = "text/event-stream";
  const LoadOptions soon{.quiet_time_max = std::chrono::milliseconds(400)};
  EXPECT_THAT(asked_of("data: {\"choices\":[{\"text\":\"on\"}]}\n\n", stream, {}).error,
              HasSubstr("not believed"));
  EXPECT_THAT(asked_of(": still here\n\n", stream, soon).error, HasSubstr("--timeout-sec"));
  EXPECT_THAT(asked_of("data: {}\n\n", stream, soon).error, HasSubstr("--timeout-sec"));
  EXPECT_THAT(asked_of("data: endless", stream, {}).error, HasSubstr("event"));
  EXPECT_THAT(asked_of(" ", "application/json", {}).error, HasSubstr("64 MiB"));
  LoadOptions little;
  little.held_bytes_max = 1 << 20;
  EXPECT_THAT(asked_of(std::string(1000, ' '), "application/json", little).error,
              HasSubstr("more than 1 MiB of memory"));
}

TEST(Probe, E5_AServerThatDoesNotEndIsLeft) {
  std::atomic<bool> over{false};
  FakeServer server([&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    exchange->start_stream(200, {});
    write_for_ever(exchange, " ", over);
  });
  const Target target = target_at(server.port(), "openai");
  const base::SystemClock clock;
  std::atomic<bool> stop{false};
  EXPECT_THAT(first_model(target, clock, {.stop = stop}).error().message, HasSubstr("limit"));
  stop = true;
  EXPECT_EQ(first_model(target, clock, {.stop = stop}).error().code, ErrorCode::kCancelled);
  over = true;
  // Connected, and silent.
  std::vector<std::shared_ptr<net::Exchange>> held;
  FakeServer mute([&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    held.push_back(exchange);
  });
  stop = false;
  const Target silent = target_at(mute.port(), "openai");
  const Patience little{.quiet_time_max = std::chrono::milliseconds(200), .stop = stop};
  EXPECT_FALSE(first_model(silent, clock, little).ok());
  EXPECT_FALSE(probe(silent, {}, one_turn("hi", 5), clock, little).ok());
}

// A piece every 100 ms for longer than that: the first answer is slow, not silent.
TEST(Probe, E5_ASlowAnswerIsNotASilentOne) {
  constexpr int kPieces = 12;
  FakeServer server([](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    net::HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream");
    exchange->start_stream(200, headers);
    const auto write = std::make_shared<std::function<void(int)>>();
    *write = [exchange, write](int left) {
      if (left == 0) {
        exchange->write("data: [DONE]\n\n");
        exchange->finish();
        *write = nullptr;
        return;
      }
      exchange->write("data: {\"choices\":[{\"text\":\"on\"}]}\n\n");
      exchange->post_after(std::chrono::milliseconds(100), [write, left] { (*write)(left - 1); });
    };
    (*write)(kPieces);
  });
  const base::SystemClock clock;
  const std::atomic<bool> stop{false};
  const auto probed =
      probe(target_at(server.port(), "openai"), {}, one_turn("hi", 8), clock,
            {.quiet_time_max = std::chrono::milliseconds(kPieces * 100 / 2), .stop = stop});
  ASSERT_TRUE(probed.ok()) << probed.error().message;
  EXPECT_GT(probed->token_s, 0.05);
}

TEST(Probe, TheListOfModelsMayComeLater) {
  std::atomic<int> asked{0};
  FakeServer server([&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
    ++asked;
    if (asked == 1) return exchange->send({.status = 503, .body = "{}"});
    if (asked == 2) return exchange->send({.body = R"({"data":[]})"});
    exchange->send({.body = R"({"data":[{"id":"late"}]})"});
  });
  const base::SystemClock clock;
  const std::atomic<bool> stop{false};
  const Target target = target_at(server.port(), "openai");
  EXPECT_EQ(first_model(target, clock, {.stop = stop}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(asked, 1);
  const Patience long_enough{.ready_until_ns = clock.now_ns() + 60'000'000'000, .stop = stop};
  EXPECT_EQ(first_model(target, clock, long_enough).value(), "late");
}

// What the user can mend is wrong usage, what the server does wrong is a failure.
TEST(Probe, AServersFaultIsNoWrongUsage) {
  const auto codes_of = [](net::HttpResponse response) {
    FakeServer server([&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
      exchange->send(response);
    });
    const std::atomic<bool> stop{false};
    const base::SystemClock clock;
    const Target target = target_at(server.port(), "openai");
    return std::pair(first_model(target, clock, {.stop = stop}).error().code,
                     probe(target, {}, one_turn("hi", 5), clock, {.stop = stop}).error().code);
  };
  for (const int status : {400, 401, 404, 422}) {
    const auto [model, question] = codes_of({.status = status, .body = "{}"});
    EXPECT_EQ(model, ErrorCode::kInvalidArgument) << status;
    EXPECT_EQ(question, ErrorCode::kInvalidArgument) << status;
  }
  for (const int status : {200, 429, 500, 503}) {
    const auto [model, question] = codes_of({.status = status, .body = "not JSON"});
    EXPECT_EQ(model, ErrorCode::kUnavailable) << status;
    EXPECT_EQ(question, ErrorCode::kUnavailable) << status;
  }
}

TEST(ExpectedDuration, CountsTurnsPausesAndArrivals) {
  const Target target = target_at(1, "openai");
  workload::Conversation conversation;
  for (int turn = 0; turn < 3; ++turn) {
    conversation.turns.push_back(
        {.prompt = "hi", .output_tokens = 10, .think_s = turn == 0 ? 0.0 : 5.0});
  }
  const std::vector<workload::Conversation> conversations(20, conversation);
  const Probed probed{.first_token_s = 0.5, .token_s = 0.05};  // a second an answer
  std::vector<double> at_s(20, 0.0);
  for (size_t i = 0; i < at_s.size(); ++i) at_s[i] = static_cast<double>(i + 1) / 2;
  const ExpectedDuration expected = expected_duration(target, {}, conversations, at_s, probed);
  EXPECT_EQ(expected.requests, 60);
  EXPECT_DOUBLE_EQ(expected.one_by_one_s, 60);
  // The last conversation begins at 10 s, whatever the number of its turns.
  EXPECT_DOUBLE_EQ(expected.least_s, 10 + 3 * 1 + 2 * 5);
  QuestionOptions twice;
  twice.extra.set("n", 2);
  EXPECT_DOUBLE_EQ(expected_duration(target, twice, conversations, at_s, probed).one_by_one_s, 90);
  const std::vector<workload::Conversation> single(20, one_turn("hi", 10));
  EXPECT_EQ(expected_duration(target, {}, single, std::vector<double>(20, 0.0), probed).least_s, 0);
}

TEST(Probe, C8_ARefusedKeyIsNamed) {
  for (const int status : {401, 403}) {
    FakeServer server([&](const net::HttpRequest&, const std::shared_ptr<net::Exchange>& exchange) {
      net::HttpResponse response{.status = status};
      response.body = "{\"error\":{\"message\":\"no\\u001b[31m key\"}}";
      exchange->send(std::move(response));
    });
    const std::atomic<bool> stop{false};
    const base::SystemClock clock;
    const Target target = target_at(server.port(), "openai");
    const std::string model = first_model(target, clock, {.stop = stop}).error().message;
    const std::string question =
        probe(target, {}, one_turn("hi", 5), clock, {.stop = stop}).error().message;
    for (const std::string& message : {model, question}) {
      EXPECT_THAT(message, HasSubstr("OPENAI_API_KEY"));
      EXPECT_THAT(message, HasSubstr("no[31m key"));
      EXPECT_THAT(message, testing::Not(HasSubstr("--model")));
    }
  }
}

}  // namespace
}  // namespace pelton::bench
