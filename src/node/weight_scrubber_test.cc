// FT-18: weights that change under a running model are found, and so are too many numbers that are
// not finite.
#include "node/weight_scrubber.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/random.h"

namespace pelton::node {
namespace {

namespace fs = std::filesystem;
using State = WeightScrubber::State;

constexpr int64_t kSecond = 1'000'000'000;

TEST(WeightSum, EachBitCounts) {
  for (const size_t size : {1u, 7u, 31u, 32u, 33u, 100u, 4096u}) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(base::random_bits(1, i));
    std::set<uint64_t> sums = {weight_sum(bytes)};
    for (size_t bit = 0; bit < size * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      sums.insert(weight_sum(bytes));
      bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    }
    EXPECT_EQ(sums.size(), size * 8 + 1) << size << " bytes";
  }
  const std::vector<uint8_t> none(64, 0);
  EXPECT_NE(weight_sum(std::span(none).first(32)), weight_sum(none)) << "nor is length nothing";
}

TEST(ErrorWindow, CountsWhatCameLately) {
  ErrorWindow window({.errors_max = 2, .window_ns = 60 * kSecond});
  EXPECT_FALSE(window.too_many(0, 100)) << "what came before";
  EXPECT_FALSE(window.too_many(10 * kSecond, 101));
  EXPECT_FALSE(window.too_many(20 * kSecond, 102));
  EXPECT_TRUE(window.too_many(30 * kSecond, 103));
  EXPECT_TRUE(window.too_many(69 * kSecond, 103));
  EXPECT_FALSE(window.too_many(70 * kSecond, 103)) << "the first of three is a minute old";
  EXPECT_TRUE(window.too_many(71 * kSecond, 104));
  EXPECT_FALSE(window.too_many(500 * kSecond, 104));
  EXPECT_TRUE(window.too_many(501 * kSecond, 107)) << "three at once";
  ErrorWindow patient({.errors_max = 0, .window_ns = 60 * kSecond});
  EXPECT_FALSE(patient.too_many(0, 0));
  EXPECT_FALSE(patient.too_many(1, 1'000'000));
}

class Watched : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "weight_watch_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::copy(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny", root_);
    auto opened = checkpoint::Checkpoint::open(root_);
    ASSERT_TRUE(opened.ok());
    checkpoint_.emplace(std::move(*opened));
  }
  void TearDown() override { fs::remove_all(root_); }

  void watch(int64_t period_ns, int64_t window_ns) {
    watch_.emplace(WeightScrubber::Options{.period_ns = period_ns,
                                           .errors = {.errors_max = 3, .window_ns = window_ns},
                                           .error_count = [this] { return errors_.load(); },
                                           .on_change =
                                               [this](State state) {
                                                 state_ = state;
                                                 ++changes_;
                                               }},
                   checkpoint::whole_weights(*checkpoint_), clock_, log_);
  }
  // In the file, which is what is mapped: as memory that fails would.
  void flip_a_bit() const {
    const std::string path = root_ + "/model.safetensors";
    const auto last = static_cast<off_t>(fs::file_size(path)) - 1;
    const int file = ::open(path.c_str(), O_RDWR);
    ASSERT_GE(file, 0);
    char byte = 0;
    ASSERT_EQ(::pread(file, &byte, 1, last), 1);
    byte = static_cast<char>(byte ^ 0x10);
    ASSERT_EQ(::pwrite(file, &byte, 1, last), 1);
    ::close(file);
  }
  static bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::string root_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::atomic<int64_t> errors_{0};
  std::atomic<State> state_{State::kSound};
  std::atomic<int> changes_{0};
  std::optional<WeightScrubber> watch_;
};

TEST_F(Watched, SumsFindWhatHasChanged) {
  WeightSums sums(checkpoint::whole_weights(*checkpoint_));
  const size_t pieces = sums.piece_count();
  ASSERT_GT(pieces, 10u);
  int64_t bytes = 0;
  for (size_t i = 0; i < pieces; ++i) {
    const WeightSums::Look look = sums.look();
    EXPECT_FALSE(look.known);
    EXPECT_EQ(look.changed, "");
    bytes += look.bytes;
  }
  EXPECT_EQ(bytes, sums.bytes());
  EXPECT_TRUE(sums.all_known());
  flip_a_bit();
  std::vector<std::string> changed;
  for (size_t i = 0; i < pieces; ++i) {
    const WeightSums::Look look = sums.look();
    EXPECT_TRUE(look.known);
    if (!look.changed.empty()) changed.push_back(look.changed);
  }
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_NE(changed[0].find(", bytes "), std::string::npos) << changed[0];
}

// Of a rank only its part of a tensor is looked at; what has changed is named by its place in it.
TEST_F(Watched, SumsAreOfTheGivenRanges) {
  const std::span<const uint8_t> file = checkpoint_->files()[0].bytes();
  const auto last = std::ranges::find_if(checkpoint_->tensors(), [&](const auto& named) {
    return named.second.bytes.data() + named.second.bytes.size() == file.data() + file.size();
  });
  ASSERT_NE(last, checkpoint_->tensors().end());
  const std::span<const uint8_t> bytes = last->second.bytes;
  const size_t half = bytes.size() / 2;
  const checkpoint::WeightRange first{last->first, 0, bytes.first(half)};
  const checkpoint::WeightRange second{last->first, static_cast<int64_t>(half),
                                       bytes.subspan(half)};
  WeightSums front(checkpoint::WeightRanges{first});
  WeightSums back(checkpoint::WeightRanges{second});
  EXPECT_EQ(front.bytes() + back.bytes(), std::ssize(bytes));
  for (size_t i = 0; i < front.piece_count(); ++i) front.look();
  for (size_t i = 0; i < back.piece_count(); ++i) back.look();
  flip_a_bit();
  for (size_t i = 0; i < front.piece_count(); ++i) EXPECT_EQ(front.look().changed, "");
  std::string changed;
  for (size_t i = 0; i < back.piece_count(); ++i) changed += back.look().changed;
  EXPECT_TRUE(changed.starts_with(last->first + ", bytes ")) << changed;
  EXPECT_TRUE(changed.ends_with(" to " + std::to_string(bytes.size() - 1))) << changed;
}

TEST_F(Watched, FT_18_WeightsThatChangeAreFoundInThePeriod) {
  watch(kSecond, 60 * kSecond);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(changes_, 0);
  flip_a_bit();
  EXPECT_TRUE(soon([&] { return state_ == State::kDamaged; }));
  errors_ += 100;
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(changes_, 1) << "it stays damaged";
}

TEST_F(Watched, FT_18_TooManyErrorsAreADoubtThatPasses) {
  watch(0, kSecond);
  errors_ += 3;
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(changes_, 0) << "so many may come";
  errors_ += 4;  // whatever is left of the first ones' second
  EXPECT_TRUE(soon([&] { return state_ == State::kDoubted; }));
  EXPECT_TRUE(soon([&] { return state_ == State::kSound; }));
}

TEST_F(Watched, FT_18_ADoubtHasTheWeightsLookedAtAtOnce) {
  constexpr int64_t kDay = 86'400 * kSecond;
  watch(kDay, kSecond);
  // The first look is not put off for a day; of this small model it takes a turn.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  flip_a_bit();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(changes_, 0);
  errors_ += 4;
  EXPECT_TRUE(soon([&] { return state_ == State::kDamaged; }));
}

}  // namespace
}  // namespace pelton::node
