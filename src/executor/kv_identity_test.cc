#include "executor/kv_identity.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kv_transfer/block_store.h"

namespace pelton::executor {
namespace {

using kv_transfer::BlockStore;

class NoBlocks final : public kv_transfer::BlockMemory {
 public:
  void read_block(int /*group*/, kv::Tier /*tier*/, kv::BlockId /*block*/,
                  std::span<char> /*into*/) const override {}
  void write_block(int /*group*/, kv::BlockId /*block*/, std::span<const char> /*bytes*/) override {
  }
};

class KvIdentityTest : public testing::Test {
 protected:
  KvIdentityTest() {
    std::string name = testing::TempDir() + "pelton_identity_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~KvIdentityTest() override { std::filesystem::remove_all(folder_); }

  // A start on what the last one has left: whether that is its own.
  bool is_warm(const KvIdentity& identity) {
    NoBlocks memory;
    const auto store = BlockStore::open(
        {.disk = {.folder = folder_, .secret = std::string(40, 's'), .identity = identity.text()},
         .groups = {{{.name = "full", .block_bytes = 512}, {4, 4, 8}},
                    {{.name = "window", .sliding_window = 8, .block_bytes = 256}, {4, 4, 8}}}},
        memory);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() && (*store)->file().is_warm();
  }

  const KvIdentity own_{.files = "a 1.2.3",
                        .weights_bytes = 4096,
                        .activation_bits = 16,
                        .kv = tensor::DType::kBf16,
                        .kernels = "avx2"};
  std::string folder_;
};

// An upgrade that names blocks otherwise, by another hash, or lays them out otherwise, finds none
// of those that lie there; nor does whoever goes back.
TEST_F(KvIdentityTest, OfAnotherSchemeNothingMatches) {
  KvIdentity next = own_;
  ++next.scheme;
  EXPECT_FALSE(is_warm(own_)) << "the first start";
  EXPECT_TRUE(is_warm(own_));
  EXPECT_FALSE(is_warm(next));
  EXPECT_TRUE(is_warm(next));
  EXPECT_FALSE(is_warm(own_));
}

TEST_F(KvIdentityTest, OfOtherWeightsArithmeticOrKvTypeNothingMatches) {
  std::vector<KvIdentity> others(5, own_);
  others[0].files = "a 1.2.4";
  others[1].weights_bytes = 4097;
  others[2].activation_bits = 8;
  others[3].kv = tensor::DType::kF16;
  others[4].kernels = "avx512";
  for (const KvIdentity& other : others) {
    is_warm(own_);
    EXPECT_TRUE(is_warm(own_));
    EXPECT_FALSE(is_warm(other)) << other.text();
  }
}

}  // namespace
}  // namespace pelton::executor
