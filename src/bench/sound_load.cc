#include "bench/sound_load.h"

#include <chrono>
#include <utility>

namespace pelton::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookTime{50};

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

}  // namespace

void SoundLoad::start(const Plan& plan) {
  int number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || begun_ == plan.count) return;
    number = begun_++;
  }
  Asked asked = plan.ask(number);
  const std::shared_ptr<SoundAnswer> answer = std::move(asked.answer);
  const auto begin = steady_clock::now();
  client_->start(
      std::move(asked.call),
      {.on_start = {},
       .on_head = [answer](int status,
                           const net::HttpHeaders& headers) { answer->head(status, headers); },
       .on_body = [answer,
                   begin](std::string_view bytes) { answer->piece(bytes, seconds_since(begin)); },
       .on_done =
           [this, &plan, answer, begin](const Result<void>& result) {
             answer->end(result, seconds_since(begin));
             start(plan);
             const std::lock_guard lock(mutex_);
             ++done_;  // behind the next one's start, or the run would seem to be over
             changed_.notify_all();
           }});
}

void SoundLoad::wait(const Plan& plan) {
  std::unique_lock lock(mutex_);
  while (done_ < begun_ && !stopped_) {
    changed_.wait_for(lock, kLookTime);
    stopped_ = plan.stops();
    const int done = done_;
    if (!plan.on_done) continue;
    lock.unlock();
    plan.on_done(done);
    lock.lock();
  }
}

double SoundLoad::run(const Plan& plan) {
  begun_ = done_ = 0;
  stopped_ = false;
  const auto begin = steady_clock::now();
  net::HttpClient client({});
  client_ = &client;
  for (int i = 0; i < plan.at_once; ++i) start(plan);
  wait(plan);
  return seconds_since(begin);  // what still runs ends with the client
}

}  // namespace pelton::bench
