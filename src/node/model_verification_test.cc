#include "node/model_verification.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

models::SelfCheck worst_of(double error) {
  return {.blocks = {{.name = "embedding"}, {.name = "layer 0 attention", .error_median = error}},
          .worst = 1};
}

TEST(SelfCheckDamage, IsWhatDiffersByMoreThanRounding) {
  EXPECT_EQ(self_check_damage(worst_of(9e-4), "avx2", self_check_limit(16)), std::nullopt);
  EXPECT_EQ(self_check_damage(worst_of(2e-3), "avx2", self_check_limit(16)),
            "reference and avx2 kernels differ by 2.0e-03 after layer 0 attention (limit 1e-03)");
  EXPECT_EQ(self_check_damage(worst_of(2e-3), "avx2", self_check_limit(8)), std::nullopt)
      << "activations of 8 bits lose as much";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(self_check_damage(worst_of(nan), "avx2", self_check_limit(16)), std::nullopt);
}

TEST(VerificationVerdict, NamesTheFirstDamageAndHowManyMoreThereAre) {
  EXPECT_TRUE(verification_verdict("m", {}).ok());
  EXPECT_EQ(verification_verdict("m", {.damage = {"one"}}).error().message, "m: is damaged: one");
  const Result<void> three = verification_verdict("m", {.damage = {"one", "two", "three"}});
  EXPECT_EQ(three.error().message, "m: is damaged: one (and 2 more)");
  EXPECT_EQ(three.error().code, ErrorCode::kBadCheckpoint);
}

class VerifyModel : public testing::Test {
 protected:
  VerifyModel() {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny", folder_);
  }
  ~VerifyModel() override { std::filesystem::remove_all(folder_); }

  ModelVerification verify(const checkpoint::Checkpoint& checkpoint,
                           const VerificationOptions& options) {
    Result<ModelVerification> verified = verify_model(checkpoint, options, pool_);
    EXPECT_TRUE(verified.ok()) << (verified.ok() ? "" : verified.error().message);
    return verified.ok() ? *std::move(verified) : ModelVerification();
  }
  checkpoint::Checkpoint open() const { return checkpoint::Checkpoint::open(folder_).value(); }

  const std::string folder_ = testing::TempDir() + "verify_model_" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();
  base::ThreadPool pool_{{.threads = 2}};
  const base::ThreadPool::PinnedCaller pinned_ = pool_.adopt_caller();
};

TEST_F(VerifyModel, OneThatIsSoundIsComparedAfterEveryBlock) {
  const checkpoint::Checkpoint checkpoint = open();
  std::set<std::string> phases;
  const ModelVerification verified =
      verify(checkpoint,
             {.tokens = 8, .progress = [&](std::string_view what, int64_t done, int64_t total) {
                EXPECT_LE(done, total);
                phases.emplace(what);
              }});
  EXPECT_THAT(phases, testing::IsSupersetOf({"reading", "computing"}));
  EXPECT_TRUE(verified.damage.empty());
  ASSERT_TRUE(verified.run.has_value());
  EXPECT_EQ(verified.run_tokens, 8u);
  EXPECT_FALSE(verified.real_text) << "it has no tokenizer";
  const std::string text = verification_text(checkpoint, verified);
  EXPECT_THAT(text, HasSubstr("verdict           sound"));
  EXPECT_THAT(text, HasSubstr("self-consistency  reference against"));
  EXPECT_THAT(text, Not(HasSubstr("perplexity")));
  const Json json = verification_json(checkpoint, verified);
  EXPECT_EQ(json.boolean("sound"), true);
  EXPECT_EQ(json.find("self_check")->find("blocks")->as_array().size(),
            verified.run->blocks.size());
  EXPECT_EQ(json.find("self_check")->integer("tokens"), 8);
}

TEST_F(VerifyModel, NothingIsComputedWhereNothingIsAsked) {
  const checkpoint::Checkpoint checkpoint = open();
  const ModelVerification verified = verify(checkpoint, {.hashes = false, .tokens = 0});
  EXPECT_TRUE(verified.hashes.empty());
  EXPECT_FALSE(verified.run.has_value());
  EXPECT_EQ(verification_json(checkpoint, verified).find("self_check"), nullptr);
}

// The first tensor's first numbers become NaN: bf16 0x7FFF.
TEST_F(VerifyModel, NumbersThatAreNoneAreFoundAndNamed) {
  const std::string file = folder_ + "/model.safetensors";
  std::string bytes = base::read_file(file).value();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (size_t i = 0; i < 64; i += 2) {
    bytes[8 + header + i] = '\xFF';
    bytes[8 + header + i + 1] = '\x7F';
  }
  ASSERT_TRUE(base::write_file(file, bytes).ok());
  const checkpoint::Checkpoint checkpoint = open();
  const ModelVerification verified = verify(checkpoint, {.tokens = 0});
  ASSERT_FALSE(verified.faults.empty());
  ASSERT_FALSE(verified.damage.empty());
  EXPECT_THAT(verified.damage[0], HasSubstr("tensor " + verified.faults[0].tensor));
  EXPECT_THAT(verification_text(checkpoint, verified), HasSubstr("DAMAGED"));
  EXPECT_EQ(verification_json(checkpoint, verified).boolean("sound"), false);
}

}  // namespace
}  // namespace pelton::node
