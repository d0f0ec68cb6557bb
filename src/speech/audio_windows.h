// An answer's codes as windows of four frames, one for each frame from the fourth on, as Orpheus'
// own program decodes them: of a window's sound the second frame is kept, so that each kept frame
// has been decoded with its neighbours. n frames give n - 3 windows; what is no whole frame at the
// end is dropped. A value, of one answer.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <vector>

#include "speech/audio_tokens.h"

namespace pelton::speech {

inline constexpr size_t kWindowFrames = 4;
inline constexpr size_t kWindowTokens = kWindowFrames * kFrameTokens;
// Which of a window's frames is kept, from 0.
inline constexpr size_t kKeptFrame = 1;

// Codes in the order in which they were said.
using AudioWindow = std::array<int, kWindowTokens>;

// The same by book, as the vocoder reads them: 4, 8 and 16 codes.
std::array<std::vector<int>, kBooks> books_of(const AudioWindow& window);

class AudioWindows {
 public:
  void push(int code);
  // How many codes have come.
  size_t size() const { return size_; }

  size_t ready() const { return ready_.size(); }
  // The next `count` (at most ready()).
  std::vector<AudioWindow> take(size_t count);

 private:
  std::deque<int> last_;  // of at most one window
  std::deque<AudioWindow> ready_;
  size_t size_ = 0;
};

}  // namespace pelton::speech
