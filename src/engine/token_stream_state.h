// The half of a token stream that the engine holds, and what both halves share. The lock is held
// for a few moves only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/token_stream.h"

namespace pelton::engine {

// How often any stream was cancelled or forced: the engine looks through its streams only when this
// has moved.
using CancelCount = std::atomic<int64_t>;

struct TokenStream::State {
  // What is known of the answer before the engine says anything of it.
  struct Asked {
    int prompt_tokens = 0;
    int64_t queued_ns = 0;
  };
  State(const Asked& asked, std::shared_ptr<CancelCount> cancels)
      : cancels(std::move(cancels)), prompt_tokens(asked.prompt_tokens) {
    times.queued_ns = asked.queued_ns;
  }

  // Engine thread. Nothing may follow an end of its own.
  void put(std::optional<SampledToken> token, std::optional<StreamEnd> end, int64_t now_ns);
  // Before the first token, and emitted with it.
  void put_prompt(std::vector<PromptToken> prompt);
  void put_found(const PromptFound& found);

  // Any thread: ends it for its reader though the engine has not, with what it has emitted so far;
  // how much of the prompt was cached, and when it was scheduled, only the engine knows. What the
  // engine still puts is dropped. False: it had ended.
  bool abandon(const Error& error, int64_t now_ns);

  void announce();  // with the lock held

  std::optional<TokenConstraints> take_token_constraints();  // engine thread

  // What every token touches stands together: of hundreds of streams in one step each is cold.
  std::mutex mutex;
  bool ended = false;      // an end was put, taken or not
  bool abandoned = false;  // and not by the engine
  bool announced = false;  // `ready` was called since the last take
  bool waited_for = false;
  std::function<void()> ready;  // called with the lock held: after ~TokenStream it never runs
  Batch batch;                  // what the reader has not taken
  int output_tokens = 0;        // that were put
  RequestTimes times;           // of these

  std::atomic<bool> cancelled{false};
  std::atomic<bool> has_token_constraints{false};
  const std::shared_ptr<CancelCount> cancels;
  const int prompt_tokens;
  std::condition_variable filled;
  std::optional<TokenConstraints> token_constraints;
};

}  // namespace pelton::engine
