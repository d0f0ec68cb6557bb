// FT-47: the k-th allocation of a request fails, for every k: that request is answered with 200 or
// 503, or cut off, and nothing else happens: no crash, nothing left in the books, the next one is
// served. The allocator of this program fails when told to, on one thread.
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "net/http_client.h"
#include "server/ledger_report.h"
#include "server/server_fixture.h"

namespace {

// Counts down on the thread that set it; at one the allocation fails. Below: never.
thread_local int allocations_left = -1;

void* allocate(size_t size) {
  if (allocations_left > 0 && --allocations_left == 0) throw std::bad_alloc();
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) {
  return allocate(size);
}
void* operator new[](size_t size) {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"}]})";

// Arms the allocator for the handling of one request, and tells whether it came to that.
class Failing {
 public:
  explicit Failing(int at) { allocations_left = at; }
  ~Failing() {
    reached = allocations_left == 0;
    allocations_left = -1;
  }
  static inline thread_local bool reached = false;
};

class AllocationFailure : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(AllocationFailure, FT_47_IsThatOneRequestsMatter) {
  const auto [path, body] = GetParam();
  ServerFixture fixture(kScript, {});
  std::atomic<int> fail_at{-1};
  std::atomic<bool> reached{false};
  net::HttpServer listener(
      {.port = 0},
      [&](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
        const int at = fail_at.exchange(-1);
        struct Told {
          std::atomic<bool>& reached;
          ~Told() { reached = Failing::reached; }
        } told{reached};
        const Failing failing(at);
        fixture.server().handle(std::move(request), std::move(exchange));
      },
      fixture.log());
  ASSERT_TRUE(listener.start().ok());
  net::HttpClient client({});
  const auto post = [&, path = path, body = body] {
    net::HttpCall call = fixture.call("POST", path, body);
    call.port = listener.port();
    return net::http_fetch(client, std::move(call));
  };
  ASSERT_EQ(post()->status, 200);
  int refused = 0;
  int at = 1;
  for (;; ++at) {
    ASSERT_LT(at, 20'000);
    fail_at = at;
    reached = false;
    const Result<net::HttpResponse> answer = post();
    if (answer.ok() && answer->status != 200) {
      ASSERT_TRUE(answer->status == 503 || answer->status == 500) << at << " " << answer->body;
      ASSERT_TRUE(Json::parse(answer->body).ok()) << answer->body;
      ++refused;
    }
    if (!reached) break;
  }
  EXPECT_GT(at, 20) << "nothing was allocated?";
  EXPECT_GT(refused, at / 2);
  EXPECT_EQ(post()->status, 200);
  const auto clean = [&] {
    return fixture.engine().ledger().clean() &&
           fixture.server().services().statistics.counts().open() == 0 &&
           fixture.model().state->meter.open() == 0;
  };
  for (int i = 0; i < 1000 && !clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(clean()) << ledger_report(fixture.server().services(), 0);
  RecordProperty("allocations", at);
  listener.stop(std::chrono::milliseconds(0));
}

INSTANTIATE_TEST_SUITE_P(
    Routes, AllocationFailure,
    testing::Values(
        std::pair("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})"),
        std::pair("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"n":2})"),
        std::pair("/v1/completions", R"({"prompt":["a","b"],"logprobs":2,"max_tokens":3})"),
        std::pair("/v1/responses", R"({"input":"hi"})"),
        std::pair("/v1/messages",
                  R"({"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"hi"}]})"),
        std::pair("/v1/embeddings", R"({"input":["a","b"]})"),
        std::pair(
            "/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"},"max_tokens":4})"),
        std::pair("/tokenize", R"({"prompt":"hi"})")));

}  // namespace
}  // namespace pelton::server
