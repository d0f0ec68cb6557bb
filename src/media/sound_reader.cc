#include "media/sound_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audio/resample.h"
#include "audio/wav_file.h"
#include "base/descriptor.h"
#include "media/sound_child.h"

namespace pelton::media {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRate = 16'000;
constexpr float kLoudest = 32.0f;  // beyond that nothing was recorded
constexpr int kEndMs = 5000;       // between the end of its output and its own
constexpr int kEndLookMs = 2;
constexpr int kLookMs = 50;  // how late a cancel is noticed
constexpr size_t kErrorBytesMax = 512;
// Of processor time: to start, for a MiB of the file, for a minute of the longest sound.
constexpr int kStartCpuSeconds = 10;
constexpr int kCpuSecondsOfMiB = 2;
constexpr int kMinutesOfCpuSecond = 1;
constexpr int kFirstFree = 16;  // descriptors that are given to the child stand above

Error failed(const char* step) {
  return {ErrorCode::kUnavailable,
          fmt::format("the process that reads sound could not be started: {}: {}", step,
                      std::strerror(errno)),
          {}};
}

// One line of printable ASCII: it is of a foreign library's, on foreign bytes.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, text.find('\n'))) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

struct Child {
  pid_t process = -1;
  base::Descriptor output;
  base::Descriptor errors;
};

Result<void> fill(int descriptor, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t put = ::write(descriptor, bytes.data() + at, bytes.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failed("write");
    at += static_cast<size_t>(put);
  }
  return {};
}

Result<void> start(const std::string& program, const std::vector<std::string>& words, int input,
                   Child& child) {
  int output[2];
  int errors[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return failed("pipe");
  child.output.reset(output[0]);
  base::Descriptor output_end(output[1]);
  if (::pipe2(errors, O_CLOEXEC) != 0) return failed("pipe");
  child.errors.reset(errors[0]);
  base::Descriptor errors_end(errors[1]);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  // A group of its own, which is ended as a whole, and not by the terminal's Ctrl-C.
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  // First above those that are to be set, which may be any of them.
  const std::array<int, 3> given = {::fcntl(input, F_DUPFD_CLOEXEC, kFirstFree),
                                    ::fcntl(output_end.get(), F_DUPFD_CLOEXEC, kFirstFree),
                                    ::fcntl(errors_end.get(), F_DUPFD_CLOEXEC, kFirstFree)};
  int refused = 0;
  for (int i = 0; i < 3; ++i) {
    const int descriptor = given[static_cast<size_t>(i)];
    if (descriptor < 0) refused = EMFILE;
    const int added = ::posix_spawn_file_actions_adddup2(&actions, std::max(descriptor, 0), i);
    if (added != 0) refused = added;
  }
  if (::posix_spawn_file_actions_addclosefrom_np(&actions, 3) != 0) refused = ENOMEM;
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  // Nothing of ours is in its environment: keys stand there.
  std::string path = "PATH=/usr/bin:/bin";
  std::array<char*, 2> environment = {path.data(), nullptr};
  const int failure = refused != 0
                          ? refused
                          : ::posix_spawn(&child.process, program.c_str(), &actions, &attributes,
                                          pointers.data(), environment.data());
  for (const int descriptor : given) {
    if (descriptor >= 0) ::close(descriptor);
  }
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  errno = failure;
  return failure == 0 ? Result<void>() : failed(program.c_str());
}

// What it wrote until it ended, or was ended.
struct Outcome {
  std::vector<float> samples;
  std::string error;
  int status = 0;
  enum class Why { kEnded, kCancelled, kTimeOut, kTooLong } why = Why::kEnded;
};

class Reading {
 public:
  Reading(Child& child, double seconds_max, const std::function<bool()>& go_on)
      : child_(child),
        bytes_max_(static_cast<size_t>((seconds_max + 1.0) * kRate) * sizeof(float)),
        go_on_(go_on) {}

  Outcome run(std::chrono::seconds wall) {
    const Clock::time_point end = Clock::now() + wall;
    std::array<pollfd, 2> open = {
        {{child_.output.get(), POLLIN, 0}, {child_.errors.get(), POLLIN, 0}}};
    while (open[0].fd >= 0 || open[1].fd >= 0) {
      ::poll(open.data(), open.size(), kLookMs);
      for (pollfd& one : open) {
        if (one.fd >= 0 && one.revents != 0 && !take(one.fd, one.fd == child_.errors.get())) {
          one.fd = -1;
        }
      }
      if (bytes_ > bytes_max_) return over(Outcome::Why::kTooLong);
      if (!go_on_()) return over(Outcome::Why::kCancelled);
      if (Clock::now() > end) return over(Outcome::Why::kTimeOut);
    }
    return over(Outcome::Why::kEnded);
  }

 private:
  // False: nothing more comes.
  bool take(int descriptor, bool is_error) {
    const ssize_t got = ::read(descriptor, piece_.data(), piece_.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) return false;
    const auto count = static_cast<size_t>(got);
    if (is_error) {
      const size_t room = kErrorBytesMax - std::min(kErrorBytesMax, made_.error.size());
      made_.error.append(piece_.data(), std::min(count, room));
      return true;
    }
    made_.samples.resize((bytes_ + count + sizeof(float) - 1) / sizeof(float));
    std::memcpy(reinterpret_cast<char*>(made_.samples.data()) + bytes_, piece_.data(), count);
    bytes_ += count;
    return true;
  }

  // One that has closed its output has nothing more to do.
  bool ends_by_itself() {
    for (int look = 0; look < kEndMs / kEndLookMs; ++look) {
      if (::waitpid(child_.process, &made_.status, WNOHANG) == child_.process) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(kEndLookMs));
    }
    return false;
  }

  Outcome over(Outcome::Why why) {
    made_.why = why;
    made_.samples.resize(bytes_ / sizeof(float));  // of a piece of a sample nothing is kept
    if (why == Outcome::Why::kEnded && ends_by_itself()) return std::move(made_);
    ::kill(-child_.process, SIGKILL);
    while (::waitpid(child_.process, &made_.status, 0) < 0 && errno == EINTR) continue;
    return std::move(made_);
  }

  Child& child_;
  const size_t bytes_max_;
  const std::function<bool()>& go_on_;
  std::array<char, size_t{64} << 10> piece_;
  size_t bytes_ = 0;
  Outcome made_;
};

}  // namespace

Error SoundReader::too_long(const std::string& name) const {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} is longer than {:.0f} s, which is the most that is read "
                      "(--max-audio-seconds)",
                      name, options_.seconds_max),
          "file"};
}

Result<std::vector<float>> SoundReader::read(const std::string& bytes, const std::string& name,
                                             const std::function<bool()>& go_on) const {
  const SoundFormat format =
      sound_format({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (format == SoundFormat::kUnknown) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} is no sound that is known here, whatever it is called: WAV, FLAC, "
                    "MP3, Ogg, AIFF, AU and CAF are read, WebM, MP4, M4A, AAC, WMA and AMR "
                    "where ffmpeg is installed",
                    name),
        "file"};
  }
  Result<std::vector<float>> samples = format == SoundFormat::kWav
                                           ? read_wave(bytes, name, go_on)
                                           : read_beside(bytes, name, format, go_on);
  if (!samples.ok()) return samples;
  for (float& sample : *samples) {
    sample = std::isfinite(sample) ? std::clamp(sample, -kLoudest, kLoudest) : 0.0f;
  }
  if (!samples->empty()) return samples;
  return Error{ErrorCode::kInvalidArgument, fmt::format("{} has no samples", name), "file"};
}

// Codings that are rarer than PCM are libsndfile's.
Result<std::vector<float>> SoundReader::read_wave(const std::string& bytes, const std::string& name,
                                                  const std::function<bool()>& go_on) const {
  Result<audio::Sound> sound =
      audio::read_wav({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, name);
  if (!sound.ok() && sound.error().code == ErrorCode::kUnsupported) {
    return read_beside(bytes, name, SoundFormat::kWav, go_on);
  }
  if (!sound.ok()) return sound.error();
  if (sound->seconds() > options_.seconds_max) return too_long(name);
  constexpr size_t kPiece = size_t{1} << 18;
  audio::Resampler resampler(sound->sample_rate, kRate);
  const std::span<const float> whole(sound->samples);
  std::vector<float> made;
  for (size_t at = 0; at < whole.size(); at += kPiece) {
    if (!go_on()) return Error{ErrorCode::kCancelled, "stopped", {}};
    resampler.push(whole.subspan(at, std::min(kPiece, whole.size() - at)), made);
  }
  resampler.finish(made);
  return made;
}

Result<std::vector<float>> SoundReader::read_beside(const std::string& bytes,
                                                    const std::string& name, SoundFormat format,
                                                    const std::function<bool()>& go_on) const {
  const std::string demuxer(ffmpeg_demuxer(format));
  if (!demuxer.empty() && options_.ffmpeg.empty()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} is {}, which the program ffmpeg reads, and that is not installed "
                             "here; WAV, FLAC, MP3 and Ogg are read without it",
                             name, format_name(format)),
                 "file"};
  }
  base::Descriptor input(::memfd_create("sound", MFD_CLOEXEC));
  if (input.get() < 0) return failed("memfd_create");
  TRY(fill(input.get(), bytes));
  ::lseek(input.get(), 0, SEEK_SET);
  const int cpu_s = kStartCpuSeconds + kCpuSecondsOfMiB * static_cast<int>(bytes.size() >> 20) +
                    static_cast<int>(options_.seconds_max / (60.0 * kMinutesOfCpuSecond));
  const std::vector<std::string> words = {"pelton",
                                          "read-sound",
                                          fmt::format("{}", options_.seconds_max),
                                          std::to_string(cpu_s),
                                          demuxer,
                                          demuxer.empty() ? std::string() : options_.ffmpeg};
  Child child;
  TRY(start(options_.program, words, input.get(), child));
  Outcome outcome =
      Reading(child, options_.seconds_max, go_on).run(std::chrono::seconds(2 * cpu_s));
  switch (outcome.why) {
    case Outcome::Why::kCancelled:
      return Error{ErrorCode::kCancelled, "stopped", {}};
    case Outcome::Why::kTooLong:
      return too_long(name);
    case Outcome::Why::kTimeOut:
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} takes more than {} s to decode", name, 2 * cpu_s), "file"};
    case Outcome::Why::kEnded:
      break;
  }
  const int code = WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -1;
  if (code == kSoundTooLong) return too_long(name);
  if (code == kSoundUnconfined) return Error{ErrorCode::kUnavailable, plain(outcome.error), {}};
  if (code == kSoundRead) {
    const auto most = static_cast<size_t>(options_.seconds_max * kRate);
    if (outcome.samples.size() > most) return too_long(name);
    return std::move(outcome.samples);
  }
  const std::string why = plain(outcome.error);
  return Error{ErrorCode::kInvalidArgument,
               code == -1 ? fmt::format("{}: its {} decoder was ended, as it took more time or "
                                        "memory than it may, or broke",
                                        name, format_name(format))
                          : fmt::format("{} {}", name, why.empty() ? "cannot be decoded" : why),
               "file"};
}

std::string find_ffmpeg() {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string program = std::string(rest.substr(0, end)) + "/ffmpeg";
    if (rest.starts_with('/') && ::access(program.c_str(), X_OK) == 0) return program;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

}  // namespace pelton::media
