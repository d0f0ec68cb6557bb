// How long a request that comes now would wait for its place, and how long it would then take: from
// what was measured lately, so that what cannot be ready in time is refused at once and not
// computed in vain. Rough by nature, and silent (0) until it has seen enough.
//
// Pure: the time is passed in, and never goes back. Belongs to its owner's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace pelton::admission {

class WaitEstimate {
 public:
  // What one request that had a place has cost.
  struct Served {
    int64_t prompt_tokens = 0;
    int64_t prefill_ns = 0;  // from its place to its first token
    int64_t output_tokens = 0;
    int64_t decode_ns = 0;  // from its first token to its last
  };

  // Whether somebody waits because there is no place; called whenever that may have changed.
  enum class Places { kFree, kTaken };
  void places_are(Places places, int64_t now_ns);

  // A place is free again; the request that had it may have been cut short.
  void place_freed(int64_t now_ns);
  // And it was served to its end.
  void served(const Served& one);

  // Until so many places have come free: 0 while it is not known how fast they do.
  int64_t wait_ns(int64_t places, int64_t now_ns) const;

  // From its place to its last token, if it is such a request as there were lately; to its first.
  int64_t service_ns(int64_t prompt_tokens, int64_t output_tokens_max) const;
  int64_t first_token_ns(int64_t prompt_tokens) const;
  // What one may write, as they do lately; at most `output_tokens_max`.
  int64_t output_tokens(int64_t output_tokens_max) const;

 private:
  // So many places that came free while others waited show how fast they do.
  static constexpr size_t kFreedMin = 4;
  static constexpr size_t kFreedMax = 64;
  // A request served so many requests ago counts e times less.
  static constexpr double kMemory = 32.0;
  static constexpr double kServedMin = 4.0;  // of weight, before anything is said

  int64_t busy_ns(int64_t now_ns) const {  // time in which all places were taken
    return busy_ns_ + (taken_ ? now_ns - taken_since_ns_ : 0);
  }

  bool taken_ = false;
  int64_t taken_since_ns_ = 0;
  int64_t busy_ns_ = 0;
  std::deque<int64_t> freed_;  // at which times, counted in busy_ns()

  // Sums over what was served, older ones fading.
  double weight_ = 0;
  double prompt_tokens_ = 0;
  double prefill_ns_ = 0;
  double output_tokens_ = 0;
  double decode_steps_ = 0;
  double decode_ns_ = 0;
};

}  // namespace pelton::admission
