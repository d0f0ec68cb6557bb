// Files of every format that libsndfile writes, whole, cut and damaged, through a process of their
// own: which is this test's program again.
#include "media/sound_reader.h"

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sndfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audio/wav_file.h"
#include "media/confinement.h"
#include "media/sound_child.h"

namespace pelton::media {
namespace {

// Before main(): whether this process was started as the child. "hang" as a demuxer does what a
// decoder without end does.
[[gnu::constructor]] void be_child() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.size() < 4 || words[1] != "read-sound") return;
  _exit(run_sound_child({.demuxer = words.size() > 4 ? words[4] : "",
                         .ffmpeg = words.size() > 5 ? words[5] : "",
                         .seconds_max = std::strtod(words[2].c_str(), nullptr),
                         .cpu_s = std::atoi(words[3].c_str())}));
}

const auto kGo = [] { return true; };

std::vector<short> tone(double seconds, int rate, int channels = 1) {
  std::vector<short> samples;
  for (int i = 0; i < static_cast<int>(seconds * rate); ++i) {
    const double value = 12'000.0 * std::sin(2.0 * M_PI * 440.0 * i / rate);
    for (int c = 0; c < channels; ++c) samples.push_back(static_cast<short>(value));
  }
  return samples;
}

// Empty: this library cannot.
std::string encoded(int format, const std::vector<short>& samples, int rate, int channels = 1,
                    int times = 1) {
  std::string path = testing::TempDir() + "media-XXXXXX";
  const int descriptor = ::mkstemp(path.data());
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* const file = ::sf_open_fd(descriptor, SFM_WRITE, &info, 0);
  std::string bytes;
  if (file != nullptr) {
    for (int i = 0; i < times; ++i) {
      ::sf_writef_short(file, samples.data(), static_cast<sf_count_t>(samples.size()) / channels);
    }
    ::sf_close(file);
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    bytes = all.str();
  }
  ::close(descriptor);
  ::unlink(path.c_str());
  return bytes;
}

SoundReader reader(double seconds_max = 60.0, std::string ffmpeg = {}) {
  return SoundReader({.seconds_max = seconds_max, .ffmpeg = std::move(ffmpeg)});
}

constexpr int kFlac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;

TEST(SoundReader, FormatsComeOutAsTheyWentIn) {
  struct Row {
    const char* name;
    int format;
    int rate;
    int channels;
    double tolerance;
  };
  const Row rows[] = {{"flac", kFlac, 16'000, 1, 1e-4},
                      {"flac 44.1", kFlac, 44'100, 2, 2e-3},
                      {"flac 192", kFlac, 192'000, 8, 2e-3},
                      {"wav", SF_FORMAT_WAV | SF_FORMAT_PCM_24, 16'000, 1, 1e-4},
                      {"wav u-law", SF_FORMAT_WAV | SF_FORMAT_ULAW, 16'000, 1, 0.02},
                      {"aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 22'050, 1, 2e-3},
                      {"vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16'000, 1, 0.1},
                      {"opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48'000, 1, 0.1},
                      {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44'100, 1, 0.1}};
  for (const Row& row : rows) {
    const std::string file =
        encoded(row.format, tone(1.0, row.rate, row.channels), row.rate, row.channels);
    if (file.empty()) continue;
    const auto read = reader().read(file, row.name, kGo);
    ASSERT_TRUE(read.ok()) << row.name << ": " << read.error().message;
    EXPECT_NEAR(static_cast<double>(read->size()), 16'000, 1600) << row.name;
    if (row.tolerance > 0.05) continue;  // encoders shift
    for (size_t i = 2000; i < 14'000; ++i) {
      const double exact =
          12'000.0 / 32'768.0 * std::sin(2.0 * M_PI * 440.0 * static_cast<double>(i) / 16'000);
      ASSERT_NEAR((*read)[i], exact, row.tolerance) << row.name << " " << i;
    }
  }
}

TEST(SoundReader, LongOnesAreNotReadToTheirEnd) {
  // Ten hours of silence: a decompression bomb.
  const std::string bomb = encoded(kFlac, std::vector<short>(1000 * 60), 1000, 1, 600);
  ASSERT_LT(bomb.size(), size_t{4} << 20);
  const auto read = reader(30.0).read(bomb, "bomb", kGo);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("longer than 30 s"), std::string::npos)
      << read.error().message;
  // One sample a second: as long, and small.
  const auto slow = audio::write_wav({.sample_rate = 1, .samples = std::vector<float>(100)});
  EXPECT_FALSE(reader(30.0).read({slow.begin(), slow.end()}, "slow", kGo).ok());
}

TEST(SoundReader, DamagedFilesAreAnErrorOrShorter) {
  const char* const seed_text = std::getenv("PELTON_SEED");
  const unsigned seed =
      seed_text != nullptr ? static_cast<unsigned>(std::atoi(seed_text)) : std::random_device()();
  std::printf("PELTON_SEED=%u\n", seed);
  std::mt19937 random(seed);
  for (const int format :
       {kFlac, SF_FORMAT_OGG | SF_FORMAT_VORBIS, SF_FORMAT_OGG | SF_FORMAT_OPUS,
        SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, SF_FORMAT_AIFF | SF_FORMAT_IMA_ADPCM,
        SF_FORMAT_CAF | SF_FORMAT_ALAC_16}) {
    const std::string whole = encoded(format, tone(0.5, 16'000), 16'000);
    if (whole.empty()) continue;
    for (int i = 0; i < 12; ++i) {
      std::string file = whole;
      if (i % 3 == 0) file.resize(random() % file.size());
      for (unsigned k = 0; !file.empty() && k < random() % 20; ++k) {
        file[random() % file.size()] = static_cast<char>(random());
      }
      const auto read = reader(5.0).read(file, "damaged", kGo);
      if (read.ok()) {
        EXPECT_LE(read->size(), 5U * 16'000U);
        for (const float sample : *read) ASSERT_TRUE(std::isfinite(sample));
      } else {
        EXPECT_EQ(read.error().field, "file") << read.error().message;
      }
    }
  }
}

TEST(SoundReader, WhatIsNoNumberIsSilence) {
  // A WAV file of floats.
  std::vector<uint8_t> file =
      audio::write_wav({.sample_rate = 16'000, .samples = std::vector<float>(8)});
  file[20] = 3;   // floats
  file[32] = 4;   // bytes of a frame
  file[34] = 32;  // bits
  const float values[] = {std::nanf(""), INFINITY, -1e30f, 0.5f};
  std::memcpy(file.data() + 44, values, sizeof values);
  const auto read = reader().read({file.begin(), file.end()}, "a.wav", kGo);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, (std::vector<float>{0.0f, 0.0f, -32.0f, 0.5f}));
}

TEST(SoundReader, WhatNobodyReadsIsSaid) {
  const auto unknown = reader().read("hello", "a.wav", kGo);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  const auto webm = reader().read("\x1A\x45\xDF\xA3 more", "a.webm", kGo);
  EXPECT_EQ(webm.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(webm.error().message.find("ffmpeg"), std::string::npos);
  EXPECT_FALSE(reader().read("", "nothing", kGo).ok());
  const auto empty = audio::write_wav({.sample_rate = 16'000, .samples = {}});
  EXPECT_NE(
      reader().read({empty.begin(), empty.end()}, "a.wav", kGo).error().message.find("no samples"),
      std::string::npos);
}

// A program in ffmpeg's place that never ends.
TEST(SoundReader, WhoeverNoLongerWantsItEndsTheProcess) {
  const std::string program = testing::TempDir() + "never_ends";
  std::ofstream(program) << "#!/bin/sh\nexec sleep 60\n";
  ::chmod(program.c_str(), 0755);
  int asked = 0;
  const auto read =
      reader(5.0, program).read("\x1A\x45\xDF\xA3 more", "a.webm", [&] { return ++asked < 3; });
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kCancelled) << read.error().message;
  // Nor does one that says nothing more keep anybody.
  std::ofstream(program) << "#!/bin/sh\nexec sleep 60 >&- 2>&-\n";
  EXPECT_FALSE(reader(5.0, program).read("\x1A\x45\xDF\xA3 more", "a.webm", kGo).ok());
  const auto none = SoundReader({.program = "/nowhere"}).read("fLaC", "a", kGo);
  EXPECT_EQ(none.error().code, ErrorCode::kUnavailable);
}

// What a child of this test may still do: its exit code.
int code_of(const std::function<int()>& child) {
  const pid_t process = ::fork();
  if (process == 0) _exit(child());
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Confinement, NothingIsOpenedMadeOrReached) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "their runtime needs more calls";
#endif
  const auto tries = [](const std::function<bool()>& act) {
    return code_of([&] {
      if (!leave_only_computing().ok()) return 99;
      return act() ? 1 : errno == EPERM ? 0 : 2;
    });
  };
  EXPECT_EQ(tries([] { return ::open("/etc/passwd", O_RDONLY) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::socket(AF_INET, SOCK_STREAM, 0) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::fork() >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::execl("/bin/true", "true", nullptr) == 0; }), 0);
  EXPECT_EQ(tries([] { return ::kill(::getppid(), 0) == 0; }), 0);
  EXPECT_EQ(tries([] { return std::vector<char>(size_t{8} << 20).size() > 0; }), 1);  // it computes
  EXPECT_GT(code_of([] {
              if (!bound_process({.cpu_s = 1, .memory_bytes = int64_t{1} << 30}).ok()) return 99;
              for (;;) asm volatile("");
            }),
            128);  // by a signal
}

TEST(Confinement, AProgramReadsProgramsAlone) {
  const auto tries = [](const std::function<bool()>& act) {
    return code_of([&] {
      if (!leave_only_reading_programs("/usr/bin/").ok()) return 99;
      return act() ? 1 : errno == EPERM || errno == EACCES ? 0 : 2;
    });
  };
  EXPECT_EQ(tries([] { return ::open("/usr/bin/env", O_RDONLY) >= 0; }), 1);
  EXPECT_EQ(tries([] { return ::open("/etc/passwd", O_RDONLY) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::open("/proc/1/environ", O_RDONLY) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::open("/tmp/pelton-never", O_WRONLY | O_CREAT, 0600) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::open("/usr/pelton-never", O_RDWR | O_CREAT, 0600) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::unlink("/tmp/pelton-never") == 0; }), 0);
  EXPECT_EQ(tries([] { return ::fork() >= 0; }), 0);
  EXPECT_EQ(tries([] { return ::kill(::getppid(), 0) == 0; }), 0);
  EXPECT_EQ(tries([] {
              std::thread([] {}).join();
              return true;
            }),
            1);
}

TEST(SoundFormat, FollowsFromHowAFileBegins) {
  const auto of = [](std::string_view begin) {
    return sound_format({reinterpret_cast<const uint8_t*>(begin.data()), begin.size()});
  };
  EXPECT_EQ(of(""), SoundFormat::kUnknown);
  EXPECT_EQ(of("RIFF1234WAVE"), SoundFormat::kWav);
  EXPECT_EQ(of("RIFF1234AVI "), SoundFormat::kUnknown);
  EXPECT_EQ(of("\xFF\xFB\x90\x64"), SoundFormat::kMp3);
  EXPECT_EQ(of("\xFF\xF1\x50\x80"), SoundFormat::kAac);
  EXPECT_EQ(of("1234ftypM4A "), SoundFormat::kMp4);
  EXPECT_EQ(of("#EXTM3U\n"), SoundFormat::kUnknown);  // a list of other files
  EXPECT_EQ(ffmpeg_demuxer(of("1234ftypisom")), "mov");
}

}  // namespace
}  // namespace pelton::media
