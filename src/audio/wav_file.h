// A WAV file's samples as floats in [-1, 1], one channel: several are averaged. Every size in the
// file is checked before it is used. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::audio {

struct Sound {
  int sample_rate = 0;
  std::vector<float> samples;

  double seconds() const {
    return sample_rate > 0 ? static_cast<double>(samples.size()) / sample_rate : 0.0;
  }
};

// PCM of 8, 16, 24 and 32 bits, floats of 32 and 64. What the header says of the samples' length
// must be there; 0 and what no file has (from 0x7FFFF000 bytes on), as streams say it, mean "to the
// end". `name` is for messages. Errors: kInvalidArgument, naming what is wrong; kUnsupported for
// other codings, of a file that is whole.
Result<Sound> read_wav(std::span<const uint8_t> file, const std::string& name);

// PCM of 16 bits; what is beyond [-1, 1] is cut.
std::vector<uint8_t> write_wav(const Sound& sound);

}  // namespace pelton::audio
