#include "base/digest.h"

#include <gtest/gtest.h>

namespace pelton::base {
namespace {

// Examples of FIPS 180-4.
TEST(Digest, IsThePublishedFunction) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Digest sha1(Digest::Kind::kSha1);
  sha1.update("a");
  sha1.update("bc");
  EXPECT_EQ(sha1.finish(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace pelton::base
