// Every form of the row kernels against the reference, bit for bit, and the reference against
// double precision.
#include "kernels/logit_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The forms that this processor can run.
std::vector<std::unique_ptr<LogitRows>> vector_forms() {
  std::vector<std::unique_ptr<LogitRows>> forms;
  for (const KernelChoice choice :
       {KernelChoice::kAvx512, KernelChoice::kAvx2, KernelChoice::kNeon}) {
    auto form = make_logit_rows(choice);
    if (form.ok()) forms.push_back(std::move(form).value());
  }
  return forms;
}

struct Case {
  std::vector<float> logits;
  std::vector<uint64_t> allowed;
  LogitScale scale;
  float floor;
  float ceiling;
};

Case random_case(std::mt19937_64& random) {
  Case a_case;
  a_case.logits.resize(1 + random() % 700);
  const float width = std::exp2(static_cast<float>(static_cast<int>(random() % 12)) - 4.0f);
  std::normal_distribution<float> bell(0.0f, width);
  for (float& logit : a_case.logits) logit = bell(random);
  for (uint64_t edits = random() % 6; edits > 0; --edits) {
    static constexpr float kOdd[] = {-kInfinity, 0.0f, -0.0f, 1e-42f, -3e38f, 3e38f};
    a_case.logits[random() % a_case.logits.size()] = kOdd[random() % std::size(kOdd)];
  }
  if (random() % 2 == 0) {
    a_case.allowed.resize((a_case.logits.size() + 63) / 64);
    for (uint64_t& word : a_case.allowed) word = random() & random();
  }
  a_case.scale = {.highest = *std::max_element(a_case.logits.begin(), a_case.logits.end()),
                  .sharpness = 1.442695f * std::exp2(static_cast<float>(random() % 9) - 4.0f)};
  a_case.floor = bell(random);
  a_case.ceiling = random() % 2 == 0 ? kInfinity : a_case.floor + std::abs(bell(random));
  return a_case;
}

struct Outcome {
  std::vector<uint32_t> row;  // bits, after the mask
  float highest;
  bool broken;
  std::vector<float> block_highest;
  Mass total;
  Mass above_floor;
  std::vector<Mass> block_mass;
  std::vector<Mass> masses;
  std::vector<float> values;
  std::vector<TokenId> ids;

  std::vector<uint64_t> marks;
  size_t marked = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(const LogitRows& form, const Case& a_case) {
  std::vector<float> logits = a_case.logits;
  const size_t blocks = logit_blocks(logits.size());
  const size_t room = blocks * kLogitBlock;
  Outcome out;
  out.block_highest.resize(blocks);
  const LogitRows::Scan scan = form.scan(logits, a_case.allowed, out.block_highest.data());
  out.highest = scan.highest;
  out.broken = scan.broken;
  out.block_mass.resize(blocks);
  out.above_floor = form.softmax_weights(logits, a_case.scale, a_case.floor, out.block_mass.data());
  out.total = form.softmax_weights(logits, a_case.scale, -kInfinity, out.block_mass.data());
  out.masses.resize(room);
  form.weigh_each(logits, a_case.scale, out.masses.data());
  out.masses.resize(logits.size());
  out.values.resize(room);
  out.ids.resize(room);
  const LogitRows::Range range{a_case.floor, a_case.ceiling};
  const size_t found =
      form.collect(logits, out.block_highest.data(), range, out.values.data(), out.ids.data());
  out.values.resize(found);
  out.ids.resize(found);
  EXPECT_EQ(form.collect(logits, nullptr, range, out.values.data(), out.ids.data()), found);
  if (std::isfinite(a_case.floor)) {
    out.marks.resize(static_cast<size_t>(mark_words(static_cast<int64_t>(logits.size()))), ~0ULL);
    out.marked = form.mark(logits, out.block_highest.data(), a_case.floor, out.marks.data());
  }
  for (const float logit : logits) out.row.push_back(std::bit_cast<uint32_t>(logit));
  return out;
}

TEST(LogitRows, AllFormsGiveTheSameBits) {
  const auto reference = make_logit_rows(KernelChoice::kReference).value();
  const auto forms = vector_forms();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const Case a_case = random_case(random);
    const Outcome expected = outcome(*reference, a_case);
    Mass sum = 0;
    for (const Mass mass : expected.masses) sum += mass;
    ASSERT_EQ(sum, expected.total);
    Mass above_floor = 0;
    std::vector<TokenId> inside;
    size_t marked = 0;
    for (size_t i = 0; i < expected.row.size(); ++i) {
      const auto logit = std::bit_cast<float>(expected.row[i]);
      if (logit >= a_case.floor) above_floor += expected.masses[i];
      if (logit >= a_case.floor && logit < a_case.ceiling) inside.push_back(static_cast<int>(i));
      if (expected.marks.empty()) continue;
      const bool is_marked = (expected.marks[i / 64] >> (i % 64) & 1) != 0;
      ASSERT_EQ(is_marked, logit >= a_case.floor);
      if (is_marked) ++marked;
    }
    ASSERT_EQ(above_floor, expected.above_floor);
    ASSERT_EQ(inside, expected.ids);
    ASSERT_EQ(marked, expected.marked);
    for (const auto& form : forms) {
      ASSERT_TRUE(outcome(*form, a_case) == expected) << form->name() << " round " << round;
    }
  }
}

TEST(LogitRows, ScanFindsWhatIsNoNumberWhereverItStands) {
  auto forms = vector_forms();
  forms.push_back(make_logit_rows(KernelChoice::kReference).value());
  std::vector<float> block_highest(4);
  for (const auto& form : forms) {
    for (const float odd : {std::nanf(""), -std::nanf(""), kInfinity}) {
      for (size_t place = 0; place < 300; ++place) {
        std::vector<float> row(300, -1.0f);
        EXPECT_FALSE(form->scan(row, {}, block_highest.data()).broken);
        row[place] = odd;
        EXPECT_TRUE(form->scan(row, {}, block_highest.data()).broken) << form->name();
        // A mask does not hide it.
        const std::vector<uint64_t> nothing(5);
        EXPECT_TRUE(form->scan(row, nothing, block_highest.data()).broken) << form->name();
      }
    }
    std::vector<float> row(300, -kInfinity);
    EXPECT_FALSE(form->scan(row, {}, block_highest.data()).broken);
    EXPECT_EQ(form->scan(row, {}, block_highest.data()).highest, -kInfinity);
  }
}

TEST(LogitRows, AWeightIsTheExponential) {
  const auto reference = make_logit_rows(KernelChoice::kReference).value();
  std::vector<float> logits;
  for (int i = 0; i <= 40000; ++i) logits.push_back(5.0f - static_cast<float>(i) / 1000.0f);
  std::vector<Mass> masses(logit_blocks(logits.size()) * kLogitBlock);
  const LogitScale scale{.highest = 5.0f, .sharpness = 1.44269504f};
  reference->weigh_each(logits, scale, masses.data());
  EXPECT_EQ(masses[0], kWholeMass);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double exact = std::exp(double{logits[i]} - 5.0) * static_cast<double>(kWholeMass);
    // The exponent itself is rounded: by half a unit of 2^-24 of up to 43.
    ASSERT_NEAR(static_cast<double>(masses[i]), exact, 0.51 + exact * 4e-6) << logits[i];
    if (i >= 5000) continue;
    ASSERT_NEAR(static_cast<double>(masses[i]), exact, exact * 1.1e-6) << logits[i];
  }
}

TEST(LogitRows, ExtremesWeighSomethingSensible) {
  auto forms = vector_forms();
  forms.push_back(make_logit_rows(KernelChoice::kReference).value());
  std::vector<Mass> masses(kLogitBlock);
  for (const auto& form : forms) {
    form->weigh_each(std::vector<float>{3e38f, -3e38f, -kInfinity},
                     {.highest = 3e38f, .sharpness = 1e30f}, masses.data());
    EXPECT_EQ(masses[0], kWholeMass) << form->name();
    EXPECT_EQ(masses[1], 0u) << form->name();
    EXPECT_EQ(masses[2], 0u) << form->name();
  }
}

}  // namespace
}  // namespace pelton::kernels
