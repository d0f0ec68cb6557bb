#include "server/model_catalogue.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using State = ModelCatalogue::State;

constexpr auto kAtStart = ModelCatalogue::When::kAtStart;
constexpr auto kLater = ModelCatalogue::When::kAtRunTime;

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": "Hello."}]})";

// Models that share one engine: what a catalogue knows of them are their names.
class ModelCatalogueTest : public testing::Test {
 protected:
  std::shared_ptr<ServedModel> model(std::string id, std::vector<std::string> aliases = {}) {
    const ServedModel& like = fixture_.model();
    return std::shared_ptr<ServedModel>(new ServedModel{.id = std::move(id),
                                                        .aliases = std::move(aliases),
                                                        .vocab_size = like.vocab_size,
                                                        .tokenizer = like.tokenizer,
                                                        .engine = like.engine},
                                        [this](ServedModel* gone) {
                                          ++gone_;
                                          delete gone;
                                        });
  }
  State state_of(const std::string& id) const {
    const auto table = catalogue_.table();
    if (const ModelCatalogue::Entry* entry = table->find(id)) return entry->state;
    ADD_FAILURE() << "no " << id;
    return State::kFailed;
  }

  ServerFixture fixture_{kScript, {}};
  std::atomic<int> gone_ = 0;
  ModelCatalogue catalogue_;
};

TEST_F(ModelCatalogueTest, IsFoundByNameAndAliasWhileItIsServed) {
  EXPECT_EQ(catalogue_.find("a"), nullptr);
  ASSERT_TRUE(catalogue_.begin_load({.id = "a", .aliases = {"first"}}, kLater).ok());
  EXPECT_EQ(catalogue_.find("a"), nullptr) << "it is being loaded";
  EXPECT_EQ(state_of("a"), State::kLoading);
  catalogue_.serve(model("a", {"first"}));
  ASSERT_NE(catalogue_.find("a"), nullptr);
  EXPECT_EQ(catalogue_.find("first"), catalogue_.find("a"));
  EXPECT_EQ(catalogue_.find("A"), nullptr);
  EXPECT_EQ(catalogue_.find(""), nullptr);
  EXPECT_EQ(catalogue_.table()->entries.size(), 1u);
  EXPECT_EQ(state_of("a"), State::kServing);
}

TEST_F(ModelCatalogueTest, EachModelHasASerialOfItsOwnEveryTimeItIsLoaded) {
  catalogue_.serve(model("a"));
  catalogue_.serve(model("b"));
  const uint64_t first = catalogue_.find("a")->serial;
  EXPECT_NE(first, catalogue_.find("b")->serial);
  catalogue_.begin_unload("a");
  catalogue_.remove("a");
  catalogue_.serve(model("a"));
  EXPECT_NE(catalogue_.find("a")->serial, first);
}

TEST_F(ModelCatalogueTest, ARequestThatNamesNoneMeansTheOnlyOneOfTheStart) {
  const auto default_id = [&] { return catalogue_.table()->default_id; };
  EXPECT_EQ(catalogue_.only(), nullptr);
  ASSERT_TRUE(catalogue_.begin_load({.id = "a"}, kAtStart).ok());
  EXPECT_EQ(default_id(), "a");
  EXPECT_EQ(catalogue_.only(), nullptr) << "it is being loaded";
  catalogue_.serve(model("a"));
  EXPECT_EQ(catalogue_.only(), catalogue_.find("a"));
  ASSERT_TRUE(catalogue_.begin_load({.id = "b"}, kLater).ok());
  catalogue_.serve(model("b"));
  EXPECT_EQ(default_id(), "a") << "whoever names none goes on to mean it";
  EXPECT_EQ(catalogue_.only(), nullptr) << "but a name may be the other's";
  catalogue_.begin_unload("a");
  catalogue_.remove("a");
  EXPECT_EQ(default_id(), "a") << "and never the other one";
  EXPECT_EQ(catalogue_.only(), nullptr);
  ASSERT_TRUE(catalogue_.begin_load({.id = "a"}, kLater).ok());
  catalogue_.serve(model("a"));
  EXPECT_EQ(catalogue_.find(default_id()), catalogue_.find("a"));
}

TEST_F(ModelCatalogueTest, WhereSeveralWereNamedAtTheStartThereIsNoDefault) {
  ASSERT_TRUE(catalogue_.begin_load({.id = "a"}, kAtStart).ok());
  ASSERT_TRUE(catalogue_.begin_load({.id = "b"}, kAtStart).ok());
  catalogue_.serve(model("a"));
  catalogue_.fail("b", {ErrorCode::kIo, "gone", ""});
  EXPECT_EQ(catalogue_.table()->default_id, "");
  EXPECT_EQ(catalogue_.only(), nullptr) << "also where one was not loaded";
  catalogue_.remove("b");
  EXPECT_EQ(catalogue_.only(), nullptr);
}

TEST_F(ModelCatalogueTest, IsStartingUntilAllOfTheStartHaveBeenTried) {
  const auto starting = [&] { return catalogue_.table()->starting(); };
  EXPECT_TRUE(starting()) << "nothing has been named yet";
  ASSERT_TRUE(catalogue_.begin_load({.id = "a"}, kAtStart).ok());
  ASSERT_TRUE(catalogue_.begin_load({.id = "b"}, kAtStart).ok());
  catalogue_.serve(model("a"));
  EXPECT_TRUE(starting());
  catalogue_.fail("b", {ErrorCode::kIo, "gone", ""});
  EXPECT_FALSE(starting());
  ASSERT_TRUE(catalogue_.begin_load({.id = "c"}, kLater).ok());
  EXPECT_FALSE(starting()) << "which keeps nobody waiting";
}

TEST_F(ModelCatalogueTest, NamesAreUniqueAmongNamesAndAliases) {
  catalogue_.serve(model("a", {"x"}));
  ASSERT_TRUE(catalogue_.begin_load({.id = "b", .aliases = {"y"}}, kLater).ok());
  const auto refused = [&](const ModelCatalogue::Names& names) {
    const Result<void> begun = catalogue_.begin_load(names, kLater);
    EXPECT_FALSE(begun.ok()) << names.id;
    return begun.ok() ? std::string() : begun.error().field;
  };
  EXPECT_EQ(refused({.id = "a"}), "name");
  EXPECT_EQ(catalogue_.begin_load({.id = "a"}, kLater).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(catalogue_.begin_load({.id = ""}, kLater).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({.id = "x"}), "name");
  EXPECT_EQ(refused({.id = "b"}), "name");
  EXPECT_EQ(refused({.id = "y"}), "name");
  EXPECT_EQ(refused({.id = "c", .aliases = {"z", "a"}}), "aliases");
  EXPECT_EQ(refused({.id = "c", .aliases = {"c"}}), "name");
  EXPECT_EQ(refused({.id = "c", .aliases = {"z", "z"}}), "aliases");
  EXPECT_EQ(refused({.id = ""}), "name");
  EXPECT_EQ(refused({.id = "a\nb"}), "name");
  EXPECT_EQ(refused({.id = std::string(257, 'n')}), "name");
  EXPECT_EQ(catalogue_.table()->entries.size(), 2u) << "nothing of those is left";
}

TEST_F(ModelCatalogueTest, WhatFailedMakesRoomForAnother) {
  ASSERT_TRUE(catalogue_.begin_load({.id = "a", .aliases = {"x"}}, kLater).ok());
  catalogue_.fail("a", {ErrorCode::kBadCheckpoint, "no weights", ""});
  EXPECT_EQ(state_of("a"), State::kFailed);
  EXPECT_EQ(catalogue_.table()->entries.front().error->message, "no weights");
  EXPECT_EQ(catalogue_.find("a"), nullptr);
  ASSERT_TRUE(catalogue_.begin_load({.id = "b", .aliases = {"x"}}, kLater).ok());
  EXPECT_EQ(catalogue_.table()->entries.size(), 1u);
  EXPECT_EQ(state_of("b"), State::kLoading);
}

TEST_F(ModelCatalogueTest, ModelsAreBounded) {
  for (size_t i = 0; i < ModelCatalogue::kEntriesMax; ++i) {
    ASSERT_TRUE(catalogue_.begin_load({.id = "m" + std::to_string(i)}, kLater).ok());
  }
  const Result<void> one_more = catalogue_.begin_load({.id = "last"}, kLater);
  ASSERT_FALSE(one_more.ok());
  EXPECT_EQ(one_more.error().code, ErrorCode::kOverloaded);
  catalogue_.fail("m7", {ErrorCode::kIo, "gone", ""});
  EXPECT_TRUE(catalogue_.begin_load({.id = "last"}, kLater).ok()) << "in place of one that failed";
  EXPECT_EQ(catalogue_.table()->find("m7"), nullptr);
}

TEST_F(ModelCatalogueTest, LivesUntilTheLastHoldIsGone) {
  catalogue_.serve(model("a"));
  std::shared_ptr<const ServedModel> hold = catalogue_.find("a");
  EXPECT_EQ(catalogue_.begin_unload("a"), hold);
  EXPECT_EQ(state_of("a"), State::kUnloading);
  EXPECT_EQ(catalogue_.find("a"), nullptr);
  EXPECT_TRUE(catalogue_.serving().empty());
  ASSERT_EQ(catalogue_.held().size(), 1u) << "for the ledger, while anybody is answered by it";
  EXPECT_EQ(catalogue_.begin_unload("a"), nullptr) << "once";
  EXPECT_EQ(catalogue_.begin_unload("b"), nullptr);
  EXPECT_EQ(gone_, 0);
  hold.reset();
  EXPECT_EQ(gone_, 1);
  EXPECT_TRUE(catalogue_.held().empty());
  EXPECT_FALSE(catalogue_.begin_load({.id = "a"}, kLater).ok())
      << "its name is taken until it is gone";
  catalogue_.remove("a");
  EXPECT_TRUE(catalogue_.begin_load({.id = "a"}, kLater).ok());
}

// For tsan and asan above all: whoever finds a model may use it, whatever becomes of its name.
TEST_F(ModelCatalogueTest, IsLookedUpWhileItChanges) {
  catalogue_.serve(model("stays"));
  std::atomic<bool> stop = false;
  std::atomic<int64_t> found = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        if (const auto goes = catalogue_.find("goes")) found += goes->id == "goes" ? 1 : -1000000;
        if (catalogue_.find("stays") == nullptr) found -= 1000000;
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    if (!catalogue_.begin_load({.id = "goes"}, kLater).ok()) continue;
    catalogue_.serve(model("goes"));
    while (found == 0) std::this_thread::yield();  // the readers may not have begun yet
    catalogue_.begin_unload("goes");
    catalogue_.remove("goes");
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace pelton::server
