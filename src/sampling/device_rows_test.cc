// A device draws what a Sampler draws, to the bit: random rows of every kind under random
// parameters, in the emulation or on the library that PELTON_DEVICE_LIBRARY names.
#include "sampling/device_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/operations.h"
#include "cuda/test_device.h"

namespace pelton::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One row and how it is to be drawn from.
struct Question {
  std::vector<float> logits;
  request::SamplingParams params;
  TokenHistory history;
  std::vector<TokenId> banned;
  std::vector<uint64_t> allowed;
  int position = 0;
  // With penalties: the token that the step before drew, if the history is to lack it; below 0: one
  // that could not be drawn from.
  std::optional<TokenId> latest;

  DrawInput input() const {
    return {.params = params,
            .history = params.has_penalties() ? &history : nullptr,
            .banned = banned,
            .allowed = allowed,
            .position = position};
  }
};

// What a step has on a device for drawing, without the step.
class Drawing {
 public:
  Drawing(const std::vector<Question>& questions, int vocab, int stride)
      : slices_(cuda::slice_count(stride)) {
    rows_.clear(vocab);
    const auto count = static_cast<int64_t>(questions.size());
    // Rows of the step before stand in another order.
    std::vector<cuda::SampledRow> results_before(questions.size());
    std::vector<uint8_t> drawn(questions.size());
    for (size_t i = 0; i < questions.size(); ++i) {
      const size_t row = questions.size() - 1 - i;
      const std::optional<TokenId>& latest = questions[i].latest;
      results_before[row].token = latest.value_or(7);
      drawn[row] = latest ? 1 : 0;
      on_device_.push_back(
          rows_.add(questions[i].input(), latest ? static_cast<int32_t>(row) : -1));
    }
    std::vector<float> logits;
    for (const Question& question : questions) {
      logits.insert(logits.end(), question.logits.begin(), question.logits.end());
      logits.resize(logits.size() + static_cast<size_t>(stride) - question.logits.size(), 1e9f);
    }
    const cuda::Sampling& sampling = rows_.sampling();
    EXPECT_EQ(cuda::wrong_sampling(sampling, static_cast<int>(count), stride, drawn), nullptr);
    const auto at_least_one = [](int64_t n) { return n > 0 ? n : 1; };
    const cuda::DeviceBuffer<float> device_logits(logits);
    const cuda::DeviceBuffer<int32_t> counts(
        std::vector<int32_t>{static_cast<int32_t>(count), vocab});
    const cuda::DeviceBuffer<cuda::RowSampling> rows(
        std::vector<cuda::RowSampling>(sampling.rows, sampling.rows + count));
    std::vector<cuda::LogitEdit> its_edits(sampling.edits, sampling.edits + sampling.edit_count);
    its_edits.resize(static_cast<size_t>(at_least_one(sampling.edit_count)));
    const cuda::DeviceBuffer<cuda::LogitEdit> edits(its_edits);
    std::vector<uint64_t> its_masks(sampling.masks, sampling.masks + sampling.mask_words);
    its_masks.resize(static_cast<size_t>(at_least_one(sampling.mask_words)));
    const cuda::DeviceBuffer<uint64_t> masks(its_masks);
    const cuda::DeviceBuffer<float> before(at_least_one(sampling.edit_count));
    const cuda::DeviceBuffer<cuda::SampleState> states(
        std::vector<cuda::SampleState>(static_cast<size_t>(count)));
    const std::vector<cuda::SampleBuckets> zero(static_cast<size_t>(2 * count));
    const cuda::DeviceBuffer<cuda::SampleBuckets> buckets(zero);
    const cuda::DeviceBuffer<uint64_t> slice_masses(count * slices_);
    const cuda::DeviceBuffer<uint64_t> slice_equals(count * slices_);
    const cuda::DeviceBuffer<cuda::SampledRow> results(results_before);
    const cuda::DeviceBuffer<cuda::ReportedToken> reported(count * cuda::kReportedMax);
    const cuda::Sample args{.logits = device_logits.data(),
                            .stride = stride,
                            .counts = counts.data(),
                            .rows = rows.data(),
                            .edits = edits.data(),
                            .masks = masks.data(),
                            .before = before.data(),
                            .states = states.data(),
                            .buckets = buckets.data(),
                            .slice_masses = slice_masses.data(),
                            .slice_equals = slice_equals.data(),
                            .results = results.data(),
                            .reported = reported.data(),
                            .rows_max = static_cast<int32_t>(count) + 1,
                            .slices = slices_,
                            .reports = 0,
                            .needs = cuda::sampling_needs(sampling, static_cast<int>(count))};
    cuda::device().sample(&args);
    cuda::device().wait();
    EXPECT_EQ(cuda::device().failure(), nullptr);
    const cuda::Sampled sampled = rows_.sampled();
    const auto got = results.get();
    std::copy(got.begin(), got.end(), sampled.rows);
    const auto best = reported.get();
    std::copy(best.begin(), best.end(), sampled.reported);
    const auto left = buckets.get();
    EXPECT_EQ(std::memcmp(left.data(), zero.data(), zero.size() * sizeof zero[0]), 0)
        << "buckets are not left as they were found";
    for (const cuda::SampleState& state : states.get()) EXPECT_EQ(state.arrived, 0u);
  }

  bool is_on_device(size_t row) const { return on_device_[row]; }
  SampledChoice choice(size_t row) const { return rows_.choice(row); }

 private:
  const int slices_;
  DeviceRows rows_;
  std::vector<bool> on_device_;
};

class DeviceRowsTest : public ::testing::Test {
 protected:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_.below(static_cast<int>(values.size()))];
  }

  std::vector<float> row(int vocab) {
    const float deviation = one_of({0.0f, 0.1f, 1.0f, 3.0f, 10.0f});
    std::vector<float> logits = random_.floats(vocab, deviation);
    const int kind = random_.below(9);
    for (int i = 0; i < vocab; ++i) {
      float& x = logits[static_cast<size_t>(i)];
      if (kind == 0) x = std::round(x);  // many are equal
      if (kind == 1 && random_.below(3) == 0) x = -kInfinity;
      if (kind == 2) x *= 1e-40f;  // subnormal
      if (kind == 3) x *= 1e37f;
      if (kind == 4) x = i % 2 == 0 ? 0.0f : -0.0f;
      if (kind == 5) x -= 1e4f;
    }
    const auto anywhere = [&]() -> float& {
      return logits[static_cast<size_t>(random_.below(vocab))];
    };
    if (kind == 6) anywhere() += 20.0f;
    const int broken = random_.below(40);
    if (broken == 0) anywhere() = std::numeric_limits<float>::quiet_NaN();
    if (broken == 1) anywhere() = kInfinity;
    if (broken == 2) logits.assign(logits.size(), -kInfinity);
    return logits;
  }

  Question question(int vocab) {
    Question out;
    out.logits = row(vocab);
    request::SamplingParams& params = out.params;
    params.temperature = one_of({0.0f, 0.01f, 0.7f, 1.0f, 1.0f, 2.0f});
    params.top_k = one_of({0, 0, 0, 1, 7, 50, vocab - 1, vocab, vocab + 3, 3000});
    params.top_p = one_of({1.0f, 1.0f, 0.95f, 0.5f, 0.01f, 0.0f, 0.9999f});
    params.min_p = one_of({0.0f, 0.0f, 0.05f, 0.9f, 1.0f, 1e-9f});
    params.seed = static_cast<uint64_t>(random_.below(1 << 30));
    params.logprobs = one_of({-1, -1, -1, 0, 1, 20, cuda::kReportedMax, cuda::kReportedMax + 1});
    out.position = random_.below(5000);
    if (random_.below(3) == 0) {
      params.repetition_penalty = one_of({1.0f, 1.3f, 0.8f});
      params.frequency_penalty = one_of({0.0f, 0.4f, -0.4f});
      params.presence_penalty = one_of({0.0f, 1.5f});
      for (int i = random_.below(60); i > 0; --i) {
        // Also tokens that the row does not have.
        if (random_.below(2) == 0) out.history.add_output(random_.below(vocab + 10));
        out.history.add_prompt(std::vector<TokenId>{random_.below(vocab)});
      }
      if (params.has_penalties() && random_.below(2) == 0) out.latest = latest_of(out, vocab);
    }
    if (random_.below(3) == 0) {
      for (int i = 1 + random_.below(5); i > 0; --i) {
        params.logit_bias.emplace_back(random_.below(vocab + 3), one_of({100.0f, -100.0f, 2.5f}));
      }
    }
    if (random_.below(4) == 0) {
      for (int i = 1 + random_.below(8); i > 0; --i) out.banned.push_back(random_.below(vocab + 3));
    }
    if (random_.below(4) == 0) {
      out.allowed.assign((static_cast<size_t>(vocab) + 63) / 64, 0);
      const int share = one_of({1, 2, 100});
      for (int i = 0; i < vocab; ++i) {
        if (random_.below(share) == 0)
          out.allowed[static_cast<size_t>(i) / 64] |= uint64_t{1} << (i % 64);
      }
    }
    return out;
  }

  // Every number that a request may carry at one end of its range, subnormals among them.
  void make_extreme(request::SamplingParams& params) {
    constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
    constexpr float kSmallest = std::numeric_limits<float>::min();
    const auto below = [](float x) { return std::nextafter(x, 0.0f); };
    params.temperature = one_of({0.0f, kSubnormal, kSmallest, 1e-30f, 1.0f, 2.0f});
    params.top_p = one_of({0.0f, kSubnormal, 1e-30f, below(1.0f), 1.0f});
    params.min_p = one_of({0.0f, kSubnormal, 1e-30f, below(1.0f), 1.0f});
    params.repetition_penalty =
        one_of({0.0f, kSubnormal, kSmallest, 1e-30f, 1e-10f, below(1.0f), 1.0f, 100.0f});
    params.frequency_penalty = one_of({-2.0f, -kSubnormal, 0.0f, kSubnormal, 2.0f});
    params.presence_penalty = one_of({-2.0f, -kSubnormal, 0.0f, kSubnormal, 2.0f});
    for (auto& [token, bias] : params.logit_bias) {
      bias = one_of({-100.0f, -kSubnormal, kSubnormal, 100.0f});
    }
  }

  // What the model computed is sound, and leaves something to choose from.
  static bool can_be_drawn_from(const Question& asked) {
    bool some = false;
    for (size_t i = 0; i < asked.logits.size(); ++i) {
      const float logit = asked.logits[i];
      if (std::isnan(logit) || logit == kInfinity) return false;
      const auto token = static_cast<TokenId>(i);
      const bool banned =
          std::find(asked.banned.begin(), asked.banned.end(), token) != asked.banned.end();
      const bool allowed = asked.allowed.empty() || (asked.allowed[i / 64] >> (i % 64) & 1) != 0;
      some = some || (std::isfinite(logit) && allowed && !banned);
    }
    return some;
  }

  // A token that was there, or any, or none.
  TokenId latest_of(const Question& asked, int vocab) {
    const int kind = random_.below(5);
    if (kind == 0) return -1;
    const auto& counts = asked.history.counts();
    if (kind == 1 || counts.empty()) return random_.below(vocab);
    return std::next(counts.begin(), random_.below(static_cast<int>(counts.size())))->first;
  }

  void expect_equal(const SampledChoice& got, const SampledChoice& wanted, const Question& asked) {
    const request::SamplingParams& p = asked.params;
    const std::string what = fmt::format(
        "vocab {} temperature {} top_k {} top_p {} min_p {} logprobs {} bias {} banned "
        "{} allowed {}",
        asked.logits.size(), p.temperature, p.top_k, p.top_p, p.min_p, p.logprobs,
        p.logit_bias.size(), asked.banned.size(), asked.allowed.size());
    ASSERT_EQ(got.usable, wanted.usable) << what;
    if (!wanted.usable) return;
    ASSERT_EQ(got.token, wanted.token) << what;
    ASSERT_EQ(got.logprob, wanted.logprob) << what;
    ASSERT_EQ(got.top, wanted.top) << what;
  }

  void compare(const std::vector<Question>& questions, int vocab, int stride) {
    const Drawing drawing(questions, vocab, stride);
    for (size_t i = 0; i < questions.size(); ++i) {
      if (!drawing.is_on_device(i)) continue;
      ++compared_;
      std::vector<float> logits = questions[i].logits;
      Question known = questions[i];
      if (known.latest.value_or(-1) >= 0) known.history.add_output(*known.latest);
      const SampledChoice wanted = sampler_.sample(logits, known.input());
      ASSERT_EQ(wanted.usable, can_be_drawn_from(questions[i]));
      used_ += wanted.usable ? 1 : 0;
      expect_equal(drawing.choice(i), wanted, questions[i]);
    }
  }

  cuda::Random random_;
  Sampler sampler_;
  int compared_ = 0;
  int used_ = 0;
};

TEST_F(DeviceRowsTest, DrawsWhatASamplerDraws) {
  constexpr int kTrials = 120;
  for (int trial = 0; trial < kTrials && !HasFatalFailure(); ++trial) {
    const int vocab = one_of({1, 2, 31, 500, 8191, 8192, 8193, 20000});
    std::vector<Question> questions;
    for (int i = 1 + random_.below(4); i > 0; --i) questions.push_back(question(vocab));
    compare(questions, vocab, vocab + one_of({0, 1, 200}));
  }
  EXPECT_GT(compared_, kTrials);
  EXPECT_GT(used_, compared_ / 2);
}

// No parameter makes an infinity or a NaN of a finite row: those that come out of here are the
// model's own, and count as damage to its weights.
TEST_F(DeviceRowsTest, E1_ExtremeParametersLeaveAFiniteRowUsable) {
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials && !HasFatalFailure(); ++trial) {
    const int vocab = one_of({1, 2, 31, 500, 8193, 20000});
    std::vector<Question> questions;
    for (int i = 1 + random_.below(4); i > 0; --i) {
      questions.push_back(question(vocab));
      make_extreme(questions.back().params);
    }
    compare(questions, vocab, vocab);
  }
  EXPECT_GT(used_, compared_ / 2);
}

TEST_F(DeviceRowsTest, AWholeVocabularyIsDrawnFrom) {
  constexpr int kVocab = 201088;
  std::vector<Question> questions(3);
  for (Question& question : questions) {
    question.logits = random_.floats(kVocab, 2.0f);
    question.params = {.temperature = 1.0f, .top_p = 0.95f, .seed = 7};
    question.position = random_.below(1000);
  }
  questions[1].params.top_k = 40;
  questions[1].params.logprobs = 20;
  questions[2].params.temperature = 0.0f;
  compare(questions, kVocab, kVocab);
  EXPECT_EQ(compared_, 3);
}

TEST_F(DeviceRowsTest, WhatADeviceCannotDoIsTheHosts) {
  DeviceRows rows;
  rows.clear(100);
  Question twice;
  twice.params.logit_bias = {{3, 1.0f}, {4, 1.0f}, {3, 1.0f}};
  EXPECT_FALSE(rows.add(twice.input(), -1));
  Question many;
  many.params.logprobs = cuda::kReportedMax + 1;
  EXPECT_FALSE(rows.add(many.input(), -1));
  Question long_history;
  long_history.params.presence_penalty = 1;
  std::vector<TokenId> tokens(static_cast<size_t>(cuda::kEditsMax) + 1);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  long_history.history.add_prompt(tokens);
  EXPECT_FALSE(rows.add(long_history.input(), -1));
  EXPECT_TRUE(rows.add(Question{}.input(), -1));
  EXPECT_FALSE(cuda::sampling_needs(rows.sampling(), 3).any);
  EXPECT_TRUE(cuda::sampling_needs(rows.sampling(), 4).any);
}

// Numbers that would have a device read from anywhere are refused before it does.
TEST_F(DeviceRowsTest, ATableThatPointsElsewhereIsRefused) {
  DeviceRows rows;
  rows.clear(128);
  Question asked;
  asked.params.logit_bias = {{3, 1.0f}};
  asked.allowed = {~uint64_t{0}, 1};
  ASSERT_TRUE(rows.add(asked.input(), -1));
  const cuda::Sampling good = rows.sampling();
  EXPECT_EQ(cuda::wrong_sampling(good, 1, 128, {}), nullptr);
  EXPECT_NE(cuda::wrong_sampling(good, 1, 127, {}), nullptr) << "more tokens than the model has";
  const auto changed = [&](auto change) {
    cuda::RowSampling row = good.rows[0];
    cuda::Sampling sampling = good;
    change(row, sampling);
    sampling.rows = &row;
    return cuda::wrong_sampling(sampling, 1, 128, {}) != nullptr;
  };
  EXPECT_TRUE(changed([](auto& row, auto&) { row.bias_count = 2; }));
  EXPECT_TRUE(changed([](auto& row, auto&) { row.biases = -1; }));
  EXPECT_TRUE(changed([](auto& row, auto&) { row.banned = 2; }));
  EXPECT_TRUE(changed([](auto& row, auto&) { row.penalty_count = -1; }));
  EXPECT_TRUE(changed([](auto& row, auto&) { row.mask = 1; }));
  EXPECT_TRUE(changed([](auto& row, auto&) { row.reported = cuda::kReportedMax + 1; }));
  EXPECT_TRUE(changed([](auto&, auto& sampling) { sampling.edit_count = cuda::kEditsMax + 1; }));
  EXPECT_TRUE(changed([](auto&, auto& sampling) { sampling.vocab = 0; }));

  // A token of the step before must have been drawn there.
  rows.clear(128);
  Question penalized;
  penalized.params.presence_penalty = 1;
  ASSERT_TRUE(rows.add(penalized.input(), 1));
  const auto wrong = [&](std::vector<uint8_t> drawn) {
    return cuda::wrong_sampling(rows.sampling(), 1, 128, drawn) != nullptr;
  };
  EXPECT_FALSE(wrong({0, 1}));
  EXPECT_TRUE(wrong({1, 0}));
  EXPECT_TRUE(wrong({1}));
}

}  // namespace
}  // namespace pelton::sampling
