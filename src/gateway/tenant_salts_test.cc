// TN-02…05: under the salts that workers make, nobody finds what another tenant had computed.
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "access/access_control.h"
#include "base/clock.h"
#include "gateway/block_view.h"

namespace pelton::gateway {
namespace {

constexpr int kTenants = 101;  // 10 100 ordered pairs
constexpr int kBlockTokens = 16;

TEST(TenantSalts, NobodyFindsAnothersAndEverybodyItsOwn) {
  const base::SystemClock clock;
  const access::AccessControl worker(access::ApiKeys(), "a secret", clock);
  const auto names = [&](int tenant, std::string_view of_request) {
    std::vector<TokenId> block(kBlockTokens);
    std::iota(block.begin(), block.end(), 5);
    const std::string salt = worker.cache_salt("tenant" + std::to_string(tenant), of_request);
    const kv::BlockHasher hasher(7);
    std::vector<kv::BlockHash> chain = {hasher.extend(hasher.root({.salt = salt}), block)};
    while (chain.size() < 4) chain.push_back(hasher.extend(chain.back(), block));
    return chain;
  };
  const auto hits = [](BlockView& view, const std::vector<kv::BlockHash>& asked) {
    std::vector<int> found(1);
    view.find(asked, 0, 0, found);
    return found[0];
  };
  int crossed = 0;
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    BlockView view(size_t{1} << 16);
    for (const kv::BlockHash& name : names(tenant, {})) {
      view.note_stored(0, BlockView::Group::kWidest, name);
    }
    for (int other = 0; other < kTenants; ++other) {
      if (other != tenant) crossed += hits(view, names(other, {})) > 0 ? 1 : 0;
    }
    EXPECT_EQ(hits(view, names(tenant, {})), 4);
    EXPECT_EQ(hits(view, names(tenant, "pepper")), 0) << "under a salt of its own";
  }
  EXPECT_EQ(crossed, 0);
}

}  // namespace
}  // namespace pelton::gateway
