// Packed weights are made once, used while their source stays as it is, and made anew after.
#include "node/packed_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/loaded_model.h"
#include "node/packing_lock.h"

namespace pelton::node {
namespace {

namespace fs = std::filesystem;
using models::WeightChoice;
using testing::HasSubstr;

class PackedCache : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "packed_cache_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    fs::copy(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny", model());
    cache_ = root_ + "/cache";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string model() const { return root_ + "/tiny"; }
  checkpoint::Checkpoint source() const {
    auto opened = checkpoint::Checkpoint::open(model());
    EXPECT_TRUE(opened.ok());
    return std::move(*opened);
  }
  std::optional<std::string> found(WeightChoice weights) const {
    const auto folder = find_packed(cache_, source(), weights);
    EXPECT_TRUE(folder.ok());
    return *folder;
  }
  std::string make(WeightChoice weights) {
    base::ThreadPool pool({.threads = 2, .pin = false});
    const auto go_on = [](std::string_view, int64_t, int64_t) { return true; };
    const auto folder = make_packed(cache_, source(), weights, pool, go_on, log_);
    EXPECT_TRUE(folder.ok()) << folder.error().message;
    return folder.ok() ? *folder : "";
  }
  void change_source() const {
    fs::last_write_time(
        model() + "/model.safetensors",
        fs::last_write_time(model() + "/model.safetensors") + std::chrono::seconds(1));
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::string root_;
  std::string cache_;
};

TEST_F(PackedCache, IsMadeOnceForEachChoice) {
  EXPECT_FALSE(found(WeightChoice::kInt8));
  EXPECT_TRUE(packed_models(cache_).empty());
  const std::string int8 = make(WeightChoice::kInt8);
  EXPECT_EQ(found(WeightChoice::kInt8), int8);
  EXPECT_FALSE(found(WeightChoice::kShipped));
  const std::string shipped = make(WeightChoice::kShipped);
  EXPECT_NE(int8, shipped);
  EXPECT_EQ(make(WeightChoice::kInt8), int8) << "there already, as if another process had made it";
  const std::vector<PackedEntry> entries = packed_models(cache_);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].source, model());
  EXPECT_EQ(entries[0].weights, "int8");
  EXPECT_EQ(entries[1].weights, "shipped");
}

// What prompts are made of goes with the weights.
TEST_F(PackedCache, KeepsTheChatTemplate) {
  std::ofstream(model() + "/chat_template.jinja") << "{{ messages[0].content }}";
  std::ofstream(model() + "/tokenizer_config.json") << R"({"eos_token":"<|return|>"})";
  const std::string folder = make(WeightChoice::kInt8);
  for (const char* name : {"/chat_template.jinja", "/tokenizer_config.json"}) {
    std::ifstream kept(folder + name);
    std::ifstream given(model() + name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}),
              std::string(std::istreambuf_iterator<char>(given), {}))
        << name;
  }
}

// A9: who comes while another packs waits for it, says so, and takes what it made.
TEST_F(PackedCache, A9_SecondPackerWaitsForTheFirst) {
  const std::string folder = cache_ + "/waited-for";
  std::FILE* file = std::tmpfile();
  base::Log log(clock_, {.file = file});
  std::atomic<int> asked{0};
  std::thread second;
  {
    const auto first = PackingLock::take(
        folder, [] { return true; }, log_);
    ASSERT_TRUE(first.ok());
    const auto given_up = PackingLock::take(
        folder, [] { return false; }, log_);
    ASSERT_FALSE(given_up.ok());
    EXPECT_EQ(given_up.error().code, ErrorCode::kCancelled);
    second = std::thread([&] {
      const auto go_on = [&] { return ++asked > 0; };
      EXPECT_TRUE(PackingLock::take(folder, go_on, log).ok());
    });
    while (asked == 0) std::this_thread::yield();
  }
  second.join();
  std::rewind(file);
  char text[512] = {};
  EXPECT_GT(std::fread(text, 1, sizeof text - 1, file), 0u);
  EXPECT_THAT(text, HasSubstr("another process is packing these weights"));
  std::fclose(file);
}

TEST_F(PackedCache, A9_WhatAKilledPackerLeftGoesAway) {
  const std::string folder = cache_ + "/killed";
  for (const char* name : {"old", "new"}) {
    fs::create_directories(folder + ".partial." + name);
    std::ofstream(folder + ".partial." + name + "/model.safetensors") << "x";
  }
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  fs::last_write_time(folder + ".partial.old/model.safetensors", long_ago);
  fs::last_write_time(folder + ".partial.old", long_ago);
  const auto lock = PackingLock::take(
      folder, [] { return true; }, log_);
  ASSERT_TRUE(lock.ok());
  lock->remove_leftovers(log_);
  EXPECT_FALSE(fs::exists(folder + ".partial.old"));
  EXPECT_TRUE(fs::exists(folder + ".partial.new"));
}

TEST_F(PackedCache, WhatWasMadeFromOtherFilesIsMadeAnew) {
  const std::string before = make(WeightChoice::kInt8);
  change_source();
  EXPECT_FALSE(found(WeightChoice::kInt8));
  const std::string after = make(WeightChoice::kInt8);
  EXPECT_NE(before, after);
  EXPECT_FALSE(fs::exists(before)) << "nobody would ever use it again";
  EXPECT_EQ(found(WeightChoice::kInt8), after);
}

TEST_F(PackedCache, WhatWasChosenByAnotherRuleIsMadeAnew) {
  const std::string int8 = make(WeightChoice::kInt8);
  const std::string chosen = make(WeightChoice::kAuto);
  EXPECT_EQ(found(WeightChoice::kInt8), int8) << "each stays beside the other";
  EXPECT_EQ(found(WeightChoice::kAuto), chosen);
  // Nobody chose this one, or somebody did before there was a rule to remember.
  fs::remove_all(chosen);
  fs::copy(int8, chosen);
  EXPECT_FALSE(found(WeightChoice::kAuto));
  EXPECT_EQ(make(WeightChoice::kAuto), chosen);
  EXPECT_EQ(found(WeightChoice::kAuto), chosen);
  EXPECT_EQ(found(WeightChoice::kInt8), int8);
}

TEST_F(PackedCache, WhatIsDamagedIsMadeAnew) {
  const std::string folder = make(WeightChoice::kInt8);
  fs::resize_file(folder + "/model.safetensors", 100);
  EXPECT_FALSE(found(WeightChoice::kInt8));
  EXPECT_EQ(make(WeightChoice::kInt8), folder);
  EXPECT_EQ(found(WeightChoice::kInt8), folder);
}

TEST_F(PackedCache, CanBePurgedBySource) {
  make(WeightChoice::kInt8);
  ASSERT_EQ(*purge_packed(cache_, "/elsewhere"), 0);
  EXPECT_GT(*purge_packed(cache_, model()), 0);
  EXPECT_TRUE(packed_models(cache_).empty());
}

TEST_F(PackedCache, AModelIsLoadedFromIt) {
  LoadedModel::Options options;
  options.executor.context_tokens = 256;
  options.packed_cache = cache_;
  {
    const auto loaded = LoadedModel::load(model(), options, clock_, log_);
    ASSERT_TRUE(loaded.ok());
    EXPECT_EQ((*loaded)->checkpoint().folder(), model()) << "nobody asked for it";
    EXPECT_FALSE(fs::exists(cache_));
  }
  options.weights = WeightChoice::kAuto;
  for (int turn = 0; turn < 2; ++turn) {
    int packings = 0;
    options.progress = [&](std::string_view what, int64_t done, int64_t) {
      if (what.starts_with("packing") && done > 0) ++packings;
      return true;
    };
    const auto loaded = LoadedModel::load(model(), options, clock_, log_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_THAT((*loaded)->checkpoint().folder(), HasSubstr(cache_));
    EXPECT_THAT((*loaded)->weights_text(), HasSubstr("attention int8"));
    EXPECT_EQ(packings > 0, turn == 0);
  }
}

// The same weights, in memory; nothing of it is left where files are.
TEST_F(PackedCache, WithoutACacheWeightsArePackedInMemory) {
  LoadedModel::Options options;
  options.executor.context_tokens = 256;
  options.weights = WeightChoice::kInt8;
  const auto temporaries = [] {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
      count += entry.path().filename().string().starts_with(fmt::format("pelton-{}.", ::getpid()));
    }
    return count;
  };
  const auto loaded = LoadedModel::load(model(), options, clock_, log_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(temporaries(), 0U);
  EXPECT_FALSE(fs::exists(cache_));
  EXPECT_EQ((*loaded)->checkpoint().folder(), model());
  EXPECT_THAT((*loaded)->weights_text(), HasSubstr("attention int8"));
  const checkpoint::Checkpoint kept =
      std::move(checkpoint::Checkpoint::open(make(WeightChoice::kInt8)).value());
  const checkpoint::Checkpoint& packed = (*loaded)->checkpoint();
  ASSERT_EQ(kept.tensors().size(), packed.tensors().size());
  for (const auto& [name, tensor] : kept.tensors()) {
    const auto other = packed.tensors().find(name);
    ASSERT_NE(other, packed.tensors().end()) << name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, other->second.bytes)) << name;
  }
}

// What `plan --weights int8` says of the model's files is what is then allocated.
TEST_F(PackedCache, MemoryOfPackedWeightsIsKnownBefore) {
  LoadedModel::Options options;
  options.executor.context_tokens = 256;
  options.weights = WeightChoice::kInt8;
  const auto request = executor::LocalExecutor::memory_request(options.executor);
  ASSERT_TRUE(request.ok());
  const auto predicted = cost_model::packed_footprint(source().config(), *request);
  ASSERT_TRUE(predicted.ok()) << predicted.error().message;
  const auto loaded = LoadedModel::load(model(), options, clock_, log_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(cost_model::to_json(*predicted).dump(),
            cost_model::to_json((*loaded)->local_executor()->footprint()).dump());
}

// As they are shipped: large bf16 matrices in 12 bits, which `mapped` leaves alone.
TEST_F(PackedCache, WhatIsNotPackedIsHeldInTwelveBits) {
  LoadedModel::Options options;
  options.executor.context_tokens = 256;
  options.compact_from = 0;
  const auto loaded = LoadedModel::load(model(), options, clock_, log_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const bool fast = (*loaded)->local_executor()->kernels_name() != "reference";
  const std::string held = "attention BF16 (held in 12 bits)";
  EXPECT_EQ((*loaded)->weights_text().find(held) != std::string::npos, fast);
  EXPECT_EQ((*loaded)->local_executor()->footprint().weights.compact > 0, fast);
  // What a start decides about locking by: the files' pages, or 12 bits in their place, but not
  // both.
  const cost_model::Footprint& taken = (*loaded)->local_executor()->footprint();
  EXPECT_EQ(taken.beside_weights() + taken.weights.compact + taken.weights.mapped, taken.bytes());
  options.compact_from.reset();
  const auto mapped = LoadedModel::load(model(), options, clock_, log_);
  ASSERT_TRUE(mapped.ok());
  EXPECT_THAT((*mapped)->weights_text(), testing::Not(HasSubstr("12 bits")));
  EXPECT_EQ((*mapped)->local_executor()->footprint().weights.compact, 0);
}

TEST_F(PackedCache, AWishThatCannotBeFulfilledIsNone) {
  LoadedModel::Options options;
  options.executor.context_tokens = 256;
  std::ofstream(cache_) << "a file where a folder should be";
  options.packed_cache = cache_;
  options.weights = WeightChoice::kInt8;
  EXPECT_FALSE(LoadedModel::load(model(), options, clock_, log_).ok());
}

}  // namespace
}  // namespace pelton::node
