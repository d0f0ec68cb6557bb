#include "audio/wav_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace pelton::audio {
namespace {

// The longest recordings there are, and no more samples than 32 bits count.
constexpr int kSampleRateMax = 768'000;
constexpr int kChannelsMax = 64;

Error bad(const std::string& name, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, what), "file"};
}

uint32_t number(std::span<const uint8_t> bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint32_t{bytes[at + i]} << (8 * i);
  return value;
}

// RIFF's codes of how samples are stored.
enum class Coding : uint16_t { kPcm = 1, kFloat = 3, kExtensible = 0xFFFE };

struct Format {
  Coding coding = Coding::kPcm;
  int channels = 0;
  int sample_rate = 0;
  int bits = 0;

  size_t sample_bytes() const { return static_cast<size_t>(bits) / 8; }
};

Result<Format> read_format(std::span<const uint8_t> chunk, const std::string& name) {
  if (chunk.size() < 16) return bad(name, "its 'fmt ' chunk is too short");
  Format format{.coding = static_cast<Coding>(number(chunk, 0, 2)),
                .channels = static_cast<int>(number(chunk, 2, 2)),
                .sample_rate = static_cast<int>(std::min<uint32_t>(number(chunk, 4, 4), INT32_MAX)),
                .bits = static_cast<int>(number(chunk, 14, 2))};
  // The real code is the beginning of a GUID, behind the size of what follows, valid bits and
  // channel mask.
  if (format.coding == Coding::kExtensible) {
    if (chunk.size() < 40) return bad(name, "its extensible 'fmt ' chunk is too short");
    format.coding = static_cast<Coding>(number(chunk, 24, 2));
  }
  if (format.channels < 1 || format.channels > kChannelsMax) {
    return bad(name,
               fmt::format("has {} channels; 1 to {} are read", format.channels, kChannelsMax));
  }
  if (format.sample_rate < 1 || format.sample_rate > kSampleRateMax) {
    return bad(name, fmt::format("has a sample rate of {}; 1 to {} are read", format.sample_rate,
                                 kSampleRateMax));
  }
  const bool pcm = format.coding == Coding::kPcm && (format.bits == 8 || format.bits == 16 ||
                                                     format.bits == 24 || format.bits == 32);
  const bool floats = format.coding == Coding::kFloat && (format.bits == 32 || format.bits == 64);
  if (pcm || floats) return format;
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("{}: samples of {} bits in coding {}; supported: PCM of 8, 16, 24 and 32 "
                  "bits, floats of 32 and 64",
                  name, format.bits, static_cast<int>(format.coding)),
      "file"};
}

double sample_of(std::span<const uint8_t> bytes, size_t at, const Format& format) {
  const uint32_t low = number(bytes, at, std::min<size_t>(format.sample_bytes(), 4));
  if (format.coding == Coding::kFloat && format.bits == 32) {
    float value;
    std::memcpy(&value, &low, sizeof value);
    return value;
  }
  if (format.coding == Coding::kFloat) {
    double value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  if (format.bits == 8) return (static_cast<double>(low) - 128.0) / 128.0;
  const int shift = 32 - format.bits;
  const auto whole = static_cast<int32_t>(low << shift);  // the sign comes first
  return static_cast<double>(whole) / 2147483648.0;
}

}  // namespace

Result<Sound> read_wav(std::span<const uint8_t> file, const std::string& name) {
  const auto tag = [&](size_t at) {
    return std::string_view(reinterpret_cast<const char*>(file.data()) + at, 4);
  };
  if (file.size() < 12 || tag(0) != "RIFF" || tag(8) != "WAVE") {
    return bad(name, "is no WAV file");
  }
  std::optional<Format> format;
  for (size_t at = 12; at + 8 <= file.size();) {
    const std::string_view kind = tag(at);
    const size_t size = number(file, at + 4, 4);
    const size_t left = file.size() - at - 8;
    if (kind == "fmt ") {
      if (size > left) return bad(name, "its 'fmt ' chunk goes beyond the end");
      TRY_ASSIGN(format, read_format(file.subspan(at + 8, size), name));
    } else if (kind == "data") {
      if (!format) return bad(name, "has no 'fmt ' chunk before its samples");
      // A recording that was cut short, or streamed, says more than there is.
      const auto bytes = file.subspan(at + 8, std::min(size, left));
      const size_t frame = format->sample_bytes() * static_cast<size_t>(format->channels);
      Sound sound{.sample_rate = format->sample_rate, .samples = {}};
      sound.samples.reserve(bytes.size() / frame);
      for (size_t i = 0; i + frame <= bytes.size(); i += frame) {
        double sum = 0.0;
        for (int c = 0; c < format->channels; ++c) {
          sum += sample_of(bytes, i + static_cast<size_t>(c) * format->sample_bytes(), *format);
        }
        const auto mono = static_cast<float>(sum / format->channels);
        sound.samples.push_back(std::isfinite(mono) ? mono : 0.0f);
      }
      return sound;
    }
    if (size > left) break;
    at += 8 + size + size % 2;  // chunks begin at even offsets
  }
  return bad(name, "has no samples");
}

std::vector<uint8_t> write_wav(const Sound& sound) {
  std::vector<uint8_t> file;
  const auto put = [&](uint32_t value, int count) {
    for (int i = 0; i < count; ++i) file.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  const auto text = [&](std::string_view what) {
    file.insert(file.end(), what.begin(), what.end());
  };
  const auto bytes = static_cast<uint32_t>(2 * sound.samples.size());
  const auto rate = static_cast<uint32_t>(sound.sample_rate);
  text("RIFF");
  put(36 + bytes, 4);
  text("WAVEfmt ");
  put(16, 4);
  put(1, 2);
  put(1, 2);
  put(rate, 4);
  put(2 * rate, 4);
  put(2, 2);
  put(16, 2);
  text("data");
  put(bytes, 4);
  for (const float sample : sound.samples) {
    const float scaled = std::clamp(sample, -1.0f, 1.0f) * 32767.0f;
    put(static_cast<uint16_t>(static_cast<int16_t>(std::lrint(scaled))), 2);
  }
  return file;
}

}  // namespace pelton::audio
