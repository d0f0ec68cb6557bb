// Files in, what is said in them out: a bounded queue before one model. Two threads read sound
// ("pelton-sound": foreign formats by a process of their own), one hears ("pelton-hear"); of the
// recordings that are being heard each has a window in turn, a few of them in one batch, so that a
// long one holds up nobody for more than those windows. A recording that does not fit beside those
// is parked while others are read. Sound that is still being said has its windows between those of
// files. Nothing of it runs on a net thread. Owned by whoever loaded the model; submit and all that
// is const: any thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "speech/recogniser.h"
#include "telemetry/histogram.h"

namespace pelton::speech {

// A file's bytes to mono samples of 16 kHz. Asks `go_on` often. Errors: kInvalidArgument with the
// field 'file' where it is no sound, or too long; kUnsupported where nothing here reads it;
// kCancelled.
using ReadSound = std::function<Result<std::vector<float>>(const std::string& file,
                                                           const std::function<bool()>& go_on)>;

class Transcriber {
 public:
  struct Options {
    int waiting_max = 64;                            // files that wait or are heard
    int64_t waiting_bytes_max = int64_t{256} << 20;  // of those that wait; one may always
    int waiting_per_account_max = 32;                // of those whose account has a name
    // Of recordings that are being heard, in all, and of those parked; one of either may always be.
    double heard_seconds_max = 3000.0;
    double parked_seconds_max = 1500.0;
    int heard_max = 16;
    int batch_max = 1;  // whose windows are heard in one batch
    int beams_max = 1;  // texts of a window that a task may have followed, or drawn
  };

  // All of them outlive it.
  Transcriber(const Options& options, const Recogniser& recogniser, ReadSound read_sound,
              const base::Clock& clock);
  ~Transcriber();  // what still runs ends with kUnavailable
  Transcriber(const Transcriber&) = delete;
  Transcriber& operator=(const Transcriber&) = delete;

  struct Request {
    std::string file;     // its bytes
    std::string account;  // whose it is; empty: anybody's
    Task task;
    std::optional<int64_t> deadline_ns;  // on the clock
    // On the hearing thread, after each window that added some; may be empty.
    std::function<void(std::vector<Segment> added)> on_segments;
    // Once, on one of the two threads, unless it is cancelled; its place is another one's by then.
    // Errors: what read_sound and the recogniser say; kDeadline, kUnavailable.
    std::function<void(Result<Transcript> outcome)> on_end;
  };

  // Whoever holds it wants the text: when it goes, the work ends soon and on_end is not called any
  // more (a call that runs at that moment may come to its end). Any thread; it may outlive the
  // transcriber.
  class Ticket;
  // Errors: the recogniser's of the task; kOverloaded, when the queue is full; kUnavailable.
  Result<std::shared_ptr<Ticket>> submit(Request request);
  // Errors: kInvalidArgument, kUnsupported, with the field.
  Result<void> check(const Task& task) const;

  // A place for sound that is still being said: as long as anybody holds it, it counts as a file
  // that waits. Any thread; it may outlive the transcriber, but gives it no windows then.
  struct LiveRequest {
    std::string account;
    // On the hearing thread, of each window.
    std::function<void(Result<LiveText> heard)> on_heard;
    // Once, on any thread: it is over (the model is being unloaded).
    std::function<void(const Error& error)> on_abandoned;
  };
  class Live;
  // Errors: kOverloaded, when the queue is full; kUnavailable.
  Result<std::shared_ptr<Live>> open_live(LiveRequest request);
  // One window at a time: the next one after its on_heard.
  void hear_live(const std::shared_ptr<Live>& live, LiveWindow window);
  std::string text_of(std::span<const TokenId> tokens) const { return recogniser_.text_of(tokens); }

  // What waits or is heard ends with this error; gives their number.
  int abandon(const Error& error);
  // Waits until nothing waits or is heard, and each on_end has returned, at most so long.
  void drain(int64_t ms);

  // About when half of those who wait have been heard.
  int64_t retry_after_ns() const;

  enum class End { kDone, kRefused, kFailed, kCancelled, kExpired };
  static constexpr std::array<std::string_view, 5> kEndNames = {"done", "refused", "failed",
                                                                "cancelled", "expired"};
  struct Stats {
    int waiting = 0;  // to be read or heard
    int running = 0;  // that are being heard
    int live = 0;     // places of sound that is still being said
    std::array<int64_t, kEndNames.size()> ended{};
    double audio_seconds = 0.0;  // of recordings, and live windows, that were heard to their end
    double busy_seconds = 0.0;   // that hearing took, cancelled ones among them
    int64_t windows = 0;
  };
  Stats stats() const;
  const telemetry::Histogram& queue_seconds() const { return queue_seconds_; }
  const telemetry::Histogram& first_text_seconds() const { return first_text_seconds_; }
  const telemetry::Histogram& audio_seconds() const { return audio_seconds_; }
  // Seconds of sound for each second from arrival to end.
  const telemetry::Histogram& speed() const { return speed_; }
  // From when a live window was there until its text was.
  const telemetry::Histogram& live_text_seconds() const { return live_text_seconds_; }

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  struct LivePass {
    std::weak_ptr<Live> live;
    LiveWindow window;
    int64_t arrived_ns = 0;
  };

  void read_files();
  void hear();
  void read_one(const JobPtr& job);
  // A window of each; gives those that have more.
  std::vector<JobPtr> hear_windows(const std::vector<JobPtr>& jobs);
  // Its window has been heard; whether there are more.
  bool note_window(const JobPtr& job, const Result<bool>& more, int64_t end_ns);
  void hear_pass(LivePass pass);
  void end(const JobPtr& job, End how, Result<Transcript> outcome);
  bool is_wanted(const Job& job) const;
  // With mutex_ held, here and below. What each waits for: something new, or a moment, as a
  // deadline may pass.
  using Lock = std::unique_lock<std::mutex>;
  void locked_wait(Lock& lock);
  // Those in the queues that nobody wants any more have gone, whoever is busy. Lets go of the lock.
  void locked_sweep(Lock& lock);
  void locked_admit_parked();
  bool locked_can_read() const;
  int locked_inside() const;
  // In turn with files' windows; lets go of the lock. Whether there was one.
  bool locked_hear_live(Lock& lock);
  // Why there is no place for a file, or for live sound; empty: there is one.
  std::string locked_refusal(const std::string& account) const;
  std::string locked_refusal_of_bytes(int64_t bytes) const;

  const Options options_;
  const Recogniser& recogniser_;
  const ReadSound read_sound_;
  const base::Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool stopping_ = false;
  std::deque<JobPtr> unread_;
  std::deque<JobPtr> reading_;   // by the sound threads
  std::deque<JobPtr> parked_;    // read, and too long for what is left
  std::deque<JobPtr> heard_;     // in their turn
  std::vector<JobPtr> hearing_;  // have their windows now
  int ending_ = 0;               // whose on_end runs
  std::vector<std::weak_ptr<Live>> live_;
  std::deque<LivePass> live_passes_;
  bool hears_live_ = false;
  bool was_live_ = false;  // the last window heard
  int64_t waiting_bytes_ = 0;
  Stats stats_;

  telemetry::Histogram queue_seconds_;
  telemetry::Histogram first_text_seconds_;
  telemetry::Histogram audio_seconds_;
  telemetry::Histogram speed_;
  telemetry::Histogram live_text_seconds_;

  std::array<std::thread, 2> sound_threads_;  // last: they use all of the above
  std::thread hearing_thread_;
};

class Transcriber::Ticket {
 public:
  explicit Ticket(std::shared_ptr<std::atomic<bool>> cancelled)
      : cancelled_(std::move(cancelled)) {}
  ~Ticket() { cancelled_->store(true, std::memory_order_relaxed); }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

 private:
  const std::shared_ptr<std::atomic<bool>> cancelled_;
};

class Transcriber::Live {
 public:
  explicit Live(LiveRequest request) : request_(std::move(request)) {}

 private:
  friend class Transcriber;
  const LiveRequest request_;
  std::atomic<bool> is_abandoned_ = false;
};

}  // namespace pelton::speech
