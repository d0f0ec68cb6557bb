#include "models/kv_storage.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "checkpoint/checkpoint.h"

namespace pelton::models {
namespace {

TEST(KvStorage, a_copied_block_is_equal_in_every_layer_of_its_group_and_nothing_else_changes) {
  const families::ModelConfig config =
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value()
          .config();
  KvStorage::Options options{.dtype = tensor::DType::kF16, .block_counts = {5, 4}};
  KvStorage device = KvStorage::allocate(config, options).value();
  options.block_counts = {2, 3};
  KvStorage host = KvStorage::allocate(config, options).value();
  const families::KvGroups& groups = device.groups();
  ASSERT_EQ(groups.specs.size(), 2);
  const auto group_of = [&](int layer) { return groups.of_layer[static_cast<size_t>(layer)]; };
  const auto bytes_of = [&](const KvStorage& storage, int layer) {
    const int group = group_of(layer);
    const auto block = static_cast<size_t>(groups.layer_block_bytes[group]);
    return std::pair(static_cast<size_t>(storage.options().block_counts[group]) * block, block);
  };
  for (int i = 0; i < config.layer_count(); ++i) {
    unsigned char* bytes = static_cast<unsigned char*>(device.layer(i).data);
    for (size_t k = 0; k < bytes_of(device, i).first; ++k) {
      bytes[k] = static_cast<unsigned char>(k * 7 + k / 251 + static_cast<size_t>(i));
    }
  }
  for (int group = 0; group < groups.specs.size(); ++group) {
    for (int i = 0; i < device.layer_count(); ++i) {
      host.copy_block(device, {.group = group, .from = 3, .to = 1}, i);
      device.copy_block(host, {.group = group, .from = 1, .to = 0}, i);
    }
    for (int i = 0; i < config.layer_count(); ++i) {
      const auto [bytes, block] = bytes_of(device, i);
      const char* at = static_cast<const char*>(device.layer(i).data);
      const char* host_at = static_cast<const char*>(host.layer(i).data);
      if (group_of(i) > group) {
        EXPECT_NE(std::memcmp(at, at + 3 * block, block), 0) << i;
      } else {
        EXPECT_EQ(std::memcmp(at, at + 3 * block, block), 0) << i;
        EXPECT_EQ(std::memcmp(host_at + block, at + 3 * block, block), 0) << i;
      }
      for (size_t k = block; k < bytes; ++k) {
        ASSERT_EQ(static_cast<unsigned char>(at[k]),
                  static_cast<unsigned char>(k * 7 + k / 251 + static_cast<size_t>(i)));
      }
      for (size_t k = 0; k < block; ++k) ASSERT_EQ(host_at[k], 0);
    }
  }
}

int64_t resident_bytes(const void* at, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there((bytes + page - 1) / page);
  CHECK(::mincore(const_cast<void*>(at), bytes, there.data()) == 0);
  return std::ranges::count_if(there, [](unsigned char one) { return (one & 1) != 0; }) *
         static_cast<int64_t>(page);
}

TEST(KvStorage, pages_that_were_given_back_take_no_memory_and_come_back) {
  const families::ModelConfig config =
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value()
          .config();
  const KvStorage::Options options{.dtype = tensor::DType::kF16, .block_counts = {500, 400}};
  KvStorage storage = KvStorage::allocate(config, options).value();
  void* const memory = storage.layer(0).data;
  const auto bytes = static_cast<size_t>(storage.bytes());
  ASSERT_GT(bytes, size_t{1} << 20);
  EXPECT_EQ(resident_bytes(memory, bytes), 0) << "nothing was written";
  std::memset(memory, 7, bytes);
  EXPECT_GE(resident_bytes(memory, bytes), storage.bytes());
  EXPECT_EQ(storage.release_pages(), storage.bytes());
  EXPECT_EQ(resident_bytes(memory, bytes), 0);
  std::memset(memory, 9, bytes);
  EXPECT_EQ(static_cast<const char*>(memory)[bytes - 1], 9);
  EXPECT_GE(resident_bytes(memory, bytes), storage.bytes());
}

}  // namespace
}  // namespace pelton::models
