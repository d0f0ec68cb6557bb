// Bytes of sound as a client sends them, piece by piece, as samples of 16 kHz. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "audio/resample.h"

namespace pelton::speech {

class LiveInput {
 public:
  enum class Format : uint8_t {
    kPcm16,  // 24 kHz, little-endian
    kMuLaw,  // G.711 of 8 kHz, as is the next
    kALaw,
  };
  explicit LiveInput(Format format);

  Format format() const { return format_; }
  size_t sample_bytes() const { return format_ == Format::kPcm16 ? 2 : 1; }
  // Appends what is known by now to `out`. `bytes`: whole samples.
  void push(std::string_view bytes, std::vector<float>& out);
  // There is silence behind the last sample; what comes next is another recording.
  void finish(std::vector<float>& out);

 private:
  Format format_;
  audio::Resampler resampler_;
};

}  // namespace pelton::speech
