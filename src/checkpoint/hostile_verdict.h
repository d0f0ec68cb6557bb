// What the hostile tests ask of every refusal: a typed error that names the file, within a second,
// with no more memory than the files have bytes, and 64 MiB. For tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/machine.h"
#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

// Sanitizers take their own time and memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMeasured = false;
#else
inline constexpr bool kMeasured = true;
#endif

inline int64_t status_kib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size() + 1));
  }
  return 0;
}

// Makes the peak of the resident set begin anew; false where the kernel does not let us.
inline bool reset_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << 5;
  return clear.good();
}

struct Refusal {
  std::string model;  // what is opened: a folder, or a GGUF file
  std::string file;   // the message names it
  std::string what;   // and says this
  ErrorCode code = ErrorCode::kBadCheckpoint;
};

// Runs `open` and returns its result; time and memory are expected to be within the bounds.
template <typename Open>
auto opened_within_bounds(const std::string& folder, Open open) {
  int64_t files_kib = 0;
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    if (one.is_regular_file()) files_kib += static_cast<int64_t>(one.file_size() / 1024);
  }
  const bool measured = kMeasured && reset_peak();
  const int64_t before_kib = status_kib("VmRSS");
  // Processor time: on a busy machine a second of the clock would be the neighbours' work too.
  const int64_t start_ns = base::thread_cpu_ns();
  auto result = open();
  const double took_s = static_cast<double>(base::thread_cpu_ns() - start_ns) * 1e-9;
  const int64_t more_kib = status_kib("VmHWM") - before_kib;
  if (measured) {
    EXPECT_LT(took_s, 1.0);
    EXPECT_LE(more_kib, files_kib + 64 * 1024);
  }
  return result;
}

inline void expect_model_refused(const Refusal& refusal) {
  SCOPED_TRACE(refusal.what);
  const std::string folder = std::filesystem::is_directory(refusal.model)
                                 ? refusal.model
                                 : std::filesystem::path(refusal.model).parent_path().string();
  const Result<Checkpoint> checkpoint =
      opened_within_bounds(folder, [&] { return Checkpoint::open(refusal.model); });
  ASSERT_FALSE(checkpoint.ok()) << "accepted";
  EXPECT_EQ(checkpoint.error().code, refusal.code) << checkpoint.error().message;
  EXPECT_THAT(checkpoint.error().message, testing::HasSubstr(refusal.file));
  EXPECT_THAT(checkpoint.error().message, testing::HasSubstr(refusal.what));
  EXPECT_LT(checkpoint.error().message.size(), 1000u);
}

}  // namespace pelton::checkpoint
