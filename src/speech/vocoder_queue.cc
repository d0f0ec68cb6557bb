#include "speech/vocoder_queue.h"

#include <utility>

#include <pthread.h>

#include "base/check.h"
#include "speech/sound_bytes.h"

namespace pelton::speech {

VocoderQueue::VocoderQueue(std::unique_ptr<Vocoder> vocoder) : vocoder_(std::move(vocoder)) {
  for (int i = 0; i < vocoder_->threads(); ++i) threads_.emplace_back([this, i] { work(i); });
}

VocoderQueue::~VocoderQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

VocoderQueue::Ticket VocoderQueue::submit(Job job) {
  CHECK(!job.windows.empty() && job.windows.size() <= kJobWindowsMax, "a job of some windows");
  auto entry = std::make_shared<Entry>(Entry{std::move(job)});
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(entry);
  }
  changed_.notify_one();
  return entry;
}

size_t VocoderQueue::size() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + running_;
}

void VocoderQueue::work(int thread) {
  (void)pthread_setname_np(pthread_self(), "pelton-vocoder");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const std::weak_ptr<Entry> wanted = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    lock.unlock();
    Job job;
    if (const std::shared_ptr<Entry> entry = wanted.lock()) job = std::move(entry->job);
    std::string pcm;
    for (const AudioWindow& window : job.windows) {
      if (wanted.expired()) break;
      append_pcm(vocoder_->kept_frame(window, thread), pcm);
    }
    if (job.done && !wanted.expired()) job.done(std::move(pcm));
    job = {};
    lock.lock();
    --running_;
  }
}

}  // namespace pelton::speech
