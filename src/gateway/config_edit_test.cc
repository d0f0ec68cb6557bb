#include "gateway/config_edit.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/config.h"

namespace pelton::gateway {
namespace {

// With all that a hand may have written into it.
const std::string kText =
    "# our fleet\n\n[gateway]\nlisten = \"127.0.0.1:0\"  # any\n\n"
    "# the large one\n[[pool]]\nname = \"a\"\nmodel = [\n  \"m\",\n  \"n\",\n]\n"
    "  [pool.scale]\n  max = 3\n  # max = 5\n\n"
    "# ---- small ones ----\n\n"
    "[[pool]]\nname = \"b\"\nmodel = \"\"\"o\"\"\"\n"
    "[[route]]\nmodel = \"org/m\"\nto = [{pool = \"a\"}]\n"
    "[[worker]]\npool = \"b\"\nurl = \"http://10.0.0.1:9000\"\n";

Result<std::string> without(const std::string& text, const ConfigPlace& place) {
  return without_object(text, "f", place);
}

TEST(ConfigEdit, PartsAreTheText) {
  const auto parts = config_parts(kText, "f");
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  std::string together;
  std::vector<std::string> names;
  for (const ConfigPart& part : *parts) {
    together += part.text;
    names.push_back(part.kind + " " + part.name);
  }
  EXPECT_EQ(together, kText);
  EXPECT_EQ(names, (std::vector<std::string>{" ", "gateway ", "pool a", "pool b", "route org/m",
                                             "worker http://10.0.0.1:9000"}));
  EXPECT_EQ(own_text((*parts)[2].text),
            "# the large one\n[[pool]]\nname = \"a\"\nmodel = [\n  \"m\",\n  \"n\",\n]\n"
            "  [pool.scale]\n  max = 3\n  # max = 5");
}

TEST(ConfigEdit, WhatIsTakenOutTakesItsOwnCommentAlong) {
  const Result<std::string> text = without(kText, {"pool", "a"});
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text,
            "# our fleet\n\n[gateway]\nlisten = \"127.0.0.1:0\"  # any\n\n"
            "# ---- small ones ----\n\n"
            "[[pool]]\nname = \"b\"\nmodel = \"\"\"o\"\"\"\n"
            "[[route]]\nmodel = \"org/m\"\nto = [{pool = \"a\"}]\n"
            "[[worker]]\npool = \"b\"\nurl = \"http://10.0.0.1:9000\"\n");
  EXPECT_EQ(without(kText, {"pool", "c"}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(without(kText, {"etcd", ""}).error().code, ErrorCode::kNotFound);
}

TEST(ConfigEdit, OneTakesAnothersPlaceOrStandsBehindTheLast) {
  const std::string b = "[[pool]]\nname = \"b\"\nmodel = \"p\"\n\n\n";
  const Result<std::string> replaced = with_object(kText, "f", {"pool", "b"}, b);
  ASSERT_TRUE(replaced.ok()) << replaced.error().message;
  EXPECT_NE(replaced->find("ones ----\n\n[[pool]]\nname = \"b\"\nmodel = \"p\"\n[[route]]"),
            std::string::npos)
      << *replaced;
  const std::string c = "[[pool]]\nname = \"c\"\nmodel = \"p\"";
  const Result<std::string> added = with_object(kText, "f", {"pool", "c"}, c);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(*added, kText + "\n" + c + "\n");
}

TEST(ConfigEdit, WhatIsNotThatObjectIsRefused) {
  const auto code = [](const ConfigPlace& place, std::string_view object) {
    const Result<std::string> text = with_object(kText, "f", place, object);
    return text.ok() ? "" : std::string(error_code_name(text.error().code));
  };
  const std::string b = "[[pool]]\nname = \"b\"\n";
  EXPECT_EQ(code({"pool", "a"}, b), "invalid_argument") << "another one";
  EXPECT_EQ(code({"worker", "b"}, b), "invalid_argument") << "of another kind";
  EXPECT_EQ(code({"pool", "b"}, b + b), "invalid_argument") << "two";
  EXPECT_EQ(code({"pool", "b"}, b + "[gateway]\nlisten = \"0.0.0.0:1\"\n"), "invalid_argument");
  EXPECT_EQ(code({"pool", "b"}, "x = 1\n" + b), "invalid_argument");
  EXPECT_EQ(code({"pool", "b"}, "[[pool"), "invalid_argument");
  EXPECT_EQ(code({"pool", ""}, ""), "invalid_argument");
  EXPECT_EQ(code({"pool", "b"}, b), "");
}

TEST(ConfigEdit, WhatCannotBeToldApartIsLeftToAHand) {
  const auto refused = [](const std::string& text) {
    const auto parts = config_parts(text, "f");
    return !parts.ok() && parts.error().code == ErrorCode::kBadConfig;
  };
  EXPECT_TRUE(refused("pool = [{name = \"a\"}, {name = \"b\"}]\n[[route]]\nmodel = \"m\"\n"));
  EXPECT_TRUE(refused("[[pool]]\nname = \"\"\"\n[[pool]]\nname = 1\n\"\"\"\n"));
  EXPECT_TRUE(refused("[[pool]]\nname = \"a\"\n[etcd]\n[pool.scale]\nmax = 1\n"));
  EXPECT_FALSE(refused(kText));
  const std::string two = "[[pool]]\nname = \"a\"\n[[pool]]\nname = \"a\"\n";
  EXPECT_EQ(without(two, {"pool", "a"}).error().code, ErrorCode::kBadConfig);
}

// Whatever is put in a place and taken out of it again, or put back, leaves the text as it was.
TEST(ConfigEdit, EditsThatAreTakenBackLeaveNoTrace) {
  const int cases = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 1000;
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const auto line = [&] {
    const std::vector<std::string> lines = {
        "\n",   "# a comment\n",   "zone = \"z\"  # here\n", "x = \"\"\"\n# no comment\n\"\"\"\n",
        "  \n", "y = [\n  1,\n]\n"};
    return lines[below(lines.size())];
  };
  const auto object = [&](const std::string& name) {
    std::string text = below(2) == 0 ? "# about it\n" : "";
    text += "[[pool]]\nname = \"" + name + "\"\n";
    if (below(2) == 0) text += "zone = \"z\"\n";
    if (below(2) == 0) text += "  [pool.scale]\n  max = 1\n";
    return text;
  };
  std::string text = kText;
  for (int i = 0; i < cases; ++i) {
    const std::string name = std::string(1, static_cast<char>('a' + below(4)));
    const ConfigPlace place{"pool", name};
    const auto parts = config_parts(text, "f");
    ASSERT_TRUE(parts.ok()) << parts.error().message << text;
    std::string was;
    for (const ConfigPart& part : *parts) {
      if (part.kind == "pool" && part.name == name) was = own_text(part.text);
    }
    const Result<std::string> put = with_object(text, "f", place, object(name));
    ASSERT_TRUE(put.ok()) << put.error().message << text;
    const Result<std::string> back =
        was.empty() ? without(*put, place) : with_object(*put, "f", place, was);
    ASSERT_TRUE(back.ok()) << back.error().message << *put;
    // Of one that was put behind the last one the blank line before it stays.
    EXPECT_EQ(*back, was.empty() ? text + "\n" : text) << *put;
    if (below(3) == 0) text = *put;
    if (below(50) == 0) text = kText + line();
  }
}

}  // namespace
}  // namespace pelton::gateway
