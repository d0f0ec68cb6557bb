#include "models/kv_storage.h"

#include <cstring>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"

namespace pelton::models {
namespace {

TEST(KvStorage, a_copied_block_is_equal_in_every_layer_of_its_group_and_nothing_else_changes) {
  const families::ModelConfig config =
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value()
          .config();
  KvStorage::Options options{
      .dtype = tensor::DType::kF16, .full_block_count = 5, .window_block_count = 4};
  KvStorage device = KvStorage::allocate(config, options).value();
  options.full_block_count = 2;
  options.window_block_count = 3;
  KvStorage host = KvStorage::allocate(config, options).value();
  int sliding_count = 0;
  for (int i = 0; i < config.layer_count(); ++i) sliding_count += config.is_sliding(i) ? 1 : 0;
  ASSERT_GT(sliding_count, 0);
  const auto bytes_of = [&](const KvStorage& storage, int layer) {
    const bool sliding = config.is_sliding(layer);
    const int64_t blocks =
        sliding ? storage.options().window_block_count : storage.options().full_block_count;
    const int64_t block = sliding ? KvStorage::window_block_bytes(config, options) / sliding_count
                                  : KvStorage::full_block_bytes(config, options) /
                                        (config.layer_count() - sliding_count);
    return std::pair(static_cast<size_t>(blocks * block), static_cast<size_t>(block));
  };
  for (int i = 0; i < config.layer_count(); ++i) {
    unsigned char* bytes = static_cast<unsigned char*>(device.layer(i).data);
    for (size_t k = 0; k < bytes_of(device, i).first; ++k) {
      bytes[k] = static_cast<unsigned char>(k * 7 + k / 251 + static_cast<size_t>(i));
    }
  }
  for (const bool sliding : {false, true}) {
    for (int i = 0; i < device.layer_count(); ++i) {
      host.copy_block(device, {.sliding = sliding, .from = 3, .to = 1}, i);
      device.copy_block(host, {.sliding = sliding, .from = 1, .to = 0}, i);
    }
    for (int i = 0; i < config.layer_count(); ++i) {
      const auto [bytes, block] = bytes_of(device, i);
      const char* at = static_cast<const char*>(device.layer(i).data);
      const char* host_at = static_cast<const char*>(host.layer(i).data);
      const bool in_group = config.is_sliding(i) == sliding;
      if (!in_group && !sliding) {
        EXPECT_NE(std::memcmp(at, at + 3 * block, block), 0) << i;
      }
      if (in_group) {
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

}  // namespace
}  // namespace pelton::models
