// Codes to sound, whatever the model that does it.
#pragma once

#include <vector>

#include "speech/audio_windows.h"

namespace pelton::speech {

class Vocoder {
 public:
  virtual ~Vocoder() = default;

  virtual int sample_rate() const = 0;
  virtual int frame_samples() const = 0;  // of one frame of seven tokens
  // How many threads may decode at once.
  virtual int threads() const = 0;

  // The samples of the window's kept frame, frame_samples() in [-1, 1]: the same window gives the
  // same samples, whatever was decoded before. Codes are those of its books. `thread`: below
  // threads(), never two calls at once with the same one.
  virtual std::vector<float> kept_frame(const AudioWindow& window, int thread) = 0;
};

}  // namespace pelton::speech
