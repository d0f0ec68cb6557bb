#include "media/sound_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sndfile.h>

#include "base/check.h"

namespace pelton::media {
namespace {

// Newer than some headers, where the library then refuses them: of libsndfile 1.1 and 1.2.
constexpr int kFormatMp3 = 0x230000 | 0x0082;
constexpr int kSetOggPageLatencyMs = 0x1302;
constexpr int kSetBitrateMode = 0x1305;
constexpr int kConstantBitrate = 0;

// How much of the highest rate is left out, from 0 to 1, as libsndfile counts it.
constexpr double kMp3Level = 0.6;     // 64 kbit/s at 24 kHz, the same for each frame
constexpr double kOpusLevel = 0.832;  // 48 kbit/s
// Of Ogg: how much sound a page has. Less is more bytes for pages, more is later sound.
constexpr double kPageMs = 100.0;

struct Format {
  std::string_view name;
  int number = 0;
  bool is_ogg = false;
};
constexpr std::array<Format, 3> kFormats = {{{"mp3", kFormatMp3},
                                             {"opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, true},
                                             {"flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16}}};

// A file that is handed out from its beginning while it is written. libsndfile goes back at the end
// to write how much there is; into what was handed out it writes nothing.
struct Target {
  std::string kept;  // from `handed_out` on
  sf_count_t handed_out = 0;
  sf_count_t at = 0;

  static Target& of(void* user) { return *static_cast<Target*>(user); }
  sf_count_t end() const { return handed_out + static_cast<sf_count_t>(kept.size()); }

  static sf_count_t length(void* user) { return of(user).end(); }
  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    Target& target = of(user);
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? target.at : target.end();
    const bool fits = offset >= -from && offset <= target.end() - from;
    if (fits) target.at = from + offset;
    return fits ? target.at : -1;
  }
  static sf_count_t read(void*, sf_count_t, void*) { return 0; }
  static sf_count_t write(const void* bytes, sf_count_t count, void* user) {
    Target& target = of(user);
    const sf_count_t dropped = std::clamp<sf_count_t>(target.handed_out - target.at, 0, count);
    if (dropped < count) {
      const auto offset = static_cast<size_t>(target.at + dropped - target.handed_out);
      const auto added = static_cast<size_t>(count - dropped);
      target.kept.resize(std::max(target.kept.size(), offset + added));
      std::memcpy(target.kept.data() + offset, static_cast<const char*>(bytes) + dropped, added);
    }
    target.at += count;
    return count;
  }
  static sf_count_t position(void* user) { return of(user).at; }
};

// Of an Ogg page (RFC 3533): polynomial 0x04c11db7, from the highest bit, beginning with 0.
uint32_t ogg_checksum(std::string_view page) {
  constexpr uint32_t kPolynomial = 0x04c11db7;
  uint32_t sum = 0;
  for (const char byte : page) {
    sum ^= static_cast<uint32_t>(static_cast<uint8_t>(byte)) << 24;
    for (int bit = 0; bit < 8; ++bit)
      sum = (sum << 1) ^ ((sum & 0x80000000) != 0 ? kPolynomial : 0);
  }
  return sum;
}

// libsndfile draws the number that all pages of a stream have; here it is always the same, so that
// the same sound is the same bytes. `pages`: whole ones.
void set_stream_number(std::string& pages) {
  constexpr size_t kHeader = 27;
  constexpr size_t kNumber = 14;
  constexpr size_t kChecksum = 22;
  for (size_t at = 0; at + kHeader <= pages.size();) {
    const auto parts = static_cast<size_t>(static_cast<uint8_t>(pages[at + kHeader - 1]));
    size_t size = kHeader + parts;
    CHECK(pages.compare(at, 4, "OggS") == 0 && at + size <= pages.size(),
          "libsndfile writes pages");
    for (size_t i = 0; i < parts; ++i) size += static_cast<uint8_t>(pages[at + kHeader + i]);
    CHECK(at + size <= pages.size(), "libsndfile writes whole pages");
    std::memset(pages.data() + at + kNumber, 0, sizeof(uint32_t));
    std::memset(pages.data() + at + kChecksum, 0, sizeof(uint32_t));
    const uint32_t sum = ogg_checksum(std::string_view(pages).substr(at, size));
    for (size_t i = 0; i < sizeof sum; ++i) {
      pages[at + kChecksum + i] = static_cast<char>(sum >> (8 * i) & 0xff);
    }
    at += size;
  }
}

}  // namespace

struct SoundWriter::State {
  bool is_ogg = false;
  bool is_whole = false;
  Target target;
  SNDFILE* file = nullptr;

  ~State() {
    if (file != nullptr) ::sf_close(file);
  }

  void hand_out(std::string& out) {
    if (is_ogg) set_stream_number(target.kept);
    target.handed_out = target.end();
    out += std::exchange(target.kept, {});
  }
};

SoundWriter::SoundWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SoundWriter::~SoundWriter() = default;

Result<std::unique_ptr<SoundWriter>> SoundWriter::create(const Options& options) {
  const auto* const format = std::ranges::find(kFormats, options.format, &Format::name);
  CHECK(format != kFormats.end(), "a format of the three");
  auto state = std::make_unique<State>();
  state->is_ogg = format->is_ogg;
  state->is_whole = options.is_whole;
  SF_VIRTUAL_IO writes{Target::length, Target::seek, Target::read, Target::write, Target::position};
  SF_INFO info{};
  info.samplerate = options.sample_rate;
  info.channels = 1;
  info.format = format->number;
  state->file = ::sf_open_virtual(&writes, SFM_WRITE, &info, &state->target);
  if (state->file == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("libsndfile here does not write {} of {} Hz: {}", options.format,
                             options.sample_rate, ::sf_strerror(nullptr)),
                 "response_format"};
  }
  if (format->number == kFormatMp3) {
    // As it comes nobody could say a varying rate's length.
    int mode = kConstantBitrate;
    double level = kMp3Level;
    ::sf_command(state->file, kSetBitrateMode, &mode, sizeof mode);
    ::sf_command(state->file, SFC_SET_COMPRESSION_LEVEL, &level, sizeof level);
  } else if (format->is_ogg) {
    double level = kOpusLevel;
    double latency_ms = kPageMs;
    ::sf_command(state->file, SFC_SET_COMPRESSION_LEVEL, &level, sizeof level);
    ::sf_command(state->file, kSetOggPageLatencyMs, &latency_ms, sizeof latency_ms);
  }
  return std::unique_ptr<SoundWriter>(new SoundWriter(std::move(state)));
}

void SoundWriter::push(std::span<const int16_t> samples, std::string& out) {
  const auto count = static_cast<sf_count_t>(samples.size());
  CHECK(::sf_write_short(state_->file, samples.data(), count) == count,
        "libsndfile takes samples as long as there is memory");
  if (!state_->is_whole) state_->hand_out(out);
}

void SoundWriter::finish(std::string& out) {
  ::sf_close(std::exchange(state_->file, nullptr));
  state_->hand_out(out);
}

std::vector<std::string> written_formats(int sample_rate) {
  std::vector<std::string> formats;
  for (const Format& format : kFormats) {
    if (SoundWriter::create({.format = format.name, .sample_rate = sample_rate}).ok()) {
      formats.emplace_back(format.name);
    }
  }
  return formats;
}

}  // namespace pelton::media
