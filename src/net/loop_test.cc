// A loop's thread and what it needs of the system.
#include "net/loop.h"

#include <filesystem>
#include <future>
#include <iterator>

#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

namespace pelton::net {
namespace {

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Rather than with the first connection: a server that has started can be distinguished from one
// that leaks, and the first connection does not fail for want of a descriptor.
TEST(Loop, HasItsDescriptorsFromTheStart) {
  Loop loop;
  loop.start();
  const int64_t before = open_descriptors();
  std::promise<int64_t> counted;
  loop.post([&] {
    const boost::asio::steady_timer timer(loop.context());
    counted.set_value(open_descriptors());
  });
  EXPECT_EQ(counted.get_future().get(), before);
  loop.stop();
}

}  // namespace
}  // namespace pelton::net
