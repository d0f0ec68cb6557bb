#include "server/adapter_registry.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::server {
namespace {

using InPlace = AdapterRegistry::InPlace;
using Hold = std::shared_ptr<const AdapterHold>;

struct CountedWeights final : request::AdapterWeights {
  explicit CountedWeights(std::atomic<int>& count) : alive(count) { ++alive; }
  ~CountedWeights() override { --alive; }
  std::atomic<int>& alive;
};

// What a "file" says is its path's digest, unless the test has written something else there.
class AdapterRegistryTest : public testing::Test {
 protected:
  AdapterRegistry::Options options(int resident_max) {
    AdapterRegistry::Options options;
    options.load = [this](const std::string& path) -> Result<AdapterRegistry::Loaded> {
      while (held_up_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex_);
      if (path.find("bad") != std::string::npos || broken_.contains(path)) {
        return Error{ErrorCode::kBadCheckpoint, "rank 0", ""};
      }
      const auto written = files_.find(path);
      const std::string content = written == files_.end() ? path : written->second;
      AdapterRegistry::Loaded loaded{.digest = content, .rank = 8, .bytes = 100};
      loaded.adapter.identity = static_cast<int64_t>(std::hash<std::string>()(content) >> 1) | 1;
      loaded.adapter.weights = std::make_shared<CountedWeights>(alive_);
      return loaded;
    };
    options.resident_max = resident_max;
    options.loads_per_second = 0;
    return options;
  }

  void start(AdapterRegistry::Options options) {
    registry_ = std::make_unique<AdapterRegistry>(std::move(options), clock_, log_);
  }

  Result<void> load(const std::string& name, const std::string& path,
                    InPlace in_place = InPlace::kNo, bool pinned = false) {
    std::promise<Result<void>> outcome;
    const Result<void> begun =
        registry_->load({.name = name, .path = path, .pinned = pinned}, in_place,
                        [&](const Result<void>& done) { outcome.set_value(done); });
    return begun.ok() ? outcome.get_future().get() : begun;
  }

  std::future<AdapterRegistry::Held> wait(const std::string& name) {
    auto outcome = std::make_shared<std::promise<AdapterRegistry::Held>>();
    auto future = outcome->get_future();
    const auto begun = registry_->wait(
        name, {.tenant = "t", .bytes = 1, .done = [outcome](AdapterRegistry::Held held) {
                 outcome->set_value(std::move(held));
               }});
    if (!begun.ok()) outcome->set_value(begun.error());
    return future;
  }
  Hold held(const std::string& name) {
    AdapterRegistry::Held hold = wait(name).get();
    EXPECT_TRUE(hold.ok()) << hold.error().message;
    return hold.ok() ? *hold : nullptr;
  }

  Hold held_or_loaded(const std::string& name) {
    EXPECT_TRUE(load(name, name).ok());
    return registry_->hold(name);
  }

  void break_file(const std::string& path) {
    const std::lock_guard lock(mutex_);
    broken_.insert(path);
  }

  // Freed by the registry's thread.
  void expect_alive(int count) {
    for (int i = 0; i < 5000 && alive_ != count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(alive_, count);
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::mutex mutex_;
  std::map<std::string, std::string> files_;
  std::set<std::string> broken_;
  std::atomic<bool> held_up_ = false;
  std::atomic<int> alive_ = 0;
  std::unique_ptr<AdapterRegistry> registry_;  // last
};

TEST_F(AdapterRegistryTest, the_least_recently_used_makes_room) {
  start(options(2));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(load(name, name).ok());
  EXPECT_NE(registry_->hold("a"), nullptr);
  EXPECT_NE(registry_->hold("b"), nullptr);
  EXPECT_NE(registry_->hold("a"), nullptr);
  ASSERT_TRUE(load("c", "c").ok());
  EXPECT_EQ(registry_->hold("b"), nullptr);  // known, and not in memory
  EXPECT_TRUE(registry_->has("b"));
  EXPECT_NE(registry_->hold("a"), nullptr);
  EXPECT_EQ(held("b")->digest(), "b");
  EXPECT_EQ(registry_->hold("c"), nullptr);
  const AdapterRegistry::Stats stats = registry_->stats();
  EXPECT_EQ(stats.resident, 2);
  EXPECT_EQ(stats.loads, 4);
  EXPECT_EQ(stats.evictions, 2);
  EXPECT_EQ(stats.hits, 4);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.bytes, 200);
  expect_alive(2);
}

TEST_F(AdapterRegistryTest, pinned_ones_stay) {
  start(options(2));
  ASSERT_TRUE(load("pinned", "p", InPlace::kNo, true).ok());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(load(name, name).ok());
  EXPECT_NE(registry_->hold("pinned"), nullptr);
  ASSERT_TRUE(load("pinned2", "q", InPlace::kNo, true).ok());
  const Result<void> refused = load("d", "d");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(wait("c").get().error().code, ErrorCode::kDoesNotFit);
  ASSERT_TRUE(registry_->unload("pinned").ok());
  EXPECT_EQ(held("c")->digest(), "c");
}

TEST_F(AdapterRegistryTest, LR_07_a_name_with_other_weights_is_another_adapter) {
  start(options(4));
  ASSERT_TRUE(load("sql", "one").ok());
  const Hold before = registry_->hold("sql");
  EXPECT_EQ(load("sql", "two").error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(load("sql", "two", InPlace::kYes).ok());
  const Hold after = registry_->hold("sql");
  EXPECT_EQ(before->digest(), "one");  // to its end
  EXPECT_EQ(after->digest(), "two");
  EXPECT_NE(before->identity(), after->identity());
}

TEST_F(AdapterRegistryTest, two_names_of_one_adapter_share_it) {
  start(options(2));
  ASSERT_TRUE(load("a", "same").ok());
  files_["copy"] = "same";
  ASSERT_TRUE(load("b", "copy").ok());
  EXPECT_EQ(registry_->hold("a")->identity(), registry_->hold("b")->identity());
  EXPECT_EQ(registry_->stats().resident, 1);
  expect_alive(1);
  ASSERT_TRUE(registry_->unload("a").ok());
  EXPECT_NE(registry_->hold("b"), nullptr);
  ASSERT_TRUE(registry_->unload("b").ok());
  expect_alive(0);
}

TEST_F(AdapterRegistryTest, LR_05_weights_live_as_long_as_anybody_uses_them) {
  start(options(2));
  ASSERT_TRUE(load("a", "a").ok());
  Hold hold = registry_->hold("a");
  request::AdapterRef in_engine = ref_of(hold, {});
  ASSERT_TRUE(registry_->unload("a").ok());
  EXPECT_FALSE(registry_->has("a"));
  hold.reset();
  expect_alive(1);
  EXPECT_EQ(registry_->stats().in_use, 1);
  in_engine = {};
  expect_alive(0);
  EXPECT_EQ(registry_->stats().resident, 0);
}

TEST_F(AdapterRegistryTest, who_waits_for_long_has_the_place_of_the_longest_there) {
  AdapterRegistry::Options one_place = options(1);
  one_place.patience_ns = 20'000'000;
  start(one_place);
  ASSERT_TRUE(load("busy", "busy").ok());
  ASSERT_TRUE(load("other", "other").ok());
  Hold use = held("busy");
  auto waits = wait("other");
  // "busy" is asked for all the while: without an end to that "other" would never have its turn.
  for (int i = 0; i < 5000; ++i) {
    Hold next = registry_->hold("busy");
    if (next == nullptr) break;
    use = std::move(next);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  auto again = wait("busy");
  use.reset();
  Hold other = waits.get().value();
  EXPECT_EQ(other->digest(), "other");
  other.reset();
  EXPECT_EQ(again.get().value()->digest(), "busy");
}

TEST_F(AdapterRegistryTest, nobody_leaves_for_who_has_given_up) {
  AdapterRegistry::Options one_place = options(1);
  one_place.patience_ns = 5'000'000;
  start(one_place);
  ASSERT_TRUE(load("busy", "busy").ok());
  ASSERT_TRUE(load("other", "other").ok());
  const Hold use = held("busy");
  const auto cancel = registry_->wait(
      "other", {.tenant = "t", .bytes = 1, .done = [](const AdapterRegistry::Held&) {}});
  ASSERT_TRUE(cancel.ok());
  for (int i = 0; i < 5000 && registry_->hold("busy") != nullptr; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  auto behind = wait("busy");  // it is asked to leave
  (*cancel)();
  EXPECT_EQ(behind.get().value()->digest(), "busy");
  EXPECT_NE(registry_->hold("busy"), nullptr);
}

TEST_F(AdapterRegistryTest, LR_01_one_that_cannot_be_read_disturbs_no_other) {
  start(options(2));
  ASSERT_TRUE(load("good", "good").ok());
  EXPECT_EQ(load("x", "bad/x").error().code, ErrorCode::kBadCheckpoint);
  EXPECT_FALSE(registry_->has("x"));
  EXPECT_NE(registry_->hold("good"), nullptr);
  // Replaced by a bad one: what was there stays.
  EXPECT_FALSE(load("good", "bad/y", InPlace::kYes).ok());
  EXPECT_EQ(registry_->hold("good")->digest(), "good");
  EXPECT_EQ(registry_->stats().failed_loads, 2);
}

TEST_F(AdapterRegistryTest, LR_04_names_are_bounded) {
  start(options(2));
  for (const std::string& name : {std::string(), std::string(1 << 20, 'n'), std::string("a\nb")}) {
    const Result<void> refused = load(name, "a");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().field, "lora_name");
  }
  for (const char* name : {"../x", "..", ".", "/etc"}) EXPECT_FALSE(registry_->has(name));
}

TEST_F(AdapterRegistryTest, who_leaves_is_not_called) {
  start(options(1));
  ASSERT_TRUE(load("a", "a").ok());
  ASSERT_TRUE(load("b", "b").ok());
  held_up_ = true;
  std::atomic<int> called = 0;
  const auto cancel = registry_->wait(
      "a", {.tenant = "t", .bytes = 1, .done = [&](const AdapterRegistry::Held&) { ++called; }});
  ASSERT_TRUE(cancel.ok());
  EXPECT_EQ(registry_->stats().waiting, 1);
  (*cancel)();
  EXPECT_EQ(registry_->stats().waiting, 0);
  held_up_ = false;
  EXPECT_NE(held("b"), nullptr);
  EXPECT_EQ(called, 0);
}

TEST_F(AdapterRegistryTest, those_who_wait_at_its_end_hear_of_it) {
  start(options(1));
  ASSERT_TRUE(load("a", "a").ok());
  ASSERT_TRUE(load("b", "b").ok());
  Hold use = held("a");
  auto waits = wait("b");
  registry_.reset();
  EXPECT_FALSE(waits.get().ok());
  use.reset();  // outlives it
  EXPECT_EQ(alive_, 0);
}

TEST_F(AdapterRegistryTest, waiting_is_bounded) {
  start(options(1));
  ASSERT_TRUE(load("a", "a").ok());
  ASSERT_TRUE(load("b", "b").ok());
  const Hold use = held("a");
  std::vector<std::future<AdapterRegistry::Held>> waiting;
  for (int i = 0; i < AdapterRegistry::kWaitingPerTenantMax; ++i) waiting.push_back(wait("b"));
  EXPECT_EQ(wait("b").get().error().code, ErrorCode::kOverloaded);
  registry_.reset();
}

// --- names, and where files lie ---

// A folder of adapters: those whose loads the fixture knows by their paths.
class AdapterFolderTest : public AdapterRegistryTest {
 protected:
  AdapterFolderTest()
      : root_(std::filesystem::path(testing::TempDir()) /
              ("adapters-" + std::to_string(std::random_device()()))) {
    std::filesystem::create_directories(root_ / "many");
  }
  ~AdapterFolderTest() override { std::filesystem::remove_all(root_); }

  std::string add(const std::string& folder) {
    std::filesystem::create_directories(root_ / folder);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
      std::ofstream(root_ / folder / file) << "{}";
    }
    return (root_ / folder).string();
  }
  void link(const std::string& to, const std::string& from) {
    std::filesystem::create_symlink(root_ / to, root_ / from);
  }
  AdapterRegistry::Options with_folder() {
    AdapterRegistry::Options made = options(4);
    made.folders = {(root_ / "many").string()};
    made.model_names = {"base", "alias"};
    return made;
  }
  std::vector<std::string> listed() {
    std::vector<std::string> names;
    for (const AdapterRegistry::Info& info : registry_->list()) names.push_back(info.name);
    return names;
  }

  const std::filesystem::path root_;
};

TEST_F(AdapterFolderTest, one_that_was_unloaded_stays_so_until_it_is_loaded_by_name) {
  const std::string path = add("many/sql");
  start(with_folder());
  EXPECT_NE(held("sql"), nullptr);
  ASSERT_TRUE(registry_->unload("sql").ok());
  EXPECT_FALSE(registry_->has("sql"));
  registry_->find_in_folders();
  EXPECT_EQ(listed(), std::vector<std::string>());
  EXPECT_EQ(registry_->unload("sql").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(load("sql", path).ok());
  EXPECT_NE(held("sql"), nullptr);
  // One that nobody has asked for yet.
  add("many/late");
  ASSERT_TRUE(registry_->unload("late").ok());
  EXPECT_FALSE(registry_->has("late"));
}

TEST_F(AdapterFolderTest, links_lead_nowhere_else) {
  add("elsewhere");
  add("many/good");
  add("many/half");
  link("elsewhere", "many/out");
  link("many/good", "many/same");
  std::filesystem::remove(root_ / "many/half/adapter_model.safetensors");
  link("elsewhere/adapter_model.safetensors", "many/half/adapter_model.safetensors");
  start(with_folder());
  registry_->find_in_folders();
  EXPECT_EQ(listed(), (std::vector<std::string>{"good", "same"}));
  const AdapterFolders& folders = registry_->folders();
  EXPECT_TRUE(folders.resolve((root_ / "many/same").string()).ok());
  for (const char* const name : {"many/out", "many/half", "elsewhere", "many/../elsewhere"}) {
    const Result<std::string> refused = folders.resolve((root_ / name).string());
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().field, "lora_path");
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(folders.resolve((root_ / "many/nothing").string()).error().code, ErrorCode::kNotFound);
  // A file that becomes a link when the name is known already.
  std::filesystem::remove(root_ / "many/good/adapter_config.json");
  link("elsewhere/adapter_config.json", "many/good/adapter_config.json");
  EXPECT_THAT(wait("good").get().error().message, testing::HasSubstr("adapter_config.json leads"));
}

TEST_F(AdapterFolderTest, LR_04_the_models_own_names_are_none_of_an_adapter) {
  add("many/base");
  add("many/alias");
  const std::string path = add("many/good");
  start(with_folder());
  registry_->find_in_folders();
  EXPECT_EQ(listed(), std::vector<std::string>{"good"});
  EXPECT_FALSE(registry_->has("base"));
  EXPECT_THAT(load("alias", path).error().message, testing::HasSubstr("the model's own name"));
  for (const char* const name : {"../x", "a//b", ".", "a/..", "/a", "a/", "\xff"}) {
    EXPECT_EQ(load(name, path).error().field, "lora_name") << name;
  }
  EXPECT_TRUE(load("org/sql-2", path).ok());
}

// --- folders that go ---

TEST_F(AdapterFolderTest, one_whose_folder_is_gone_is_unknown) {
  const std::string path = add("many/late");
  add("many/stays");
  AdapterRegistry::Options made = with_folder();
  made.resident_max = 1;
  made.load = [load = made.load](const std::string& folder) -> Result<AdapterRegistry::Loaded> {
    if (!std::filesystem::exists(folder)) return Error{ErrorCode::kNotFound, "no such file", ""};
    return load(folder);
  };
  start(made);
  registry_->find_in_folders();
  EXPECT_NE(held("late"), nullptr);
  EXPECT_NE(held("stays"), nullptr);  // in its place
  std::filesystem::remove_all(path);
  const uint64_t before = registry_->names_version();
  const Error gone = wait("late").get().error();
  EXPECT_EQ(gone.code, ErrorCode::kNotFound);
  EXPECT_EQ(gone.field, kUnknownAdapter);
  EXPECT_FALSE(registry_->has("late"));
  EXPECT_EQ(listed(), std::vector<std::string>{"stays"});
  EXPECT_NE(registry_->names_version(), before);
  // It comes again, and is found again.
  add("many/late");
  EXPECT_NE(held("late"), nullptr);
}

TEST_F(AdapterFolderTest, those_that_are_gone_or_come_are_known_though_nobody_asks) {
  const std::string gone = add("many/gone");
  const std::string used = add("many/used");
  const std::string loaded = add("many/loaded");
  AdapterRegistry::Options made = with_folder();
  made.sweep_ns = 2'000'000;
  start(made);
  ASSERT_TRUE(load("by_name", loaded).ok());
  registry_->find_in_folders();
  EXPECT_NE(held("used"), nullptr);
  for (const std::string& path : {gone, used, loaded}) std::filesystem::remove_all(path);
  // Who is in memory is answered with; who was loaded by name is an operator's to unload.
  add("many/later");
  const std::vector<std::string> left = {"by_name", "later", "used"};
  for (int i = 0; i < 5000 && listed() != left; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(listed(), left);
  EXPECT_NE(registry_->hold("used"), nullptr);
}

TEST_F(AdapterFolderTest, only_its_own_files_describe_it) {
  add("elsewhere");
  add("many/good");
  add("many/plain");
  std::ofstream(root_ / "elsewhere/LICENSE") << "secret";
  std::ofstream(root_ / "many/good/README.md") << "card";
  link("elsewhere/LICENSE", "many/good/LICENSE");
  AdapterRegistry::Options made = with_folder();
  made.describe = [](const std::string& path, const auto& may_read) {
    api::ModelDescription card;
    for (const char* const file : {"/README.md", "/LICENSE"}) {
      if (may_read(path + file)) card.text += file;
    }
    return card;
  };
  start(made);
  ASSERT_NE(registry_->description("good"), nullptr);
  EXPECT_EQ(registry_->description("good")->text, "/README.md");
  EXPECT_EQ(registry_->description("plain"), nullptr);
  EXPECT_EQ(registry_->description("nobody"), nullptr);
}

// --- places ---

// One place more than may be kept is planned for, of whatever type the numbers are: what takes two
// is replaced where one more is free.
TEST_F(AdapterRegistryTest, replacing_holds_one_place_more_at_most) {
  AdapterRegistry::Options planned = options(3);
  planned.bytes_max = 300;
  planned.bytes_of = [](const std::string& path) { return path.starts_with("f32") ? 200 : 100; };
  planned.load = [load = planned.load](const std::string& path) {
    Result<AdapterRegistry::Loaded> loaded = load(path);
    if (path.starts_with("f32")) loaded->bytes = 200;
    return loaded;
  };
  start(planned);
  ASSERT_TRUE(load("wide", "f32-1", InPlace::kNo, true).ok());
  ASSERT_TRUE(load("pinned", "p", InPlace::kNo, true).ok());
  const Error refused = load("wide", "f32-2", InPlace::kYes, true).error();
  EXPECT_EQ(refused.code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(refused.message, testing::HasSubstr("being replaced"));
  EXPECT_EQ(registry_->hold("wide")->digest(), "f32-1");
  EXPECT_TRUE(load("wide", "half", InPlace::kYes, true).ok());
  EXPECT_EQ(registry_->hold("wide")->digest(), "half");
  expect_alive(2);
}

TEST_F(AdapterRegistryTest, a_pinned_one_is_replaced_though_all_places_are_pinned) {
  start(options(2));
  ASSERT_TRUE(load("a", "a1", InPlace::kNo, true).ok());
  ASSERT_TRUE(load("b", "b1", InPlace::kNo, true).ok());
  Hold use = registry_->hold("a");
  const Result<void> replaced = load("a", "a2", InPlace::kYes, true);
  ASSERT_TRUE(replaced.ok()) << replaced.error().message;
  EXPECT_EQ(registry_->hold("a")->digest(), "a2");
  EXPECT_EQ(use->digest(), "a1");
  // While that is in use nothing else is read: no more is in memory than was planned.
  auto third = std::async(std::launch::async, [&] { return load("a", "a3", InPlace::kYes, true); });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  EXPECT_EQ(alive_, 3);
  use.reset();
  EXPECT_TRUE(third.get().ok());
  EXPECT_EQ(registry_->hold("a")->digest(), "a3");
  expect_alive(2);
}

TEST_F(AdapterRegistryTest, what_was_pinned_is_there_again_when_the_model_wakes) {
  start(options(2));
  ASSERT_TRUE(load("pinned", "p", InPlace::kNo, true).ok());
  ASSERT_TRUE(load("other", "o").ok());
  registry_->sleep();
  expect_alive(0);
  // Loaded meanwhile: it is checked, and takes no memory.
  EXPECT_EQ(load("bad", "bad/x").error().code, ErrorCode::kBadCheckpoint);
  ASSERT_TRUE(load("late", "l", InPlace::kNo, true).ok());
  expect_alive(0);
  EXPECT_EQ(registry_->stats().resident, 0);
  EXPECT_TRUE(registry_->has("late"));
  registry_->wake();
  expect_alive(2);
  EXPECT_EQ(held("pinned")->digest(), "p");
  EXPECT_EQ(held("late")->digest(), "l");
  EXPECT_EQ(wait("other").get().error().code, ErrorCode::kDoesNotFit) << "both places are pinned";
}

TEST_F(AdapterRegistryTest, what_is_too_large_says_so) {
  AdapterRegistry::Options small = options(2);
  small.bytes_max = 250;
  small.bytes_of = [](const std::string& path) { return path == "huge" ? 4000 : 100; };
  start(small);
  ASSERT_TRUE(load("pinned", "p", InPlace::kNo, true).ok());
  const Error refused = load("huge", "huge").error();
  EXPECT_EQ(refused.field, "lora_path");
  EXPECT_THAT(refused.message, testing::HasSubstr("'huge'"));
  EXPECT_THAT(refused.message, testing::HasSubstr("4000 bytes"));
  EXPECT_THAT(refused.message, testing::HasSubstr("250"));
  EXPECT_THAT(refused.message, testing::Not(testing::HasSubstr("pinned")));
}

// One that takes more than its file said waits for room as any other.
TEST_F(AdapterRegistryTest, what_turns_out_larger_waits_for_room) {
  AdapterRegistry::Options small = options(3);
  small.bytes_max = 250;
  small.bytes_of = [](const std::string&) { return 50; };
  start(small);
  Hold use_a = held_or_loaded("a");
  Hold use_b = held_or_loaded("b");
  ASSERT_EQ(registry_->stats().resident, 2);
  auto waits = std::async(std::launch::async, [&] { return load("c", "c"); });
  while (registry_->stats().loads < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  use_a.reset();
  const Result<void> loaded = waits.get();
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_LE(registry_->stats().bytes, 250);
}

// One whose name is gone leaves by itself, whenever that is: it is not asked in another's stead.
TEST_F(AdapterRegistryTest, who_was_unloaded_is_not_asked_to_leave) {
  AdapterRegistry::Options two_places = options(2);
  two_places.patience_ns = 5'000'000;
  start(two_places);
  ASSERT_TRUE(load("gone", "gone").ok());
  const Hold long_use = held("gone");
  ASSERT_TRUE(load("busy", "busy").ok());
  Hold use = held("busy");
  ASSERT_TRUE(registry_->unload("gone").ok());
  auto other = std::async(std::launch::async, [&] { return load("other", "other"); });
  bool was_asked = false;
  for (int i = 0; i < 5000 && !was_asked; ++i) {
    Hold next = registry_->hold("busy");
    was_asked = next == nullptr;
    if (!was_asked) use = std::move(next);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(was_asked);
  use.reset();
  EXPECT_TRUE(other.get().ok());
}

// --- what is said of them ---

TEST_F(AdapterRegistryTest, counts_never_fall) {
  start(options(2));
  for (int i = 0; i < 70; ++i) {
    const std::string name = "n" + std::to_string(i);
    ASSERT_TRUE(load(name, name).ok());
    EXPECT_NE(held(name), nullptr);
  }
  const auto before = registry_->requests();
  EXPECT_EQ(before.size(), AdapterRegistry::kCountedMax + 1);
  EXPECT_EQ(before.at("other"), 6);
  ASSERT_TRUE(registry_->unload("n0").ok());
  ASSERT_TRUE(registry_->unload("n69").ok());
  ASSERT_TRUE(load("n1", "another", InPlace::kYes).ok());
  EXPECT_EQ(registry_->requests(), before);
  for (int i = 0; i < 3; ++i) EXPECT_NE(held("n68"), nullptr);
  EXPECT_NE(held("n1"), nullptr);
  EXPECT_EQ(registry_->requests().at("other"), 9) << "it does not become one of its own";
  EXPECT_EQ(registry_->requests().at("n1"), 2);
}

TEST_F(AdapterRegistryTest, names_those_in_memory) {
  start(options(2));
  files_["x"] = "b";
  for (const auto& [name, path] : std::vector<std::pair<std::string, std::string>>{
           {"a", "a"}, {"b", "b"}, {"same", "x"}, {"c", "c"}}) {
    ASSERT_TRUE(load(name, path).ok());
  }
  EXPECT_NE(held("c"), nullptr);
  std::vector<std::string> names;
  for (const auto& resident : registry_->residents(8)) {
    names.push_back(resident.name + "=" + resident.digest);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"c=c", "b=b", "same=b"}));
  EXPECT_EQ(registry_->residents(1).size(), 1U);
}

TEST_F(AdapterRegistryTest, the_layout_is_as_it_is_said_to_be) {
  AdapterRegistry::Options of_layouts = options(4);
  of_layouts.load = [load = of_layouts.load](const std::string& path) {
    Result<AdapterRegistry::Loaded> loaded = load(path);
    if (path != "attention") loaded->is_3d = path == "fused";
    loaded->layout = "the layout of " + path;
    return loaded;
  };
  start(of_layouts);
  const auto said = [&](const std::string& path, std::optional<bool> is_3d) {
    std::promise<Result<void>> outcome;
    EXPECT_TRUE(registry_
                    ->load({.name = path, .path = path, .is_3d = is_3d}, InPlace::kYes,
                           [&](const Result<void>& done) { outcome.set_value(done); })
                    .ok());
    return outcome.get_future().get();
  };
  for (const char* path : {"attention", "fused", "each"}) EXPECT_TRUE(said(path, {}).ok());
  EXPECT_TRUE(said("fused", true).ok());
  EXPECT_TRUE(said("each", false).ok());
  EXPECT_TRUE(said("attention", false).ok());
  for (const auto& [path, is_3d] : std::vector<std::pair<std::string, bool>>{
           {"fused", false}, {"each", true}, {"attention", true}}) {
    const Error refused = said(path, is_3d).error();
    EXPECT_EQ(refused.field, "is_3d_lora_weight");
    EXPECT_THAT(refused.message, testing::HasSubstr("the layout of " + path));
  }
}

// However cancel() and the end of a load meet, nobody is counted as waiting and nothing as used.
TEST_F(AdapterRegistryTest, who_leaves_as_it_is_loaded_leaves_nothing_behind) {
  start(options(1));
  ASSERT_TRUE(load("a", "a").ok());
  ASSERT_TRUE(load("b", "b").ok());
  std::atomic<int> called = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string name = i % 2 == 0 ? "a" : "b";
    const auto cancel = registry_->wait(
        name, {.tenant = "t", .bytes = 7, .done = [&](const AdapterRegistry::Held&) { ++called; }});
    ASSERT_TRUE(cancel.ok());
    if (i % 3 > 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 40));
    (*cancel)();
    if (i % 5 == 0) {  // replaced meanwhile: its waiters are the new one's
      ASSERT_TRUE(load(name, name, InPlace::kYes).ok());
    }
  }
  EXPECT_NE(held("a"), nullptr);
  EXPECT_EQ(registry_->stats().waiting, 0);
  EXPECT_EQ(registry_->stats().in_use, 0);
  EXPECT_LE(called, 400);
}

// Names are loaded, replaced, unloaded and evicted while streams use them: each has one of the
// versions that its name has had, to its end, and nothing is left. (Thread sanitizer's test.)
TEST_F(AdapterRegistryTest, LR_05_names_come_and_go_under_streams) {
  const bool is_full = std::getenv("PELTON_FULL") != nullptr;
  const int streams = is_full ? 50 : 12;
  const int rounds = is_full ? 400 : 30;
  start(options(3));
  std::atomic<bool> over = false;
  std::atomic<int> wrong = 0;
  std::atomic<int> answered = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < streams; ++i) {
    all.emplace_back([&, name = "n" + std::to_string(i % 5)] {
      while (!over) {
        AdapterRegistry::Held hold = wait(name).get();
        if (!hold.ok()) {
          if (hold.error().code != ErrorCode::kNotFound) ++wrong;
          continue;
        }
        const request::AdapterRef in_engine = ref_of(*hold, {});
        const std::string digest = (*hold)->digest();
        hold = Hold();
        std::this_thread::yield();
        if (!digest.starts_with(name) || in_engine.weights == nullptr) ++wrong;
        ++answered;
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    const std::string name = "n" + std::to_string(round % 5);
    (void)load(name, name + "-one");
    (void)load(name, name + "-" + std::to_string(round), InPlace::kYes, round % 10 == 0);
    if (round % 3 == 0) (void)registry_->unload(name);
    if (round % 20 == 0) registry_->sleep();
    if (round % 20 == 1) registry_->wake();
    (void)registry_->list();
    (void)registry_->residents(8);
  }
  registry_->wake();
  over = true;
  for (std::thread& one : all) one.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, streams);
  EXPECT_EQ(registry_->stats().in_use, 0);
  EXPECT_EQ(registry_->stats().waiting, 0);
  for (int i = 0; i < 5; ++i) (void)registry_->unload("n" + std::to_string(i));
  expect_alive(0);
}

// All are answered, each by its own, whatever the order; and no more is ever in memory than may be.
TEST_F(AdapterRegistryTest, LR_06_ten_thousand_names_over_eight_places) {
  AdapterRegistry::Options many = options(8);
  start(many);
  constexpr int kNames = 10'000;
  for (int i = 0; i < kNames; ++i) {
    ASSERT_TRUE(load("n" + std::to_string(i), "p" + std::to_string(i)).ok());
  }
  std::atomic<int> wrong = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> askers;
  for (unsigned seed = 0; seed < 4; ++seed) {
    askers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 300; ++i) {
        const std::string number = std::to_string(random() % kNames);
        const AdapterRegistry::Held hold = wait("n" + number).get();
        if (!hold.ok() || (*hold)->digest() != "p" + number) ++wrong;
        const int alive = alive_;
        if (alive > most) most = alive;
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(most, 9);  // and one that is on its way
  EXPECT_EQ(registry_->stats().in_use, 0);
}

// With a bound of loads the later ones wait for their turn: counted, not timed.
TEST_F(AdapterRegistryTest, LR_06_loads_have_a_rate) {
  AdapterRegistry::Options bounded = options(2);
  bounded.loads_per_second = 1e-3;
  start(bounded);
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(load(name, name).ok());
  EXPECT_EQ(held("a")->digest(), "a");  // a first burst of two
  EXPECT_EQ(held("b")->digest(), "b");
  auto waits = wait("c");
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_NE(registry_->hold("a"), nullptr);  // those in memory are answered
  EXPECT_TRUE(load("e", "e").ok());          // an operator does not wait behind requests
  registry_.reset();
}

TEST_F(AdapterRegistryTest, operators_without_end_leave_requests_their_turn) {
  start(options(6));
  ASSERT_TRUE(load("asked", "asked").ok());
  for (const char* name : {"o0", "o1", "o2", "o3", "o4", "o5"}) ASSERT_TRUE(load(name, name).ok());
  EXPECT_EQ(registry_->hold("asked"), nullptr) << "the others have its place";
  constexpr int kRoundsMax = 20'000;
  std::atomic<bool> answered = false;
  std::atomic<int> most = 0;
  std::vector<std::thread> operators;
  for (int i = 0; i < 4; ++i) {
    operators.emplace_back([&, name = "o" + std::to_string(i)] {
      int round = 0;
      for (; round < kRoundsMax && !answered; ++round) {
        (void)load(name, name + "-" + std::to_string(round), InPlace::kYes);
      }
      most = std::max(most.load(), round);
    });
  }
  while (registry_->stats().loads < 50) std::this_thread::yield();
  EXPECT_EQ(wait("asked").get().value()->digest(), "asked");
  answered = true;
  for (std::thread& one : operators) one.join();
  EXPECT_LT(most, kRoundsMax);
}

// Otherwise each request for a broken one would cost another its place.
TEST_F(AdapterRegistryTest, one_that_does_not_load_is_not_tried_for_each_request) {
  start(options(1));
  ASSERT_TRUE(load("x", "x").ok());
  ASSERT_TRUE(load("y", "y").ok());
  break_file("x");
  EXPECT_FALSE(wait("x").get().ok());
  EXPECT_EQ(held("y")->digest(), "y");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(wait("x").get().error().code, ErrorCode::kBadCheckpoint);
    EXPECT_NE(registry_->hold("y"), nullptr);
  }
  EXPECT_EQ(registry_->stats().failed_loads, 1);
}

}  // namespace
}  // namespace pelton::server
