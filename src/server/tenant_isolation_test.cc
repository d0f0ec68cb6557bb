// Rows of the hostile traffic on tenants (TN): what one has asked, another neither gets nor can
// measure. Elsewhere: TN-08 kv/block_hash_test (names of 128 bits under a secret key), TN-09
// executor/hostile_test and engine/scheduler_property_test, TN-10 to TN-13
// tests/privacy_test.py, TN-16 simulator/overload_test.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"}]})";

ServerFixture::Options two_tenants() {
  ServerFixture::Options options;
  EXPECT_TRUE(options.server.keys.add_file("sk-a ann\nsk-b bob\n", "keys").ok());
  return options;
}

net::HttpResponse ask(ServerFixture& fixture, std::string_view key, std::string_view path,
                      std::string body) {
  net::HttpCall call = fixture.call("POST", std::string(path), std::move(body));
  call.headers.add("Authorization", "Bearer " + std::string(key));
  return fixture.fetch(std::move(call));
}

std::string long_words(int seed, int count) {
  std::string words;
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = base::random_bits(static_cast<uint64_t>(seed), static_cast<uint64_t>(i));
    words += static_cast<char>('a' + bits % 26);
  }
  return words;
}

// Two samples of one distribution? As Kolmogorov and Smirnov: the probability that two such are as
// far apart, by the asymptotic series.
double same_distribution(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double distance = 0;
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const double at = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= at) ++i;
    while (j < b.size() && b[j] <= at) ++j;
    const double share_a = static_cast<double>(i) / static_cast<double>(a.size());
    const double share_b = static_cast<double>(j) / static_cast<double>(b.size());
    distance = std::max(distance, std::abs(share_a - share_b));
  }
  const double n =
      static_cast<double>(a.size() * b.size()) / static_cast<double>(a.size() + b.size());
  const double lambda = (std::sqrt(n) + 0.12 + 0.11 / std::sqrt(n)) * distance;
  if (lambda < 0.2) return 1;
  double probability = 0;
  for (int k = 1; k <= 100; ++k) {
    probability += (k % 2 == 1 ? 2 : -2) * std::exp(-2.0 * k * k * lambda * lambda);
  }
  return std::clamp(probability, 0.0, 1.0);
}

TEST(KolmogorovSmirnov, TellsOnlyWhatDiffers) {
  std::vector<double> a, b, c;
  for (int i = 0; i < 200; ++i) {
    a.push_back(base::random_unit(1, static_cast<uint64_t>(i)));
    b.push_back(base::random_unit(2, static_cast<uint64_t>(i)));
    c.push_back(0.3 + base::random_unit(3, static_cast<uint64_t>(i)));
  }
  EXPECT_GT(same_distribution(a, b), 0.01);
  EXPECT_LT(same_distribution(a, c), 1e-4);
}

// Prompt tokens take time here, so that a hit shows.
class TimedFixture {
 public:
  TimedFixture() : fixture(kScript, timed()) {}

  struct Asked {
    double ms;
    int64_t cached;
  };
  Asked ask(std::string_view key, const std::string& words) {
    const auto began = steady_clock::now();
    const net::HttpResponse response = pelton::server::ask(
        fixture, key, "/v1/completions", R"({"max_tokens":1,"prompt":")" + words + "\"}");
    const double ms =
        std::chrono::duration<double, std::milli>(steady_clock::now() - began).count();
    EXPECT_EQ(response.status, 200) << response.body;
    const Json body = parsed(response.body);
    return {
        ms,
        body.find("usage")->find("prompt_tokens_details")->integer("cached_tokens").value_or(0)};
  }

  ServerFixture fixture;

 private:
  static ServerFixture::Options timed() {
    ServerFixture::Options options = two_tenants();
    options.executor = [](engine::ModelledExecutor::Options& executor) {
      executor.checks = false;
      executor.fail_step = [](const engine::StepPlan& plan) -> std::optional<Error> {
        int64_t tokens = 0;
        for (const engine::ScheduledRow& row : plan.sequences) tokens += row.token_count();
        const auto until = steady_clock::now() + std::chrono::microseconds(10 * tokens);
        std::this_thread::sleep_until(until);
        return std::nullopt;
      };
    };
    return options;
  }
};

// Whoever asks what another tenant has asked sees what he sees of a prompt that nobody knows: in
// what it gets, and in time. 1 000 pairs with PELTON_FULL.
TEST(TenantIsolation, TN_02_TN_03_only_the_tenant_itself_is_faster_the_second_time) {
  const int pairs = std::getenv("PELTON_FULL") != nullptr ? 1000 : 80;
  TimedFixture timed;
  std::vector<double> known_to_other, known_to_nobody, own;
  for (int i = 0; i < pairs; ++i) {
    const std::string known = long_words(2 * i, 600);
    const std::string fresh = long_words(2 * i + 1, 600);
    ASSERT_EQ(timed.ask("sk-a", known).cached, 0);
    // In either order, so that whatever else this machine does meets both alike.
    for (const bool asks_known : {i % 2 == 0, i % 2 != 0}) {
      const TimedFixture::Asked asked = timed.ask("sk-b", asks_known ? known : fresh);
      ASSERT_EQ(asked.cached, 0);
      (asks_known ? known_to_other : known_to_nobody).push_back(asked.ms);
    }
    const TimedFixture::Asked again = timed.ask("sk-a", known);
    ASSERT_GT(again.cached, 300);
    own.push_back(again.ms);
  }
  const double p_others = same_distribution(known_to_nobody, known_to_other);
  const double p_own = same_distribution(known_to_nobody, own);
  fmt::print("{} pairs: known to another tenant p = {:.3g}, one's own p = {:.3g}\n", pairs,
             p_others, p_own);
  // One run in a thousand may look otherwise by chance.
  EXPECT_GT(p_others, 1e-3);
  EXPECT_LT(p_own, 1e-9);
}

int64_t cached_of(const net::HttpResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  const Json body = parsed(response.body);
  const Json* usage = body.find("usage");
  if (usage == nullptr) return -1;
  if (const auto read = usage->integer("cache_read_input_tokens")) return *read;
  for (const char* name : {"prompt_tokens_details", "input_tokens_details"}) {
    if (const Json* details = usage->find(name))
      return details->integer("cached_tokens").value_or(-1);
  }
  return -1;
}

TEST(TenantIsolation, TN_04_every_endpoint_has_its_tenants_salt) {
  const std::string words = long_words(1, 700);
  const std::string chat = R"("messages":[{"role":"user","content":")" + words + "\"}]";
  const std::string tool_turn =
      R"("messages":[{"role":"user","content":")" + long_words(2, 700) +
      R"("},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",)"
      R"("function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}],)"
      R"("tools":[{"type":"function","function":{"name":"f"}}])";
  std::string ids;
  for (int i = 0; i < 300; ++i) ids += fmt::format("{}{}", i == 0 ? "" : ",", 65 + i % 57);
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/chat/completions", "{" + chat + "}"},
      {"/v1/chat/completions", "{" + tool_turn + "}"},
      {"/v1/chat/completions", R"({"n":3,"temperature":1,)" + chat + "}"},
      {"/v1/completions", R"({"max_tokens":2,"prompt":")" + long_words(3, 700) + "\"}"},
      {"/v1/responses", R"({"input":")" + long_words(4, 700) + "\"}"},
      {"/v1/messages", R"({"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":")" +
                           long_words(5, 700) + "\"}]}"},
  };
  for (const auto& [path, body] : requests) {
    ServerFixture fixture(kScript, two_tenants());  // a tenant's own requests begin alike
    ask(fixture, "sk-a", path, body);
    EXPECT_GT(cached_of(ask(fixture, "sk-a", path, body)), 100) << path << " the feature works";
    EXPECT_EQ(cached_of(ask(fixture, "sk-b", path, body)), 0) << path;
    EXPECT_GT(cached_of(ask(fixture, "sk-b", path, body)), 100) << path;
  }
  // What tells no cached tokens: counted at the engine.
  const std::pair<const char*, std::string> silent[] = {
      {"/v1/embeddings", R"({"input":")" + long_words(6, 700) + "\"}"},
      {"/api/chat",
       R"({"stream":false,"messages":[{"role":"user","content":")" + long_words(7, 700) + "\"}]}"},
      {"/api/generate", R"({"stream":false,"raw":true,"options":{"num_predict":1},"prompt":")" +
                            long_words(8, 700) + "\"}"},
      {"/completion", R"({"n_predict":1,"prompt":")" + long_words(9, 700) + "\"}"},
      {"/generate", R"({"inputs":")" + long_words(10, 700) + "\"}"},
      {"/inference/v1/generate",
       R"({"token_ids":[)" + ids + R"(],"sampling_params":{"max_tokens":1}})"},
  };
  for (const auto& [path, body] : silent) {
    ServerFixture fixture(kScript, two_tenants());
    const auto found_by = [&, path = path, body = body](const char* key) {
      const int64_t before = fixture.engine().stats().prefix_tokens_found;
      EXPECT_EQ(ask(fixture, key, path, body).status, 200) << path;
      return fixture.engine().stats().prefix_tokens_found - before;
    };
    found_by("sk-a");
    EXPECT_GT(found_by("sk-a"), 100) << path;
    EXPECT_EQ(found_by("sk-b"), 0) << path;
  }
}

// A response of another tenant's is none.
TEST(TenantIsolation, TN_04_nor_does_a_stored_response_lead_to_it) {
  ServerFixture fixture(kScript, two_tenants());
  const Json made = parsed(ask(fixture, "sk-a", "/v1/responses", R"({"input":"mine"})").body);
  const std::string id = *made.string("id");
  const net::HttpResponse followed = ask(fixture, "sk-b", "/v1/responses",
                                         R"({"input":"x","previous_response_id":")" + id + "\"}");
  EXPECT_EQ(followed.status, 400);
  EXPECT_THAT(followed.body, HasSubstr("previous_response_not_found"));
  EXPECT_EQ(
      ask(fixture, "sk-a", "/v1/responses", R"({"input":"x","previous_response_id":")" + id + "\"}")
          .status,
      200);
}

// A compiled grammar tells by its speed that somebody has used it.
TEST(TenantIsolation, TN_04_grammars_are_a_tenants_own) {
  ServerFixture fixture(kScript, two_tenants());
  const std::string body =
      R"({"prompt":"x","max_tokens":1,"structured_outputs":{"regex":"secret[0-9]+"}})";
  // The script says what this does not allow, which is no matter here.
  ask(fixture, "sk-a", "/v1/completions", body);
  const size_t one = fixture.model().state->grammars.entry_count();
  EXPECT_GT(one, 0u);
  ask(fixture, "sk-a", "/v1/completions", body);
  EXPECT_EQ(fixture.model().state->grammars.entry_count(), one);
  ask(fixture, "sk-b", "/v1/completions", body);
  EXPECT_EQ(fixture.model().state->grammars.entry_count(), one + 1);
}

TEST(TenantIsolation, TN_05_a_salt_is_short_or_refused) {
  ServerFixture fixture(kScript, two_tenants());
  const auto with = [&](const std::string& salt) {
    return ask(fixture, "sk-a", "/v1/completions",
               R"({"prompt":"x","max_tokens":1,"cache_salt":")" + salt + "\"}")
        .status;
  };
  EXPECT_EQ(with(""), 400);
  EXPECT_EQ(with("s"), 200);
  EXPECT_EQ(with("/etc/../passwd"), 200);
  EXPECT_EQ(with(std::string(1024, 's')), 200);
  EXPECT_EQ(with(std::string(1025, 's')), 400);
  const auto began = steady_clock::now();
  const int huge = with(std::string(20'000'000, 's'));
  EXPECT_TRUE(huge == 400 || huge == 413) << huge;
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(fixture.engine().stats().running, 0);
}

// One slot: what a tenant asked of it is gone when the next one sits there.
TEST(TenantIsolation, TN_06_a_seat_remembers_nothing) {
  struct Slot {
    request::SamplingParams sampling;
    size_t banned = 0;
    size_t allowed = 0;
  };
  std::vector<Slot> seen;
  std::mutex mutex;
  ServerFixture::Options options = two_tenants();
  options.executor = [&](engine::ModelledExecutor::Options& executor) {
    executor.capacity.sequences_max = 1;
    executor.next_token = [&,
                           next = executor.next_token](const engine::ModelledExecutor::Seen& one) {
      {
        const std::lock_guard lock(mutex);
        seen.push_back({one.sampling, one.banned.size(), one.allowed.size()});
      }
      return next(one);
    };
  };
  ServerFixture fixture(kScript, std::move(options));
  const std::string plain = R"({"prompt":"x","max_tokens":3,"seed":7})";
  const std::string before = ask(fixture, "sk-b", "/v1/completions", plain).body;
  const size_t first_end = seen.size();
  ASSERT_GT(first_end, 0u);
  ask(fixture, "sk-a", "/v1/completions",
      R"({"prompt":"x","max_tokens":6,"min_tokens":4,"seed":1,"temperature":0.3,"top_k":5,)"
      R"("logit_bias":{"65":-100},"presence_penalty":1,"frequency_penalty":1,)"
      R"("repetition_penalty":1.3,"logprobs":5,"stop":["q"],)"
      R"("structured_outputs":{"regex":"[a-z ]*"}})");
  const size_t second_end = seen.size();
  ASSERT_GT(second_end, first_end);
  EXPECT_TRUE(seen[first_end].sampling.has_penalties());
  EXPECT_GT(seen[first_end].banned, 0u);
  EXPECT_GT(seen[first_end].allowed, 0u);
  const std::string after = ask(fixture, "sk-b", "/v1/completions", plain).body;
  const auto text = [](const std::string& body) {
    return parsed(body).find("choices")->as_array().at(0).string("text");
  };
  EXPECT_EQ(text(after), text(before));
  ASSERT_EQ(seen.size() - second_end, first_end);
  for (size_t i = 0; i < first_end; ++i) {
    const Slot& a = seen[i];
    const Slot& b = seen[second_end + i];
    EXPECT_FALSE(b.sampling.has_penalties());
    EXPECT_EQ(b.sampling.seed, a.sampling.seed);
    EXPECT_EQ(b.sampling.temperature, a.sampling.temperature);
    EXPECT_EQ(b.sampling.top_k, a.sampling.top_k);
    EXPECT_EQ(b.sampling.logprobs, a.sampling.logprobs);
    EXPECT_TRUE(b.sampling.logit_bias.empty());
    EXPECT_EQ(b.banned, a.banned);
    EXPECT_EQ(b.allowed, a.allowed);
  }
}

}  // namespace
}  // namespace pelton::server
