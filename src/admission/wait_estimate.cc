#include "admission/wait_estimate.h"

#include <algorithm>
#include <cmath>

namespace pelton::admission {

void WaitEstimate::places_are(Places places, int64_t now_ns) {
  const bool taken = places == Places::kTaken;
  if (taken == taken_) return;
  if (taken_) busy_ns_ += std::max<int64_t>(now_ns - taken_since_ns_, 0);
  taken_ = taken;
  taken_since_ns_ = now_ns;
}

// Places that come free while nobody waits show nothing of how fast they could.
void WaitEstimate::place_freed(int64_t now_ns) {
  if (!taken_) return;
  freed_.push_back(busy_ns(now_ns));
  if (freed_.size() > kFreedMax) freed_.pop_front();
}

void WaitEstimate::served(const Served& one) {
  const double fade = std::exp(-1.0 / kMemory);
  const auto add = [&](double& sum, int64_t value) {
    sum = sum * fade + static_cast<double>(std::max<int64_t>(value, 0));
  };
  add(weight_, 1);
  add(prompt_tokens_, one.prompt_tokens);
  add(prefill_ns_, one.prefill_ns);
  add(output_tokens_, one.output_tokens);
  add(decode_steps_, one.output_tokens - 1);
  add(decode_ns_, one.decode_ns);
}

// The time since the last one counts too: where nothing comes free any more, the wait grows.
int64_t WaitEstimate::wait_ns(int64_t places, int64_t now_ns) const {
  if (freed_.size() < kFreedMin) return 0;
  const double elapsed = static_cast<double>(busy_ns(now_ns) - freed_.front());
  const double each = elapsed / static_cast<double>(freed_.size());
  return static_cast<int64_t>(each * static_cast<double>(places));
}

int64_t WaitEstimate::output_tokens(int64_t output_tokens_max) const {
  if (weight_ < kServedMin) return 0;
  return std::min(output_tokens_max, static_cast<int64_t>(std::lround(output_tokens_ / weight_)));
}

int64_t WaitEstimate::first_token_ns(int64_t prompt_tokens) const {
  if (weight_ < kServedMin || prompt_tokens_ <= 0) return 0;
  return static_cast<int64_t>(prefill_ns_ / prompt_tokens_ * static_cast<double>(prompt_tokens));
}

int64_t WaitEstimate::service_ns(int64_t prompt_tokens, int64_t output_tokens_max) const {
  if (weight_ < kServedMin) return 0;
  const double each = decode_steps_ > 0 ? decode_ns_ / decode_steps_ : 0.0;
  const auto steps =
      static_cast<double>(std::max<int64_t>(output_tokens(output_tokens_max) - 1, 0));
  return first_token_ns(prompt_tokens) + static_cast<int64_t>(each * steps);
}

}  // namespace pelton::admission
