#include "speech/audio_windows.h"

#include <algorithm>

namespace pelton::speech {

std::array<std::vector<int>, kBooks> books_of(const AudioWindow& window) {
  std::array<std::vector<int>, kBooks> books;
  for (size_t i = 0; i < window.size(); ++i) {
    books[kBookOfSlot[i % kFrameTokens]].push_back(window[i]);
  }
  return books;
}

void AudioWindows::push(int code) {
  last_.push_back(code);
  if (last_.size() > kWindowTokens) last_.pop_front();
  ++size_;
  if (size_ % kFrameTokens != 0 || last_.size() < kWindowTokens) return;
  std::ranges::copy(last_, ready_.emplace_back().begin());
}

std::vector<AudioWindow> AudioWindows::take(size_t count) {
  const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(std::min(count, ready_.size()));
  std::vector<AudioWindow> taken(ready_.begin(), end);
  ready_.erase(ready_.begin(), end);
  return taken;
}

}  // namespace pelton::speech
