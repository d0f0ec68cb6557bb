#include "bench/played_stream.h"

namespace pelton::bench {

void PlayedStream::arrive(double at_s, double sound_s) {
  if (sound_s <= 0.0) return;
  sound_s_ += sound_s;
  if (!plays_) {
    held_s_ += sound_s;
    if (held_s_ < buffer_s_) return;
    plays_ = true;
    ends_at_s_ = at_s + held_s_;
    return;
  }
  if (at_s > ends_at_s_) {
    ++underruns_;
    waited_s_ += at_s - ends_at_s_;
    ends_at_s_ = at_s;
  }
  ends_at_s_ += sound_s;
}

}  // namespace pelton::bench
