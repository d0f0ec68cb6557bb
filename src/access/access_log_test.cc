#include "access/access_log.h"

#include <cstdio>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pelton::access {
namespace {

// A reader of the log that has stopped holds up nobody.
TEST(AccessLog, DropsWhatIsNotWrittenInTime) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE* full = ::fdopen(ends[1], "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  std::thread reader;
  {
    AccessLog log({.format = AccessLog::Format::kJson, .file = full, .lines_max = 16});
    const RequestRecord record{.method = "GET", .handler = "/", .path = std::string(200, 'x')};
    for (int i = 0; i < 2000; ++i) log.write(record);  // the pipe holds 64 KiB
    EXPECT_GT(log.dropped(), 0);
    reader = std::thread([from = ends[0]] {
      char bytes[4096];
      while (::read(from, bytes, sizeof bytes) > 0) {
      }
    });
  }
  std::fclose(full);  // the reader's end of file
  reader.join();
  ::close(ends[0]);
}

}  // namespace
}  // namespace pelton::access
