#include "engine/courier.h"

#include <atomic>
#include <chrono>
#include <iterator>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "base/prefetch.h"
#include "engine/token_stream_state.h"

namespace pelton::engine {
namespace {

constexpr size_t kForesight = 8;  // letters

// A little more than committing a step of many sequences takes.
constexpr std::chrono::microseconds kAwaitMax{500};

// First the stream, then what it calls.
void foresee(std::span<const Courier::Letter> letters, size_t next) {
  const size_t far = next + kForesight;
  const size_t near = next + kForesight / 2;
  if (far < letters.size()) base::prefetch(letters[far].to, 3 * base::kCacheLineBytes);
  if (near >= letters.size()) return;
  const void* const called = letters[near].to->ready_address.load(std::memory_order_relaxed);
  if (called != nullptr) base::prefetch(called, base::kCacheLineBytes);
}

void put(Courier::Letter& letter) {
  TokenStream::State& stream = *letter.to;
  if (letter.prompt) stream.put_prompt(std::move(*letter.prompt));
  std::optional<StreamEnd> end;
  if (letter.last) end = std::move(letter.last->end);
  stream.put(std::move(letter.token), std::move(end), letter.now_ns);
}

// Who finds no memory for it loses his answer, for one with a hole in it is none; the others behind
// him do not.
void hand_out(Courier::Letter& letter) {
  try {
    put(letter);
  } catch (const std::bad_alloc&) {
    try {
      letter.to->abandon({ErrorCode::kUnavailable, "no memory", ""}, letter.now_ns);
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace

void Courier::announce() {
  announced_.store(true, std::memory_order_release);
  wake_();
}

void Courier::send(std::vector<Letter>& letters) {
  bool awaited = false;
  {
    std::lock_guard lock(mutex_);
    awaited = awaited_;
    if (sent_.empty()) {
      sent_.swap(letters);
    } else {
      sent_.insert(sent_.end(), std::make_move_iterator(letters.begin()),
                   std::make_move_iterator(letters.end()));
    }
    filled_.store(true, std::memory_order_release);
  }
  if (!awaited) wake_();
  letters.clear();
}

// Gives way meanwhile to whoever wants the processor: it may be the engine, whose letters these
// are.
void Courier::await() {
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

void Courier::deliver() {
  await();
  {
    std::lock_guard lock(mutex_);
    awaited_ = false;
    filled_.store(false, std::memory_order_relaxed);
    delivering_.swap(sent_);
  }
  for (size_t i = 0; i < delivering_.size(); ++i) {
    foresee(delivering_, i);
    hand_out(delivering_[i]);
  }
  delivering_.clear();
}

}  // namespace pelton::engine
