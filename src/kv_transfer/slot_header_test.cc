#include "kv_transfer/slot_header.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::kv_transfer {
namespace {

// RFC 3720, B.4, and the check value that every list of CRCs has.
TEST(SlotHeader, crc32c_is_castagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

// Whatever this processor computes it with, at each length and place.
TEST(SlotHeader, crc32c_is_the_polynomials_remainder) {
  std::string bytes;
  for (uint64_t i = 0; i < 100; ++i) bytes += static_cast<char>(base::random_bits(7, i));
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; begin + size <= bytes.size(); ++size) {
      uint32_t crc = ~uint32_t{0};
      for (const char byte : bytes.substr(begin, size)) {
        crc ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
      }
      ASSERT_EQ(crc32c(std::string_view(bytes).substr(begin, size)), ~crc) << begin << " " << size;
    }
  }
}

TEST(SlotHeader, is_read_as_it_was_written) {
  const SlotHeader slot{
      .group = 1, .name = {.low = 2, .high = 3}, .owner = 4, .generation = 5, .number = 1ull << 60};
  EXPECT_EQ(slot.encode().size(), SlotHeader::kBytes);
  EXPECT_EQ(SlotHeader::decode(slot.encode()), slot);
  FileHeader file{.generation = 7, .group_count = 2};
  file.fingerprint.fill('f');
  file.groups[0] = {.block_bytes = 12, .slot_count = 13};
  file.groups[1] = {.block_bytes = 1 << 20, .slot_count = 2};
  EXPECT_EQ(file.encode().size(), FileHeader::kBytes);
  EXPECT_EQ(FileHeader::decode(file.encode()), file);
}

TEST(SlotHeader, with_any_bit_changed_it_is_none) {
  const std::string good = SlotHeader{.group = 1, .name = {.low = 2, .high = 3}}.encode();
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(SlotHeader::decode(bad), std::nullopt) << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(SlotHeader::decode(good.substr(0, size)), std::nullopt);
  }
}

TEST(SlotHeader, absurd_counts_are_refused) {
  EXPECT_EQ(FileHeader::decode(FileHeader{.group_count = 9}.encode()), std::nullopt);
  FileHeader large{.group_count = 1};
  large.groups[0] = {.block_bytes = 1ull << 63, .slot_count = 1};
  EXPECT_EQ(FileHeader::decode(large.encode()), std::nullopt);
  large.groups[0] = {.block_bytes = 1, .slot_count = UINT32_MAX};
  EXPECT_EQ(FileHeader::decode(large.encode()), std::nullopt);
}

TEST(FileHeader, ErasedOwners) {
  FileHeader header;
  header.group_count = 1;
  header.generation = 7;
  const std::string before = header.encode();
  header.erased_count = 2;
  header.erased[0] = {.owner = 11, .number = 5};
  header.erased[1] = {.owner = 12, .number = 9};
  const auto again = FileHeader::decode(header.encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, header);
  // Who does not know of them takes it for another version's.
  EXPECT_NE(header.encode().substr(8, 4), before.substr(8, 4));
  const auto holds = [&](uint64_t owner, uint64_t number) {
    return header.holds({.owner = owner, .generation = 7, .number = number});
  };
  EXPECT_FALSE(holds(11, 5));
  EXPECT_TRUE(holds(11, 6));
  EXPECT_FALSE(holds(12, 1));
  EXPECT_TRUE(holds(13, 1));
  EXPECT_FALSE(header.holds({.owner = 13, .generation = 6, .number = 1}));
}

}  // namespace
}  // namespace pelton::kv_transfer
