// TN-02…05: under the salts that workers make, nobody finds what another tenant had computed.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "access/access_control.h"
#include "base/clock.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "gateway/block_view.h"
#include "gateway/prompt_namer.h"

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

// Workers and gateways of one fleet make one tenant's names alike, whoever of them it asks; another
// fleet's are others.
TEST(TenantSalts, AFleetsPartsNameAlikeAndOtherFleetsDoNot) {
  const base::SystemClock clock;
  const auto key_of = [](char digit) {
    return *cluster::FleetKey::parse(std::string(64, digit), "key");
  };
  const auto salt = [&](const cluster::FleetKey& key, std::string_view tenant) {
    const access::AccessControl part(access::ApiKeys(), cluster::salt_secret(key), clock);
    return part.cache_salt(tenant, {});
  };
  EXPECT_EQ(salt(key_of('1'), "a"), salt(key_of('1'), "a"));
  EXPECT_NE(salt(key_of('1'), "a"), salt(key_of('1'), "b"));
  EXPECT_NE(salt(key_of('1'), "a"), salt(key_of('2'), "a"));
  EXPECT_EQ(cluster::block_seed(key_of('1')), cluster::block_seed(key_of('1')));
  EXPECT_NE(cluster::block_seed(key_of('1')), cluster::block_seed(key_of('2')));
}

// A gateway names what a tenant's request will find as its worker does, also under a salt of the
// request's own.
TEST(TenantSalts, AGatewayNamesATenantsBlocksAsItsWorkersDo) {
  const base::SystemClock clock;
  const access::AccessControl worker(access::ApiKeys(), "a secret", clock);
  const access::AccessControl gateway(access::ApiKeys(), "a secret", clock);
  constexpr uint64_t kSeed = 7;
  const PromptNamer namer(kSeed);
  auto text = std::make_shared<ModelText>();
  text->tokenizer = std::make_unique<const tokenizer::Tokenizer>(*tokenizer::Tokenizer::load(
      std::string(PELTON_SOURCE_DIR) + "/models/pelton-box/tokenizer.json"));
  const auto names = [&](const std::string& tenant, const std::string& of_request) {
    const std::string field = of_request.empty() ? "" : ",\"cache_salt\":\"" + of_request + "\"";
    const net::HttpRequest request{.method = "POST",
                                   .path = "/v1/completions",
                                   .query = {},
                                   .headers = {},
                                   .body = "{\"prompt\":[1,2,3,4,5]" + field + "}",
                                   .remote = {}};
    return namer
        .name(request,
              {.text = text,
               .block_tokens = 2,
               .date = {},
               .salt_of = [&](std::string_view own) { return gateway.cache_salt(tenant, own); }})
        .names;
  };
  const auto expected = [&](const std::string& tenant, const std::string& of_request) {
    const std::string salt = worker.cache_salt(tenant, of_request);
    const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
    return block_names(kv::BlockHasher(kSeed), {.salt = salt}, prompt, 2);
  };
  EXPECT_EQ(names("acme", "").size(), 2u);
  EXPECT_EQ(names("acme", ""), expected("acme", ""));
  EXPECT_EQ(names("acme", "pepper"), expected("acme", "pepper"));
  EXPECT_NE(names("acme", ""), expected("other", ""));
  EXPECT_NE(names("acme", ""), names("acme", "pepper"));
  EXPECT_EQ(names("", ""), expected("", ""));
}

}  // namespace
}  // namespace pelton::gateway
