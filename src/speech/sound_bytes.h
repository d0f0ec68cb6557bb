// Samples as bytes. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace pelton::speech {

// PCM of 16 bits, little-endian: sample * 32767 towards zero, as Orpheus' own program has it; of
// what is no number 0.
void append_pcm(std::span<const float> samples, std::string& out);

// What a WAV file of one channel and 16 bits begins with. `bytes`: of the samples behind it; none:
// not known yet, and the sizes are the largest that there are, which readers take for "to the end".
std::string wav_header(int sample_rate, std::optional<uint64_t> bytes);

}  // namespace pelton::speech
