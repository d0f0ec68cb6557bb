#include "base/log.h"

#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log_context.h"

namespace pelton::base {
namespace {

// A pipe, and a log at its writing end.
class PipedLog {
 public:
  explicit PipedLog(bool json) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    reading_ = ends[0];
    file_ = ::fdopen(ends[1], "w");
    log.emplace(clock_, Log::Options{.json = json, .file = file_});
  }
  ~PipedLog() {
    std::fclose(file_);
    ::close(reading_);
  }

  // All that is in the pipe now.
  std::string read_all() {
    ::fcntl(reading_, F_SETFL, O_NONBLOCK);
    std::string text;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(reading_, bytes, sizeof(bytes))) > 0;) {
      text.append(bytes, static_cast<size_t>(got));
    }
    return text;
  }

  std::optional<Log> log;

 private:
  const VirtualClock clock_{0};
  int reading_ = -1;
  std::FILE* file_ = nullptr;
};

TEST(Log, LinesSayWhatTheyAreAbout) {
  for (const bool json : {false, true}) {
    PipedLog piped(json);
    {
      const LogContext context("model-a");
      piped.log->info("first");
      {
        const LogContext inner("model-b");
        piped.log->info("second");
      }
      std::thread([&] { piped.log->info("third"); }).join();  // its own thread's alone
      piped.log->info("fourth");
    }
    piped.log->info("fifth");
    std::istringstream lines(piped.read_all());
    for (const auto& [about, message] :
         {std::pair{"model-a", "first"}, std::pair{"model-b", "second"}, std::pair{"", "third"},
          std::pair{"model-a", "fourth"}, std::pair{"", "fifth"}}) {
      std::string line;
      std::getline(lines, line);
      if (json) {
        const Json object = Json::parse(line).value();
        EXPECT_EQ(object.string("about").value_or(""), about) << line;
        EXPECT_EQ(object.string("message").value_or(""), message) << line;
      } else {
        const std::string name = *about == '\0' ? "" : std::string(about) + ": ";
        EXPECT_TRUE(line.ends_with(" info    " + name + message)) << line;
      }
    }
  }
}

TEST(Log, FT_53_NobodyWaitsForAReader) {
  for (const bool json : {false, true}) {
    PipedLog piped(json);
    // More than any pipe holds; with a reader that sleeps this would never return.
    for (int i = 0; i < 5000; ++i) piped.log->info(std::string(300, 'x'));
    const std::string kept = piped.read_all();
    EXPECT_GT(kept.size(), 10'000u);
    EXPECT_TRUE(kept.ends_with('\n')) << "half a line";
    piped.log->info("read again");
    const std::string after = piped.read_all();
    EXPECT_NE(after.find("read again"), std::string::npos);
    EXPECT_NE(after.find(json ? "\"lines_dropped_before\":" : " lines before this"),
              std::string::npos)
        << after;
    EXPECT_TRUE(!json || Json::parse(after).ok()) << after;
    piped.log->info("and again");
    EXPECT_EQ(piped.read_all().find("dropped"), std::string::npos) << "told once";
  }
}

TEST(Log, ALineHasABound) {
  PipedLog piped(false);
  piped.log->warning(std::string(100'000, 'y'));
  EXPECT_LT(piped.read_all().size(), 4096u);
}

}  // namespace
}  // namespace pelton::base
