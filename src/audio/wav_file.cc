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
// So many bytes of samples, or more, are said by programs that cannot go back to the header, and
// mean "to the end": 0xFFFFFFFF, 0x80000000, and sox's 0x7FFFF000.
constexpr size_t kUnknownSize = 0x7FFFF000;

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
  uint32_t sample_rate = 0;
  int bits = 0;
  int frame_bytes = 0;  // of a sample of each channel, as the file says

  size_t sample_bytes() const { return (static_cast<size_t>(bits) + 7) / 8; }
};

// Of PCM and floats, whether the numbers may be those of one file. 12 bits may stand in 16.
Result<void> check_samples(const Format& format, const std::string& name) {
  const bool is_pcm = format.coding == Coding::kPcm;
  if (!is_pcm && format.coding != Coding::kFloat) return {};
  const bool may_be =
      is_pcm ? format.bits >= 8 && format.bits <= 32 : format.bits == 32 || format.bits == 64;
  if (!may_be) {
    return bad(name, fmt::format("has {} of {} bits; PCM of 8, 16, 24 and 32 bits and floats of 32 "
                                 "and 64 are read",
                                 is_pcm ? "PCM" : "floats", format.bits));
  }
  const size_t expected = format.sample_bytes() * static_cast<size_t>(format.channels);
  if (static_cast<size_t>(format.frame_bytes) == expected) return {};
  return bad(name,
             fmt::format("contradicts itself: {} of {} bits and {} channels are {} bytes, and "
                         "its 'fmt ' chunk says {}",
                         is_pcm ? "PCM" : "floats", format.bits, format.channels, expected,
                         format.frame_bytes));
}

// Also of one whose samples are not read here: which are read is asked of the format then.
Result<Format> read_format(std::span<const uint8_t> chunk, const std::string& name) {
  if (chunk.size() < 16) return bad(name, "its 'fmt ' chunk is too short");
  Format format{.coding = static_cast<Coding>(number(chunk, 0, 2)),
                .channels = static_cast<int>(number(chunk, 2, 2)),
                .sample_rate = number(chunk, 4, 4),
                .bits = static_cast<int>(number(chunk, 14, 2)),
                .frame_bytes = static_cast<int>(number(chunk, 12, 2))};
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
  TRY(check_samples(format, name));
  return format;
}

// Other codings, and PCM of other bits, are for others to read.
Result<void> check_is_read(const Format& format, const std::string& name) {
  const bool pcm = format.coding == Coding::kPcm && (format.bits == 8 || format.bits == 16 ||
                                                     format.bits == 24 || format.bits == 32);
  const bool floats = format.coding == Coding::kFloat && (format.bits == 32 || format.bits == 64);
  if (pcm || floats) return {};
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

// How long the samples are that begin at `at`, of which the file's header says `size`.
Result<size_t> data_bytes(std::span<const uint8_t> file, size_t at, size_t size,
                          const std::string& name) {
  const size_t left = file.size() - at;
  if (size >= kUnknownSize) return std::min(size, left);
  // A program that cannot go back may say 0, too; of a file that has none the whole length is
  // right.
  const bool is_whole = size_t{number(file, 4, 4)} + 8 == file.size();
  if (size == 0 && !is_whole) return left;
  if (size <= left) return size;
  return bad(name, fmt::format("is cut off: its header says {} bytes of samples, and {} are there",
                               size, left));
}

Sound sound_of(std::span<const uint8_t> bytes, const Format& format) {
  const size_t frame = format.sample_bytes() * static_cast<size_t>(format.channels);
  Sound sound{.sample_rate = static_cast<int>(format.sample_rate), .samples = {}};
  sound.samples.reserve(bytes.size() / frame);
  for (size_t i = 0; i + frame <= bytes.size(); i += frame) {
    double sum = 0.0;
    for (int c = 0; c < format.channels; ++c) {
      sum += sample_of(bytes, i + static_cast<size_t>(c) * format.sample_bytes(), format);
    }
    const auto mono = static_cast<float>(sum / format.channels);
    sound.samples.push_back(std::isfinite(mono) ? mono : 0.0f);
  }
  return sound;
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
      TRY_ASSIGN(const size_t bytes, data_bytes(file, at + 8, size, name));
      TRY(check_is_read(*format, name));
      return sound_of(file.subspan(at + 8, bytes), *format);
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
