#include "node/model_names.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::node {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Folders a/box, b/box and c/qwen.
class ModelNames : public testing::Test {
 protected:
  ModelNames() {
    for (const char* const folder : {"a/box", "b/box", "c/qwen"}) {
      std::filesystem::create_directories(root_ + "/" + folder);
    }
  }
  ~ModelNames() override { std::filesystem::remove_all(root_); }

  std::string folder(const std::string& name) const { return root_ + "/" + name; }
  static std::string refusal(const GivenNames& given) {
    const auto named = name_models(given);
    EXPECT_FALSE(named.ok());
    if (named.ok()) return "";
    EXPECT_EQ(named.error().code, ErrorCode::kInvalidArgument);
    return named.error().field + ": " + named.error().message;
  }

  const std::string root_ = testing::TempDir() + "model_names_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ModelNames, AFolderIsCalledByItsLastPartAndAsItWasGiven) {
  const NamedModel named = name_model(folder("a/box"));
  EXPECT_EQ(named.id, "box");
  EXPECT_THAT(named.aliases, ElementsAre(folder("a/box")));
  EXPECT_EQ(name_model(folder("a/../b/box/.")).id, "box");
  EXPECT_EQ(name_model(folder("c/qwen/./")).id, "qwen");
  EXPECT_EQ(name_model(folder("c/qwen/../../a/box//")).id, "box");
  EXPECT_EQ(name_model(folder("c/qwen/..")).id, "c");
}

// A path relative to where the program was started.
TEST_F(ModelNames, AFolderThatIsHereIsCalledByItsName) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder("c/qwen"));
  EXPECT_EQ(name_model(".").id, "qwen");
  EXPECT_EQ(name_model("./").id, "qwen");
  EXPECT_EQ(name_model("..").id, "c");
  std::filesystem::current_path(before);
  EXPECT_EQ(name_model("/").id, "/");
}

TEST_F(ModelNames, ALinkIsCalledByItsOwnName) {
  std::filesystem::create_directory_symlink(folder("a/box"), folder("my-model"));
  for (const char* const end : {"", "/", "/.", "/./"}) {
    EXPECT_EQ(name_model(folder("my-model") + end).id, "my-model") << end;
  }
  EXPECT_EQ(name_model(folder("my-model/..")).id, "a") << "where the link leads, as for open()";
  const auto both = name_models(
      {.models = {folder("a/box"), folder("my-model")}, .served_names = {}, .aliases = {}});
  ASSERT_TRUE(both.ok()) << "one folder under two names";
  EXPECT_EQ(both->at(1).id, "my-model");
}

TEST_F(ModelNames, AHubIdStaysAndAShortNameIsItsAlias) {
  EXPECT_EQ(name_model("owner/model").id, "owner/model");
  EXPECT_TRUE(name_model("owner/model").aliases.empty());
  EXPECT_EQ(name_model("gpt-oss-20b").id, "gpt-oss-20b");
  EXPECT_THAT(name_model("gpt-oss-20b").aliases, ElementsAre("openai/gpt-oss-20b"));
}

TEST_F(ModelNames, AreGivenByTheCommandLine) {
  const auto named = name_models({.models = {folder("a/box"), folder("c/qwen")},
                                  .served_names = {},
                                  .aliases = {"gpt=box", "small=" + folder("c/qwen")}});
  ASSERT_TRUE(named.ok()) << named.error().message;
  ASSERT_EQ(named->size(), 2u);
  EXPECT_THAT(named->at(0).aliases, ElementsAre(folder("a/box"), "gpt"));
  EXPECT_THAT(named->at(1).aliases, ElementsAre(folder("c/qwen"), "small"));

  const auto one = name_models(
      {.models = {folder("a/box")}, .served_names = {"only"}, .aliases = {"also=only"}});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->front().id, "only");
  EXPECT_THAT(one->front().aliases, ElementsAre("also")) << "no folder shows";
}

TEST_F(ModelNames, CollisionsAreToldInTheCommandLinesWords) {
  const std::string a = folder("a/box");
  const std::string b = folder("b/box");
  const std::string c = folder("c/qwen");
  EXPECT_THAT(refusal({.models = {a, a}, .served_names = {}, .aliases = {}}),
              AllOf(HasSubstr("MODEL: "), HasSubstr("given twice")));
  EXPECT_THAT(refusal({.models = {a, b}, .served_names = {}, .aliases = {}}),
              AllOf(HasSubstr(a), HasSubstr(b), HasSubstr("both be called 'box'")));
  EXPECT_THAT(refusal({.models = {a, c}, .served_names = {}, .aliases = {"qwen=box"}}),
              AllOf(HasSubstr("alias: --alias qwen=box"), HasSubstr(c), HasSubstr("already")));
  EXPECT_THAT(refusal({.models = {a, c}, .served_names = {}, .aliases = {"x=box", "x=qwen"}}),
              AllOf(HasSubstr("--alias x=qwen"), HasSubstr(a), HasSubstr("already")));
  EXPECT_THAT(refusal({.models = {a}, .served_names = {}, .aliases = {"box=box"}}),
              HasSubstr("called 'box' already"));
  EXPECT_THAT(refusal({.models = {a, c}, .served_names = {"x"}, .aliases = {}}),
              HasSubstr("--alias"));
  for (const char* const alias : {"x", "=box", "x="}) {
    EXPECT_THAT(refusal({.models = {a}, .served_names = {}, .aliases = {alias}}),
                HasSubstr("NAME=MODEL"))
        << alias;
  }
  EXPECT_THAT(refusal({.models = {a}, .served_names = {}, .aliases = {"x=nobody"}}),
              HasSubstr("no MODEL of this command is 'nobody'"));
}

TEST(StepLogOf, SeveralModelsHaveSeveralFiles) {
  EXPECT_EQ(step_log_of("", "a", false), "");
  EXPECT_EQ(step_log_of("steps", "a", true), "steps");
  EXPECT_EQ(step_log_of("steps", "openai/gpt-oss-20b", false), "steps.openai_gpt-oss-20b");
}

}  // namespace
}  // namespace pelton::node
