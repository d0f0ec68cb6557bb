#include "gateway/config_changes.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/config.h"
#include "gateway/config_text.h"

namespace pelton::gateway {
namespace {

using Lines = std::vector<std::string>;

// As a gateway has it in force.
std::string effective(const std::string& text) {
  const Result<GatewayConfig> config = parse_gateway_config(text, "f", {.allows_empty = true});
  EXPECT_TRUE(config.ok()) << config.error().message << text;
  return config.ok() ? config_text(*config) : "";
}

Lines changes(const std::string& before, const std::string& after) {
  const auto found = config_changes(effective(before), effective(after));
  EXPECT_TRUE(found.ok()) << found.error().message;
  Lines lines;
  if (!found.ok()) return lines;
  for (const ConfigChange& one : *found) lines.push_back(change_text(one));
  return lines;
}

constexpr const char* kPools =
    "[[pool]]\nname = \"a\"\nmodel = \"m\"\n[[pool]]\nname = \"b\"\nmodel = \"n\"\n";

TEST(ConfigChanges, ADefaultThatIsWrittenDownIsNone) {
  EXPECT_EQ(changes("", "# nothing\n[gateway]\nretries = 2\nretry_budget = 0.1\n"), Lines());
  EXPECT_EQ(changes(kPools, std::string("[gateway]\n") + kPools + "split = \"off\"\n"), Lines());
}

TEST(ConfigChanges, AreNamedByObjectAndKey) {
  const std::string worker = "[[worker]]\npool = \"a\"\nurl = \"http://10.0.0.1:9000\"\n";
  EXPECT_EQ(changes(kPools, kPools + worker), Lines{"+ worker http://10.0.0.1:9000"});
  EXPECT_EQ(changes(kPools + worker, kPools), Lines{"- worker http://10.0.0.1:9000"});
  EXPECT_EQ(changes(kPools, std::string("[gateway]\nretries = 4\n") + kPools),
            Lines{"~ gateway: retries = 2 -> 4"});
  EXPECT_EQ(changes(kPools + worker, kPools + worker + "zone = \"z\"\n"),
            Lines{"~ worker http://10.0.0.1:9000: zone = \"z\""});
  EXPECT_EQ(changes(kPools + worker + "zone = \"z\"\n", kPools + worker),
            Lines{"~ worker http://10.0.0.1:9000: zone = \"z\" -> nothing"});
}

// Two objects have the same key: which one's it was is said.
TEST(ConfigChanges, TablesWithinAnObjectAreItsOwn) {
  const auto scaled = [](int a, int b) {
    std::string text;
    for (const auto& [name, max] : {std::pair("a", a), std::pair("b", b)}) {
      text += "[[pool]]\nname = \"" + std::string(name) + "\"\nmodel = \"" + name +
              "\"\n[pool.scale]\nmax = " + std::to_string(max) + "\n";
    }
    return text;
  };
  EXPECT_EQ(changes(scaled(2, 3), scaled(2, 5)), Lines{"~ pool b: scale.max = 3 -> 5"});
}

TEST(ConfigChanges, TheFirstRouteCountsSoTheirOrderDoes) {
  const auto route = [](const std::string& model) {
    const std::string pool = model == "m" ? "a" : "b";
    return "[[route]]\nmodel = \"" + model + "\"\nto = [{pool = \"" + pool + "\"}]\n";
  };
  EXPECT_EQ(changes(kPools + route("m") + route("n"), kPools + route("n") + route("m")),
            Lines{"~ route: order = n, m"});
  EXPECT_EQ(changes(kPools + route("m"), kPools + route("n") + route("m")), Lines{"+ route n"});
}

TEST(ConfigChanges, ALongConfigurationIsReadInParts) {
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    const std::string name = std::to_string(i);
    text += "[[pool]]\nname = \"" + name + "\"\nmodel = \"" + name + std::string(200, 'm') + "\"\n";
  }
  const std::string whole = effective(text);
  ASSERT_GT(whole.size(), size_t{1} << 20) << "else it could be read at once";
  std::string together;
  for (const std::string_view part : split_config(whole)) together += part;
  EXPECT_EQ(together, whole);
  EXPECT_EQ(changes(text, text + "[[pool]]\nname = \"x\"\nmodel = \"m\"\n"), Lines{"+ pool x"});
}

}  // namespace
}  // namespace pelton::gateway
