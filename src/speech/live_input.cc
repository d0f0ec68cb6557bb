#include "speech/live_input.h"

#include "audio/g711.h"

namespace pelton::speech {
namespace {

constexpr int kRate = 16'000;

int rate_of(LiveInput::Format format) {
  return format == LiveInput::Format::kPcm16 ? 24'000 : 8'000;
}

float pcm(std::string_view bytes, size_t at) {
  const auto low = static_cast<uint8_t>(bytes[at]);
  const auto high = static_cast<uint8_t>(bytes[at + 1]);
  return static_cast<float>(static_cast<int16_t>(low | high << 8)) / 32768.0f;
}

}  // namespace

LiveInput::LiveInput(Format format) : format_(format), resampler_(rate_of(format), kRate) {}

void LiveInput::push(std::string_view bytes, std::vector<float>& out) {
  std::vector<float> samples(bytes.size() / sample_bytes());
  for (size_t i = 0; i < samples.size(); ++i) {
    switch (format_) {
      case Format::kPcm16:
        samples[i] = pcm(bytes, 2 * i);
        break;
      case Format::kMuLaw:
        samples[i] = audio::sample_of_mu_law(static_cast<uint8_t>(bytes[i]));
        break;
      case Format::kALaw:
        samples[i] = audio::sample_of_a_law(static_cast<uint8_t>(bytes[i]));
        break;
    }
  }
  resampler_.push(samples, out);
}

void LiveInput::finish(std::vector<float>& out) {
  resampler_.finish(out);
  resampler_ = audio::Resampler(rate_of(format_), kRate);
}

}  // namespace pelton::speech
