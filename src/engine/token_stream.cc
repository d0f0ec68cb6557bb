#include "engine/token_stream.h"

#include <cstddef>
#include <utility>

#include "base/check.h"
#include "engine/token_stream_state.h"

namespace pelton::engine {

namespace {

bool has_something(const TokenStream::Batch& batch) {
  return !batch.tokens.empty() || batch.end.has_value();
}

}  // namespace

void TokenStream::State::put(std::optional<SampledToken> token, std::optional<StreamEnd> end,
                             int64_t now_ns) {
  std::lock_guard lock(mutex);
  if (abandoned) return;
  CHECK(!ended, "a token after the end");
  if (token) {
    if (batch.tokens.empty()) batch.sampled_ns = now_ns;
    batch.tokens.push_back(*std::move(token));
    if (++output_tokens == 1) times.first_token_ns = now_ns;
    times.last_token_ns = now_ns;
  }
  if (end) {
    batch.end = std::move(end);
    ended = true;
  }
  announce();
}

bool TokenStream::State::abandon(const Error& error, int64_t now_ns) {
  std::lock_guard lock(mutex);
  if (ended) return false;
  ended = abandoned = true;
  batch.end = StreamEnd{.reason = FinishReason::kError,
                        .prompt_tokens = prompt_tokens,
                        .output_tokens = output_tokens,
                        .error = error,
                        .times = times};
  if (batch.sampled_ns == 0) batch.sampled_ns = now_ns;
  // Should the engine go on after all, then not with this one.
  if (!cancelled.exchange(true, std::memory_order_release)) {
    cancels->fetch_add(1, std::memory_order_release);
  }
  announce();
  return true;
}

void TokenStream::State::announce() {
  if (waited_for) filled.notify_one();
  if (ready && !announced) {
    ready();
    announced = true;
  }
}

void TokenStream::State::put_prompt(std::vector<PromptToken> prompt) {
  std::lock_guard lock(mutex);
  batch.prompt = std::move(prompt);
}

void TokenStream::State::put_found(const PromptFound& found) {
  std::lock_guard lock(mutex);
  batch.found = found;
}

TokenStream::TokenStream(std::shared_ptr<State> state) : state_(std::move(state)) {}

TokenStream::TokenStream(TokenStream&&) noexcept = default;

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  TokenStream leaving(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

TokenStream::~TokenStream() {
  if (!state_) return;
  cancel();
  std::lock_guard lock(state_->mutex);
  state_->ready = nullptr;
}

TokenStream::Batch TokenStream::take() {
  Batch batch;
  take_into(batch);
  return batch;
}

void TokenStream::take_into(Batch& batch) {
  batch.tokens.clear();
  batch.end.reset();
  batch.prompt.clear();
  std::lock_guard lock(state_->mutex);
  state_->announced = false;
  batch.tokens.swap(state_->batch.tokens);
  if (!state_->batch.prompt.empty()) batch.prompt.swap(state_->batch.prompt);
  batch.found = std::exchange(state_->batch.found, std::nullopt);
  if (state_->ended) batch.end = std::exchange(state_->batch.end, std::nullopt);
  batch.sampled_ns = std::exchange(state_->batch.sampled_ns, 0);
}

TokenStream::Batch TokenStream::wait() {
  std::unique_lock lock(state_->mutex);
  state_->waited_for = true;
  state_->filled.wait(lock, [&] { return has_something(state_->batch) || state_->ended; });
  state_->waited_for = false;
  state_->announced = false;
  return std::exchange(state_->batch, {});
}

void TokenStream::on_ready(std::function<void()> ready) {
  std::unique_lock lock(state_->mutex);
  CHECK(!state_->ready, "on_ready is set once");
  state_->ready = std::move(ready);
  if (!has_something(state_->batch)) return;
  state_->announced = true;
  // The reader's own thread: it may take() right here, so not under the lock.
  const std::function<void()> call = state_->ready;
  lock.unlock();
  call();
}

void TokenStream::force(TokenConstraints token_constraints) {
  {
    std::lock_guard lock(state_->mutex);
    state_->token_constraints = std::move(token_constraints);
  }
  state_->has_token_constraints.store(true, std::memory_order_release);
  state_->cancels->fetch_add(1, std::memory_order_release);
}

std::optional<TokenConstraints> TokenStream::State::take_token_constraints() {
  if (!has_token_constraints.exchange(false, std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(mutex);
  return std::exchange(token_constraints, std::nullopt);
}

void TokenStream::cancel() {
  if (state_->cancelled.exchange(true, std::memory_order_release)) return;
  state_->cancels->fetch_add(1, std::memory_order_release);
}

}  // namespace pelton::engine
