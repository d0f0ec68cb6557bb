#include "engine/outbox.h"

#include <atomic>
#include <chrono>
#include <iterator>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "engine/token_stream_state.h"

namespace pelton::engine {
namespace {

// A little more than committing a step of many sequences takes.
constexpr std::chrono::microseconds kAwaitMax{500};

void put(Outbox::TokenUpdate& update) {
  TokenStream::State& stream = *update.to;
  if (update.prompt) stream.put_prompt(std::move(*update.prompt));
  if (update.found) stream.put_found(*update.found);
  std::optional<StreamEnd> end;
  if (update.last) end = std::move(update.last->end);
  stream.put(std::move(update.token), std::move(end), update.now_ns);
}

// Who finds no memory for it loses his answer, for one with a hole in it is none; the others behind
// him do not.
void hand_out(Outbox::TokenUpdate& update) {
  try {
    put(update);
  } catch (const std::bad_alloc&) {
    try {
      update.to->abandon({ErrorCode::kUnavailable, "no memory", ""}, update.now_ns);
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace

void Outbox::announce() {
  announced_.store(true, std::memory_order_release);
  wake_();
}

void Outbox::send(std::vector<TokenUpdate>& updates) {
  bool awaited = false;
  {
    std::lock_guard lock(mutex_);
    awaited = awaited_;
    if (sent_.empty()) {
      sent_.swap(updates);
    } else {
      sent_.insert(sent_.end(), std::make_move_iterator(updates.begin()),
                   std::make_move_iterator(updates.end()));
    }
    filled_.store(true, std::memory_order_release);
  }
  if (!awaited) wake_();
  updates.clear();
}

// Gives way meanwhile to whoever wants the processor: it may be the engine, whose updates these
// are.
void Outbox::await() {
  if (!announced_.exchange(false, std::memory_order_acquire)) return;
  {
    std::lock_guard lock(mutex_);
    if (!sent_.empty()) return;
    awaited_ = true;
  }
  const auto until = std::chrono::steady_clock::now() + kAwaitMax;
  while (!filled_.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
}

void Outbox::deliver() {
  await();
  {
    std::lock_guard lock(mutex_);
    awaited_ = false;
    filled_.store(false, std::memory_order_relaxed);
    delivering_.swap(sent_);
  }
  for (TokenUpdate& update : delivering_) hand_out(update);
  delivering_.clear();
}

}  // namespace pelton::engine
