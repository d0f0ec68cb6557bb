// The process that decodes one file of a foreign format (`pelton read-sound`), which a SoundReader
// starts. The file is its standard input; mono samples of 16 kHz, float32, are its output, an error
// in one line its standard error. Before it looks at a byte it gives up what it does not need
// (media/confinement.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace pelton::media {

struct SoundChildOptions {
  std::string demuxer;  // of ffmpeg, which the process becomes; empty: libsndfile decodes
  std::string ffmpeg;   // the program's path
  double seconds_max = 0.0;
  int cpu_s = 60;
};

// The exit code: kSoundRead, kSoundBad, kSoundTooLong; ffmpeg's own where it became that.
inline constexpr int kSoundRead = 0;
inline constexpr int kSoundBad = 3;
inline constexpr int kSoundTooLong = 4;
inline constexpr int kSoundUnconfined = 5;
int run_sound_child(const SoundChildOptions& options);

// What it does where libsndfile decodes: calls `write` with samples of 16 kHz, piece by piece, as
// long as that is content. Errors: kInvalidArgument with what is wrong; kDoesNotFit: longer than
// `seconds_max`.
class SampleSink {
 public:
  virtual ~SampleSink() = default;
  virtual bool write(std::span<const float> samples) = 0;
};
Result<void> decode_sound(std::span<const uint8_t> file, double seconds_max, SampleSink& sink);

}  // namespace pelton::media
