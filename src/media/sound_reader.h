// Files with sound to mono samples of 16 kHz. WAV is read here; what needs a decoder by a process
// of its own that is confined and ended when its time is over (media/sound_child.h): FLAC, MP3, Ogg
// Vorbis and Opus by libsndfile, others by the program ffmpeg where there is one. Immutable; any
// thread, each file on the one that asks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "media/sound_format.h"

namespace pelton::media {

class SoundReader {
 public:
  struct Options {
    double seconds_max = 1500.0;
    // With the words "read-sound ..." it is the child.
    std::string program = "/proc/self/exe";
    // Empty: none. find_ffmpeg() looks where programs are.
    std::string ffmpeg;
  };
  explicit SoundReader(Options options) : options_(std::move(options)) {}

  // `name`: for messages, "file". Errors: kInvalidArgument with field 'file': it is no sound, is
  // damaged, has no samples, or is longer than seconds_max; kUnsupported: nothing here reads it;
  // kCancelled: `go_on`, which is asked often, said no.
  Result<std::vector<float>> read(const std::string& bytes, const std::string& name,
                                  const std::function<bool()>& go_on) const;

 private:
  Result<std::vector<float>> read_wave(const std::string& bytes, const std::string& name,
                                       const std::function<bool()>& go_on) const;
  Result<std::vector<float>> read_beside(const std::string& bytes, const std::string& name,
                                         SoundFormat format,
                                         const std::function<bool()>& go_on) const;
  Error too_long(const std::string& name) const;

  const Options options_;
};

// The first of PATH's folders with a program of this name; empty: none.
std::string find_ffmpeg();

}  // namespace pelton::media
