// How long answers take and how they end, for all generations together. Times are those of the
// listener: from a request's arrival here, token by token as they are taken from the engine; tokens
// that come several at a time share their interval evenly. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/token_stream.h"
#include "telemetry/histogram.h"

namespace pelton::server {

class GenerationMeter {
 public:
  enum class End { kStop, kLength, kAbort, kError };
  static constexpr std::array<std::string_view, 4> kEndNames = {"stop", "length", "abort", "error"};

  explicit GenerationMeter(const base::Clock& clock);

  struct Histograms {
    telemetry::Histogram first_token_s;
    telemetry::Histogram inter_token_s;
    telemetry::Histogram whole_s;
    // The engine's own times: until a slot, from there to the first token, from that to the last,
    // and the last two together.
    telemetry::Histogram queue_s;
    telemetry::Histogram prefill_s;
    telemetry::Histogram decode_s;
    telemetry::Histogram inference_s;
    telemetry::Histogram delivery_s;  // from the engine's token to where the kernel has its bytes
    telemetry::Histogram prompt_tokens;
    telemetry::Histogram computed_prompt_tokens;  // not found in the prefix cache
    telemetry::Histogram output_tokens;
    telemetry::Histogram longest_output_tokens;  // of the choices of one request
    telemetry::Histogram choices;                // asked for
    telemetry::Histogram output_tokens_max;      // asked for, or what the context leaves
  };
  const Histograms& histograms() const { return histograms_; }
  int64_t ended(End end) const { return ended_[static_cast<size_t>(end)].load(); }
  // Texts of which a vector is made: each is counted above, too, and gives no token.
  struct Vectors {
    std::atomic<int64_t> texts = 0;  // of which there is one
    std::atomic<int64_t> tokens = 0;
    std::atomic<int64_t> open = 0;  // whose requests have not ended
    telemetry::Histogram queue_s;   // from the engine's queue to a step
  };
  const Vectors& vectors() const { return vectors_; }
  int64_t now_ns() const { return clock_.now_ns(); }
  int64_t open() const { return open_.load(); }  // answers that are being made now

 private:
  friend class GenerationWatch;
  friend class VectorWatch;

  const base::Clock& clock_;
  Histograms histograms_;
  Vectors vectors_;
  std::array<std::atomic<int64_t>, kEndNames.size()> ended_{};
  std::atomic<int64_t> open_{0};
};

// One generation's times. Owned by it, on its thread; what has not ended when it goes was aborted.
class GenerationWatch {
 public:
  struct Start {
    size_t choice_count;
    int64_t arrived_ns;
    int output_tokens_max = 0;  // of a choice; 0: not known
  };

  GenerationWatch(GenerationMeter& meter, const Start& start);
  ~GenerationWatch();
  GenerationWatch(const GenerationWatch&) = delete;
  GenerationWatch& operator=(const GenerationWatch&) = delete;

  // One more choice, or another one in place of one that has ended; its times count from now on.
  void begin(size_t choice);
  void tokens(size_t choice, size_t count);
  // A stop string has ended it; that the engine has ended it, too, is still to come.
  void stopped(size_t choice) { choices_[choice].stopped = true; }
  void end(size_t choice, const engine::StreamEnd& end);
  // All tokens up to now have left; the oldest of them was sampled then.
  void delivered(int64_t sampled_ns);

 private:
  struct Choice {
    int64_t arrived_ns = 0;
    int64_t last_ns = 0;
    int64_t tokens = 0;
    bool stopped = false;
    bool ended = false;
  };

  GenerationMeter& meter_;
  std::vector<Choice> choices_;
  int64_t longest_output_ = 0;
};

// The texts of one request for vectors, likewise. Owned by it, on its thread; those that have not
// ended when it goes were aborted.
class VectorWatch {
 public:
  VectorWatch(GenerationMeter& meter, int64_t texts, int64_t arrived_ns);
  ~VectorWatch();
  VectorWatch(const VectorWatch&) = delete;
  VectorWatch& operator=(const VectorWatch&) = delete;

  void end(const engine::StreamEnd& end);  // of one of them

 private:
  GenerationMeter& meter_;
  const int64_t arrived_ns_;
  int64_t left_;
};

}  // namespace pelton::server
