// Decodes windows for many answers in turn, on threads of its own: neither the engine's step nor a
// net thread waits for it. An answer has one job here at a time and a job few windows, so whoever
// comes waits for one job of each other answer at most. Owned by whoever loads the model; outlives
// the answers. Any thread may submit.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "speech/vocoder.h"

namespace pelton::speech {

class VocoderQueue {
 public:
  static constexpr size_t kJobWindowsMax = 8;  // 0.7 s of sound

  struct Job {
    std::vector<AudioWindow> windows;  // 1 to kJobWindowsMax
    // On one of the queue's threads, once, unless nobody wants it any more: the kept frames as PCM
    // of 16 bits, one behind the other.
    std::function<void(std::string pcm)> done;
  };
  // Whoever holds it wants the job; letting it go drops what has not begun, and ends what has at
  // the next window. `done` may run at that moment all the same.
  using Ticket = std::shared_ptr<const void>;

  // A thread for each that the vocoder can use.
  explicit VocoderQueue(std::unique_ptr<Vocoder> vocoder);
  ~VocoderQueue();  // drops what waits
  VocoderQueue(const VocoderQueue&) = delete;
  VocoderQueue& operator=(const VocoderQueue&) = delete;

  int sample_rate() const { return vocoder_->sample_rate(); }
  int frame_samples() const { return vocoder_->frame_samples(); }
  [[nodiscard]] Ticket submit(Job job);
  // Jobs that wait or are being decoded.
  size_t size() const;

 private:
  struct Entry {
    Job job;
  };
  void work(int thread);

  const std::unique_ptr<Vocoder> vocoder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::weak_ptr<Entry>> waiting_;  // guarded by mutex_, as are the next
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pelton::speech
