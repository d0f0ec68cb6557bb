#include "media/sound_child.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <sndfile.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/resample.h"
#include "media/confinement.h"

namespace pelton::media {
namespace {

constexpr int kRate = 16'000;
constexpr int kSampleRateMax = 384'000;
constexpr int kChannelsMax = 64;
constexpr sf_count_t kPieceFrames = 4096;
constexpr int64_t kFileBytesMax = int64_t{1} << 31;

Error bad(std::string what) {
  return {ErrorCode::kInvalidArgument, std::move(what), "file"};
}

// libsndfile reads through these; positions are within the file or refused.
struct Source {
  std::span<const uint8_t> file;
  sf_count_t at = 0;

  static Source& of(void* user) { return *static_cast<Source*>(user); }
  static sf_count_t length(void* user) { return static_cast<sf_count_t>(of(user).file.size()); }
  static sf_count_t seek(sf_count_t offset, int whence, void* user) {
    Source& source = of(user);
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? source.at : length(user);
    const bool fits = offset >= -from && offset <= length(user) - from;
    if (fits) source.at = from + offset;
    return fits ? source.at : -1;
  }
  static sf_count_t read(void* to, sf_count_t count, void* user) {
    Source& source = of(user);
    const sf_count_t got = std::clamp<sf_count_t>(count, 0, length(user) - source.at);
    std::memcpy(to, source.file.data() + source.at, static_cast<size_t>(got));
    source.at += got;
    return got;
  }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
  static sf_count_t position(void* user) { return of(user).at; }
};

bool write_all(int descriptor, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

class Output final : public SampleSink {
 public:
  bool write(std::span<const float> samples) override {
    return write_all(STDOUT_FILENO, samples.data(), samples.size_bytes());
  }
};

int say(const Error& error, int code) {
  const std::string line = error.message + "\n";
  static_cast<void>(write_all(STDERR_FILENO, line.data(), line.size()));
  return code;
}

Result<std::vector<uint8_t>> read_input() {
  struct stat facts {};
  if (::fstat(STDIN_FILENO, &facts) != 0 || facts.st_size < 0 || facts.st_size > kFileBytesMax) {
    return bad("cannot be read");
  }
  std::vector<uint8_t> file(static_cast<size_t>(facts.st_size));
  for (size_t at = 0; at < file.size();) {
    const ssize_t got =
        ::pread(STDIN_FILENO, file.data() + at, file.size() - at, static_cast<off_t>(at));
    if (got <= 0) return bad("cannot be read");
    at += static_cast<size_t>(got);
  }
  return file;
}

int become_ffmpeg(const SoundChildOptions& options) {
  const std::string seconds = fmt::format("{:.0f}", options.seconds_max + 1.0);
  const std::string rate = std::to_string(kRate);
  const char* const words[] = {"ffmpeg",
                               "-nostdin",
                               "-hide_banner",
                               "-xerror",
                               "-loglevel",
                               "error",
                               "-threads",
                               "1",
                               "-protocol_whitelist",
                               "file",
                               "-f",
                               options.demuxer.c_str(),
                               "-i",
                               "/proc/self/fd/0",
                               "-map",
                               "0:a:0",
                               "-t",
                               seconds.c_str(),
                               "-ac",
                               "1",
                               "-ar",
                               rate.c_str(),
                               "-f",
                               "f32le",
                               "pipe:1",
                               nullptr};
  const char* const environment[] = {"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8",
                                     nullptr};
  ::execve(options.ffmpeg.c_str(), const_cast<char**>(words), const_cast<char**>(environment));
  return say(bad(fmt::format("ffmpeg could not be started: {}", std::strerror(errno))), kSoundBad);
}

}  // namespace

Result<void> decode_sound(std::span<const uint8_t> file, double seconds_max, SampleSink& sink) {
  SF_VIRTUAL_IO reads{Source::length, Source::seek, Source::read, Source::write, Source::position};
  Source source{.file = file};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> opened(
      ::sf_open_virtual(&reads, SFM_READ, &info, &source), ::sf_close);
  if (opened == nullptr) return bad(fmt::format("cannot be decoded: {}", ::sf_strerror(nullptr)));
  if (info.channels < 1 || info.channels > kChannelsMax) {
    return bad(fmt::format("has {} channels; 1 to {} are read", info.channels, kChannelsMax));
  }
  if (info.samplerate < 1 || info.samplerate > kSampleRateMax) {
    return bad(
        fmt::format("has a sample rate of {}; 1 to {} are read", info.samplerate, kSampleRateMax));
  }
  const auto frames_max = static_cast<int64_t>(seconds_max * info.samplerate);
  audio::Resampler resampler(info.samplerate, kRate);
  std::vector<float> piece(static_cast<size_t>(kPieceFrames * info.channels));
  std::vector<float> mono;
  std::vector<float> out;
  int64_t frames = 0;
  for (;;) {
    const sf_count_t got = ::sf_readf_float(opened.get(), piece.data(), kPieceFrames);
    if (got <= 0) break;
    frames += got;
    if (frames > frames_max) return Error{ErrorCode::kDoesNotFit, "is too long", "file"};
    mono.clear();
    for (sf_count_t i = 0; i < got; ++i) {
      double sum = 0.0;
      for (int c = 0; c < info.channels; ++c) {
        sum += piece[static_cast<size_t>(i * info.channels + c)];
      }
      const auto sample = static_cast<float>(sum / info.channels);
      mono.push_back(std::isfinite(sample) ? sample : 0.0f);
    }
    out.clear();
    resampler.push(mono, out);
    if (!sink.write(out)) return bad("nobody reads it");
  }
  if (::sf_error(opened.get()) != SF_ERR_NO_ERROR) {
    return bad(fmt::format("is damaged after {:.1f} s: {}",
                           static_cast<double>(frames) / info.samplerate,
                           ::sf_strerror(opened.get())));
  }
  out.clear();
  resampler.finish(out);
  if (!sink.write(out)) return bad("nobody reads it");
  return {};
}

int run_sound_child(const SoundChildOptions& options) {
  // Whoever started it is gone: nobody waits for this.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return kSoundUnconfined;
  const Result<void> bounded =
      bound_process({.cpu_s = options.cpu_s, .memory_bytes = int64_t{2} << 30});
  if (!bounded.ok()) return say(bounded.error(), kSoundUnconfined);
  if (!options.demuxer.empty()) {
    const Result<void> confined =
        leave_only_reading_programs(options.ffmpeg.substr(0, options.ffmpeg.rfind('/') + 1));
    if (!confined.ok()) return say(confined.error(), kSoundUnconfined);
    return become_ffmpeg(options);
  }
  const Result<std::vector<uint8_t>> file = read_input();
  if (!file.ok()) return say(file.error(), kSoundBad);
  const Result<void> confined = leave_only_computing();
  if (!confined.ok()) return say(confined.error(), kSoundUnconfined);
  Output output;
  const Result<void> decoded = decode_sound(*file, options.seconds_max, output);
  if (decoded.ok()) return kSoundRead;
  return say(decoded.error(),
             decoded.error().code == ErrorCode::kDoesNotFit ? kSoundTooLong : kSoundBad);
}

}  // namespace pelton::media
