// Who is let in: whose key it is, what that key may ask for in a minute and at once, whether there
// is room, and under which salt what is computed for him is kept. Owned by the Server; any thread.
//
// A request that makes the model work gets a Pass. What it takes from its key's allowance is
// reserved by an estimate (its prompt, and as many output tokens as answers lately had, at most
// what it asks for) and settled by what it really took when the Pass goes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "admission/rate_limiter.h"
#include "api/error.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "net/http_message.h"
#include "request/generation_request.h"
#include "server/key_ring.h"
#include "server/served_model.h"

namespace pelton::server {

class FrontDesk;

// One request's. Moves along with it, on its thread; the desk outlives it.
class Pass {
 public:
  Pass(Pass&& other) noexcept;
  Pass& operator=(Pass&&) = delete;
  ~Pass();

  const Caller& caller() const { return caller_; }
  const ServedModel& model() const { return model_; }

  void note_output(int64_t tokens) { used_ += tokens; }
  // One answer is over; what never began costs nothing.
  void note_end(const engine::StreamEnd& end);

  // The error as it is told, with the time after which it is worth trying again.
  api::ApiError told(const Error& error) const;

 private:
  friend class FrontDesk;
  Pass(FrontDesk& desk, Caller caller, const ServedModel& model);

  FrontDesk* desk_;  // null: moved from
  Caller caller_;
  const ServedModel& model_;
  int64_t reserved_ = 0;
  int64_t used_ = 0;
};

class FrontDesk {
 public:
  // `clock` outlives it. `secret`: of the salts; drawn anew at each start.
  FrontDesk(KeyRing keys, std::string secret, const base::Clock& clock);

  // Who asks; none if a key is asked for and this is not one.
  struct Credentials {
    std::string_view authorization;  // "Bearer KEY"
    std::string_view api_key;        // KEY; beside the other, the same one
    // One of them comes twice: which one counts, a proxy before us may see otherwise.
    bool repeated = false;
  };
  std::optional<Caller> identify(const Credentials& credentials) const;
  // From the next request on. What keys have used of their limits stays used.
  void replace_keys(KeyRing keys);

  // What is left of a caller's allowance, as OpenAI's clients read it: x-ratelimit-…; nothing
  // where there is none.
  void add_limits(const Caller& caller, net::HttpHeaders& headers) const;

  // Before anything is read of it: 429 if the queue is full, or the key's requests are used up.
  using Work = engine::WaitingLine::Kind;  // kSampled: tokens are wanted; kPooled: embeddings
  std::variant<Pass, api::ApiError> enter(Caller caller, const ServedModel& model, Work work);

  // `answers` streams, or why not: 429 also if the key's tokens are used up.
  struct Wanted {
    int answers = 1;
    std::shared_ptr<engine::Courier> courier;  // of the streams; null: none
  };
  std::variant<std::vector<engine::TokenStream>, api::ApiError> submit(
      Pass& pass, request::GenerationRequest request, Wanted wanted);

  // What an error in compiling a request's output format is told as; `retry_ns`: when it is worth
  // asking again if there was no room for it.
  api::ApiError not_compiled(const Caller& caller, const Error& error, int64_t retry_ns);

  // For those who submit bit by bit: the prompts' tokens at once.
  std::optional<api::ApiError> reserve(Pass& pass, int64_t tokens);

  // What a request's computed prefixes, sampled turns and grammars are kept under: nobody finds
  // those of another tenant, nor those under another of its tenant's own salts, and whoever reads
  // it learns neither. Empty if both are.
  std::string cache_salt(std::string_view tenant, std::string_view of_request) const;

  // Requests that make the model work, from entering until their answers are out.
  int64_t inside() const { return inside_.load(std::memory_order_relaxed); }

  enum class Refused { kQueue, kRequests, kTokens, kConcurrent, kFormats };
  static constexpr std::array<std::string_view, 5> kRefusedNames = {"queue", "requests", "tokens",
                                                                    "concurrent", "formats"};
  int64_t refused(Refused why) const { return refused_[static_cast<size_t>(why)].load(); }

 private:
  friend class Pass;

  api::ApiError rate_limited(const admission::RateLimiter::Refusal& refusal);
  api::ApiError no_room(const Error& error, const ServedModel& model);
  api::ApiError told(const Error& error, const ServedModel& model) const;
  int retry_after_s(int64_t ns) const;
  void count(Refused why) { refused_[static_cast<size_t>(why)].fetch_add(1); }
  void settle(Pass& pass);

  const base::Clock& clock_;
  const std::string secret_;
  std::atomic<std::shared_ptr<const KeyRing>> keys_;
  admission::RateLimiter limiter_;
  std::atomic<int64_t> typical_output_{256};  // tokens of an answer, lately
  std::array<std::atomic<int64_t>, kRefusedNames.size()> refused_{};
  std::atomic<int64_t> inside_{0};
};

}  // namespace pelton::server
