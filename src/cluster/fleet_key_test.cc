#include "cluster/fleet_key.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pelton::cluster {
namespace {

TEST(FleetKey, DerivesAsRfc5869Does) {
  // HKDF-SHA256, empty salt, key 00 01 … 1f, info kConnectionLabel, 32 bytes: as OpenSSL's
  // `openssl kdf -keylen 32 -kdfopt digest:SHA2-256 … HKDF` computes it.
  std::string digits;
  for (int i = 0; i < 32; ++i)
    digits += "0123456789abcdef"[i / 16], digits += "0123456789abcdef"[i % 16];
  const Result<FleetKey> key = FleetKey::parse("# a comment\n\n" + digits + "\n", "f");
  ASSERT_TRUE(key.ok()) << key.error().message;
  std::string hex;
  const std::string derived = key->derive(kConnectionLabel).at(0);
  for (const char c : derived) {
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) / 16];
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) % 16];
  }
  EXPECT_EQ(hex, "a6ceed48257b68441aa37bf325a7f2fb5b7b7be30ca1f7cdc90e5a18813e95d8");
  EXPECT_NE(key->derive("another").at(0), key->derive(kConnectionLabel).at(0));
}

TEST(FleetKey, TwoMayStandThereAndNothingElse) {
  const std::string one(64, 'a');
  const std::string two(64, 'b');
  EXPECT_EQ(FleetKey::parse(one + "\n" + two, "f")->derive("x").size(), 2u);
  struct Bad {
    std::string text;
    const char* where;
  };
  for (const Bad& bad : {Bad{"", "f:"},
                         {"abc", "f:1:"},
                         {"\n" + one + "\nzz\n", "f:3:"},
                         {one + "\n" + two + "\n" + one, "f:3:"},
                         {std::string(64, 'g'), "f:1:"}}) {
    const Result<FleetKey> key = FleetKey::parse(bad.text, "f");
    ASSERT_FALSE(key.ok()) << bad.text;
    EXPECT_EQ(key.error().code, ErrorCode::kBadConfig);
    EXPECT_TRUE(key.error().message.starts_with(bad.where)) << key.error().message;
  }
}

TEST(FleetKey, ANewOneIsReadAgainAndIsNotWrittenOver) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("fleet_key_" + std::to_string(::getpid())))
          .string();
  ASSERT_TRUE(FleetKey::create(file).ok());
  EXPECT_EQ(std::filesystem::status(file).permissions() & std::filesystem::perms::group_all,
            std::filesystem::perms::none);
  EXPECT_TRUE(FleetKey::read(file).ok());
  EXPECT_FALSE(FleetKey::create(file).ok());
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace pelton::cluster
