// Any bytes as a WAV file: an error, or finite samples of a rate that is one, no more than the file
// has bytes.
#include <cmath>
#include <cstdint>

#include "audio/wav_file.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const auto sound = audio::read_wav({data, size}, "fuzz");
  if (!sound.ok()) return 0;
  CHECK(sound->sample_rate > 0 && sound->samples.size() <= size);
  for (const float sample : sound->samples) CHECK(std::isfinite(sample));
  return 0;
}
