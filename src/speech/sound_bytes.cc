#include "speech/sound_bytes.h"

#include <algorithm>
#include <cmath>

namespace pelton::speech {
namespace {

constexpr uint32_t kHeaderRest = 36;  // of the header, behind its own size
constexpr uint16_t kPcm = 1;
constexpr uint16_t kSampleBytes = 2;

template <typename Number>
void append(Number number, std::string& out) {
  for (size_t i = 0; i < sizeof(Number); ++i) {
    out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  }
}

}  // namespace

void append_pcm(std::span<const float> samples, std::string& out) {
  for (const float sample : samples) {
    const float known = std::isnan(sample) ? 0.0f : sample;  // of weights that are damaged
    const float bounded = std::clamp(known, -1.0f, 1.0f) * 32767.0f;
    append(static_cast<uint16_t>(static_cast<int16_t>(bounded)), out);
  }
}

std::string wav_header(int sample_rate, std::optional<uint64_t> bytes) {
  const bool fits = bytes && *bytes <= UINT32_MAX - kHeaderRest;
  const uint32_t data = fits ? static_cast<uint32_t>(*bytes) : UINT32_MAX;
  const auto rate = static_cast<uint32_t>(sample_rate);
  std::string out = "RIFF";
  append(fits ? data + kHeaderRest : UINT32_MAX, out);
  out += "WAVEfmt ";
  append(uint32_t{16}, out);
  append(kPcm, out);
  append(uint16_t{1}, out);
  append(rate, out);
  append(rate * kSampleBytes, out);
  append(kSampleBytes, out);
  append(static_cast<uint16_t>(8 * kSampleBytes), out);
  out += "data";
  append(data, out);
  return out;
}

}  // namespace pelton::speech
