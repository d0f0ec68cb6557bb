// A Transcriber's windows of sound that is still being said.
#include <utility>

#include "speech/transcriber.h"

namespace pelton::speech {

Result<std::shared_ptr<Transcriber::Live>> Transcriber::open_live(LiveRequest request) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Error{ErrorCode::kUnavailable, "The model is being unloaded", ""};
  std::erase_if(live_, [](const std::weak_ptr<Live>& live) { return live.expired(); });
  if (std::string why = locked_refusal(request.account); !why.empty()) {
    return Error{ErrorCode::kOverloaded, std::move(why), ""};
  }
  const auto live = std::make_shared<Live>(std::move(request));
  live_.push_back(live);
  return live;
}

void Transcriber::hear_live(const std::shared_ptr<Live>& live, LiveWindow window) {
  {
    const std::lock_guard lock(mutex_);
    live_passes_.push_back(
        {.live = live, .window = std::move(window), .arrived_ns = clock_.now_ns()});
  }
  changed_.notify_all();
}

bool Transcriber::locked_hear_live(Lock& lock) {
  if (live_passes_.empty() || (was_live_ && !heard_.empty())) {
    was_live_ = false;
    return false;
  }
  was_live_ = true;
  LivePass pass = std::move(live_passes_.front());
  live_passes_.pop_front();
  hears_live_ = true;
  lock.unlock();
  hear_pass(std::move(pass));
  lock.lock();
  hears_live_ = false;
  changed_.notify_all();
  return true;
}

void Transcriber::hear_pass(LivePass pass) {
  if (pass.live.expired()) return;
  const auto go_on = [&] {
    const std::shared_ptr<Live> live = pass.live.lock();
    return live != nullptr && !live->is_abandoned_.load();
  };
  const double seconds = static_cast<double>(pass.window.samples.size()) / 16'000.0;
  const bool is_last = pass.window.is_last;
  const int64_t begin_ns = clock_.now_ns();
  Result<LiveText> heard = recogniser_.hear(std::move(pass.window), go_on);
  const int64_t end_ns = clock_.now_ns();
  {
    const std::lock_guard lock(mutex_);
    stats_.busy_seconds += static_cast<double>(end_ns - begin_ns) * 1e-9;
    ++stats_.windows;
    if (heard.ok() && is_last) stats_.audio_seconds += seconds;
  }
  const std::shared_ptr<Live> live = pass.live.lock();
  if (live == nullptr || live->is_abandoned_.load()) return;
  live_text_seconds_.observe(static_cast<double>(end_ns - pass.arrived_ns) * 1e-9);
  live->request_.on_heard(std::move(heard));
}

}  // namespace pelton::speech
