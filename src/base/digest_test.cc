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

// Test case 2 of RFC 4231.
TEST(Digest, HmacIsThePublishedFunction) {
  EXPECT_EQ(hmac_sha256("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace pelton::base
