#include "cost_model/rank_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::cost_model {
namespace {

using testing::HasSubstr;

families::ModelConfig shape_of(const std::string& name) {
  Result<families::ModelConfig> shape = find_model_config(name);
  EXPECT_TRUE(shape.ok()) << shape.error().message;
  return *shape;
}

StepTimeModel::Options options_of(const std::string& gpu, const std::string& model) {
  return {.hardware = *find_hardware(gpu),
          .shape = shape_of(model),
          .efficiency = {.bandwidth = 1, .compute = 1, .attention = 1, .link = 1, .overlap = 64}};
}

RankStepModel model_of(const std::string& model, const RankForm& form) {
  Result<RankStepModel> made = RankStepModel::make(options_of("h100", model), form);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

// gpt-oss: heads 64 x 64, hidden 2 880, four experts of 2 880; decision 0118 counts a layer of it.
TEST(RankExchanges, OfGptOssAreThoseCountedByHand) {
  const families::ModelConfig small = shape_of("gpt-oss-20b");
  const RankExchanges tp = count_rank_exchanges(small, {});
  EXPECT_EQ(tp.exchanges, 24 * 4 + 1);
  EXPECT_EQ(tp.token_bytes, 24 * (16'384 + 11'520 + 4 * 11'520 + 11'520));
  EXPECT_NEAR(tp.token_bytes / 1e6, 2.05, 0.005);
  EXPECT_EQ(tp.logit_bytes, 201'088 * 4);
  const RankExchanges packed = count_rank_exchanges(small, {.inner_quantized = true});
  EXPECT_EQ(packed.token_bytes, 24 * (16'384 + 11'520 + 4 * 3'600 + 11'520));
  const RankExchanges ep = count_rank_exchanges(small, {.experts_dealt = true});
  EXPECT_EQ(ep.exchanges, 24 * 3 + 1);
  EXPECT_EQ(ep.token_bytes, 24 * (16'384 + 11'520 + 4 * 11'520));
  const RankExchanges big = count_rank_exchanges(shape_of("gpt-oss-120b"), {});
  EXPECT_EQ(big.exchanges, 36 * 4 + 1);
  EXPECT_NEAR(big.token_bytes / 1e6, 3.08, 0.005);
}

TEST(RankExchanges, OfADenseModelAreFourALayerToo) {
  const RankExchanges tp = count_rank_exchanges(shape_of("llama-3.1-8b"), {});
  EXPECT_EQ(tp.exchanges, 32 * 4 + 1);
  EXPECT_EQ(tp.token_bytes, 32 * 4 * (4096 + 4096 + 14'336 + 4096));
}

// docs/parallel.md, measured: two ranks of the model in the box, 17 exchanges a token, of which the
// leader receives 15.5 KiB, half of it logits.
TEST(RankExchanges, AreWhatRanksOfTheBoxMeasured) {
  families::ModelConfig box = shape_of("gpt-oss-20b");
  box.layers.resize(4);
  box.hidden_size = 192;
  box.vocab_size = 4096;
  box.head_count = 6;
  box.kv_head_count = 2;
  box.head_size = 32;
  box.expert_count = 8;
  box.experts_per_token = 2;
  box.expert_intermediate_size = 192;
  const RankExchanges count = count_rank_exchanges(box, {.ranks = 2});
  EXPECT_EQ(count.exchanges, 17);
  EXPECT_EQ((count.token_bytes + count.logit_bytes) / 2, 15.5 * 1024);
}

// Section 6 of the reference: the busiest rank over the mean, experts touched. Both are drawn: 2.07
// of one token on four ranks is 2.107 by the hypergeometric distribution.
TEST(BusiestRank, IsTheTableOfTheReference) {
  constexpr int kRanks[] = {2, 4, 8};
  constexpr int kBatches[] = {1, 4, 8, 16, 32, 64};
  constexpr double kOf32[6][3] = {{1.34, 2.07, 3.04}, {1.17, 1.44, 1.86}, {1.10, 1.26, 1.47},
                                  {1.05, 1.11, 1.14}, {1.01, 1.01, 1.02}, {1, 1, 1}};
  constexpr double kOf128[6][3] = {{1.37, 2.07, 3.27}, {1.20, 1.51, 2.06}, {1.13, 1.34, 1.70},
                                   {1.09, 1.22, 1.45}, {1.05, 1.14, 1.26}, {1.03, 1.07, 1.12}};
  for (int r = 0; r < 3; ++r) {
    const BusiestRank of_32(32, 4, kRanks[r]);
    const BusiestRank of_128(128, 4, kRanks[r]);
    for (int b = 0; b < 6; ++b) {
      EXPECT_NEAR(of_32.experts(kBatches[b]) / kOf32[b][r], 1, 0.03) << kBatches[b] << " " << r;
      EXPECT_NEAR(of_128.experts(kBatches[b]) / kOf128[b][r], 1, 0.03) << kBatches[b] << " " << r;
    }
    // Rows are still uneven where every expert is touched.
    if (kRanks[r] == 8) {
      EXPECT_NEAR(of_32.rows(64), 1.25, 0.02);
      EXPECT_NEAR(of_128.rows(64), 1.25, 0.02);
    }
  }
  // One token, four of 32 experts on two ranks: by the hypergeometric distribution, in thousandths
  // 400 two and two, 498 three and one, 101 all on one.
  EXPECT_NEAR(BusiestRank(32, 4, 2).experts(1), (2 * 14'400 + 3 * 17'920 + 4 * 3640) / 35'960.0 / 2,
              0.015);
}

TEST(BusiestRank, IsNeverBelowTheMeanAndFalls) {
  const BusiestRank busiest(128, 4, 8);
  double before = 8;
  for (const double tokens : {1.0, 1.5, 3.0, 10.0, 100.0, 256.0, 1000.0, 1e6}) {
    EXPECT_LE(busiest.experts(tokens), before) << tokens;
    EXPECT_GE(busiest.rows(tokens), 1) << tokens;
    before = busiest.experts(tokens);
  }
  EXPECT_GE(before, 1);
  EXPECT_NEAR(busiest.rows(1e6), 1, 0.01);
  EXPECT_LT(busiest.rows(1024), busiest.rows(256));
  // 11, 11 and 10 of 32 experts: the bound of endlessly many tokens.
  const BusiestRank uneven(32, 4, 3);
  EXPECT_NEAR(uneven.experts(1e6), 33.0 / 32, 1e-9);
  EXPECT_NEAR(uneven.rows(1e9), 33.0 / 32, 1e-3);
  EXPECT_EQ(BusiestRank().experts(1), 1);
}

TEST(RankStep, SharesAreInWholeUnits) {
  EXPECT_EQ(widest_share(2880, 32, 2), 0.5);
  EXPECT_EQ(widest_share(2880, 32, 8), 12.0 / 90);
  EXPECT_EQ(widest_share(8, 1, 3), 3.0 / 8);
  EXPECT_EQ(widest_share(8, 1, 16), 1.0 / 8);
  EXPECT_EQ(widest_share(0, 32, 2), 0);
}

TEST(RankStep, AnExchangeTakesItsLatencyAndWhatIsReceived) {
  const RankLink direct{.name = "", .bytes_per_second = 1e9, .latency_seconds = 1e-6};
  const RankLink doubling{
      .name = "", .bytes_per_second = 1e9, .latency_seconds = 1e-6, .direct = false};
  const StepLoad one = StepLoad::decodes(1, 100, {0, 128});
  const double bytes_s = 0.75 * (2'052'096 + 804'352) / 1e9;
  const RankStepModel tp = model_of("gpt-oss-20b", {.ranks = 4});
  EXPECT_NEAR(tp.exchange_seconds(one, direct), 97e-6 + bytes_s, 1e-12);
  EXPECT_NEAR(tp.exchange_seconds(one, doubling), 2 * 97e-6 + bytes_s, 1e-12);
  EXPECT_NEAR(tp.received_token_bytes(), 0.75 * 2'052'096, 1e-6);
  const RankStepModel ep = model_of("gpt-oss-20b", {.ranks = 4, .experts_dealt = true});
  EXPECT_NEAR(ep.exchange_seconds(one, direct), 73e-6 + 0.75 * (1'775'616 + 804'352) / 1e9, 1e-12);
  // A piece of a prompt that samples nothing has no logits.
  StepLoad piece;
  piece.add_row(0, 8, 0, {0, 128});
  EXPECT_NEAR(tp.exchange_seconds(piece, direct), 96e-6 + 0.75 * 8 * 2'052'096 / 1e9, 1e-12);
  EXPECT_EQ(model_of("gpt-oss-20b", {.ranks = 1}).exchange_seconds(one, direct), 0);
  EXPECT_DOUBLE_EQ(tp.time(one, direct).exchange_s, tp.exchange_seconds(one, direct));
}

// Two ranks of gpt-oss-20b halve everything but norms and routers; with experts dealt out the
// busiest one of a lone token reads 1.35 times its half of the experts.
TEST(RankStep, TheBusiestRankReadsTheMost) {
  const StepTimeModel::Options options = options_of("h100", "gpt-oss-20b");
  const StepLoad one = StepLoad::decodes(1, 100, {0, 128});
  const RankLink link = rank_links(options.hardware).at(0);
  const StepCost whole = StepCounter(options.shape, 2).count(one);
  const double rate = options.hardware.bytes_per_second;
  const RankStepModel tp = model_of("gpt-oss-20b", {.ranks = 2});
  const RankStepModel ep = model_of("gpt-oss-20b", {.ranks = 2, .experts_dealt = true});
  const double weights = whole.bytes() - whole.attention.bytes;
  EXPECT_NEAR(tp.time(one, link).weights_s, (weights + whole.other.bytes) / 2 / rate, 1e-12);
  EXPECT_NEAR(tp.time(one, link).attention_s, whole.attention.bytes / 2 / rate, 1e-12);
  EXPECT_NEAR(ep.time(one, link).weights_s - tp.time(one, link).weights_s,
              (ep.busiest().experts(1) - 1) * whole.experts.bytes / 2 / rate, 1e-12);
  EXPECT_EQ(ep.time(one, link).attention_s, tp.time(one, link).attention_s);
}

TEST(RankStep, OneRankIsOneDevice) {
  const StepTimeModel::Options options = options_of("h100", "gpt-oss-20b");
  const StepLoad load = StepLoad::decodes(7, 300, {0, 128});
  const RankLink link = rank_links(options.hardware).at(0);
  EXPECT_DOUBLE_EQ(model_of("gpt-oss-20b", {.ranks = 1}).time(load, link).seconds(),
                   StepTimeModel::make(options)->time(load).seconds());
}

TEST(RankStep, RefusesWhatRanksRefuse) {
  const auto refuse = [](const std::string& model, const RankForm& form) {
    const auto made = RankStepModel::make(options_of("h100", model), form);
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_THAT(refuse("deepseek-v3", {}), HasSubstr("latent attention"));
  EXPECT_THAT(refuse("gpt-oss-20b", {.ranks = 33, .experts_dealt = true}), HasSubstr("32 experts"));
  EXPECT_THAT(refuse("llama-3.1-8b", {.experts_dealt = true}), HasSubstr("0 experts"));
  EXPECT_THAT(refuse("gpt-oss-20b", {.ranks = 0}), HasSubstr("0 ranks"));
}

TEST(RankLinks, OfProcessorsAreThoseOfOneHostAndOfSeveral) {
  EXPECT_THAT(rank_links(*find_hardware("cpu-zen4-2")), testing::SizeIs(2));
  const std::vector<RankLink> gpu = rank_links(*find_hardware("h100"));
  ASSERT_THAT(gpu, testing::SizeIs(1));
  EXPECT_EQ(gpu[0].name, "NVLink 4");
  EXPECT_EQ(gpu[0].bytes_per_second, 450e9);
}

}  // namespace
}  // namespace pelton::cost_model
