#include "base/refused_resource.h"

#include <new>
#include <stdexcept>
#include <system_error>

#include <gtest/gtest.h>

namespace pelton::base {
namespace {

template <typename Exception>
Error caught(const Exception& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return refused_resource();
  }
}

TEST(RefusedResourceTest, SaysWhatWasRefused) {
  const Error thread =
      caught(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(thread.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(thread.message.starts_with("the system refuses a thread: ")) << thread.message;
  EXPECT_EQ(caught(std::bad_alloc()).message, "the system has no more memory");
  EXPECT_EQ(caught(std::runtime_error("eventfd: too many")).message, "eventfd: too many");
}

TEST(RefusedResourceTest, LetsWhatItDoesNotKnowThrough) {
  EXPECT_THROW(caught(7), int);
}

}  // namespace
}  // namespace pelton::base
