#include "capacity/capacity_file.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::capacity {
namespace {

constexpr std::string_view kGood = R"([plan]
survive = ["zone", "spot"]
survive_share = 0.5
[[capacity]]
name = "a"
provider = "p"
region = "r"
zone = "1"
machine = "g"
kind = "spot"
price_per_hour = 1.5
quota = 4
reclaim_per_hour = 0.1
residency = ["eu"]
[[variant]]
name = "v"
model = "m"
machine = "g"
rate = 2
[[demand]]
model = "m"
residency = ["eu"]
rate = 3
[[running]]
capacity = "a"
variant = "v"
replicas = 1
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(CapacityFileTest, IsRead) {
  const Result<FleetNeeds> needs = parse_needs(kGood, "f.toml");
  ASSERT_TRUE(needs.ok()) << needs.error().message;
  EXPECT_EQ(needs->survive, (std::vector<Domain>{Domain::kZone, Domain::kSpot}));
  EXPECT_EQ(needs->entries[0].kind, Kind::kSpot);
  EXPECT_DOUBLE_EQ(needs->entries[0].price, 1.5);
  EXPECT_EQ(needs->demands[0].residency, (std::vector<std::string>{"eu"}));
  EXPECT_EQ(needs->running[0].replicas, 1);
}

struct Wrong {
  std::string_view from;
  std::string_view to;
  std::string_view message;
};

TEST(CapacityFileTest, SaysWhatIsWrongAndWhere) {
  const std::string again(kGood.substr(kGood.find("[[capacity]]"),
                                       kGood.find("[[variant]]") - kGood.find("[[capacity]]")));
  const std::string alike = "[[variant]]";
  const Wrong wrongs[] = {
      {"price_per_hour = 1.5", "price_per_hour = -1",
       "f.toml:11: capacity: 'price_per_hour' must be a number from 0"},
      {"price_per_hour = 1.5", "price_per_hour = nan",
       "f.toml:11: capacity: 'price_per_hour' must be a number"},
      {"quota = 4", "quota = 0", "f.toml:12: capacity: 'quota' must be a number from 1 to 100000"},
      {"quota = 4", "quota = 2.5", "f.toml:12: capacity: 'quota' must be a whole number"},
      {"quota = 4", "quota = 4\nlead_p90_s = 31536000",
       "'lead_p90_s' must be a number from 0 to 86400"},
      {"quota = 4", "quota = 4\nlead_p50_s = 300\nlead_p90_s = 200",
       "'lead_p90_s' is below lead_p50_s"},
      {"kind = \"spot\"", "kind = \"on_demand\"", "'reclaim_per_hour' is of kind spot alone"},
      {"kind = \"spot\"", "kind = \"spto\"", "'kind' knows reserved, on_demand and spot"},
      {"quota = 4", "qouta = 4", "did you mean 'quota'?"},
      {"machine = \"g\"\nrate", "machine = \"h\"\nrate", "'h' is of no [[capacity]]"},
      {"model = \"m\"\nresidency = [\"eu\"]", "model = \"m\"\nresidency = [\"us\"]",
       "'us' is of no [[capacity]]"},
      {"model = \"m\"\nresidency = [\"eu\"]", "model = \"m\"\nresidency = [\"EU\"]",
       "'EU' differs from 'eu' by case alone"},
      {"model = \"m\"\nresidency", "model = \"n\"\nresidency", "'n' has no [[variant]]"},
      {"capacity = \"a\"", "capacity = \"b\"", "'b' is no [[capacity]]"},
      {"survive_share = 0.5", "survive_share = 1.5",
       "'survive_share' must be a number from 0 to 1"},
      {"[\"zone\", \"spot\"]", "[\"rack\"]", "'survive' knows zone, region, provider and spot"},
      {"name = \"a\"", "name = \"a b\"", "must be a text of 1 to 64 letters"}};
  for (const Wrong& wrong : wrongs) {
    const Result<FleetNeeds> needs = parse_needs(with(wrong.from, wrong.to), "f.toml");
    ASSERT_FALSE(needs.ok()) << wrong.to;
    EXPECT_NE(needs.error().message.find(wrong.message), std::string::npos)
        << needs.error().message << " for " << wrong.to;
  }
}

TEST(CapacityFileTest, TwoAlikeAreRefused) {
  const size_t begin = kGood.find("[[capacity]]");
  const std::string entry(kGood.substr(begin, kGood.find("[[variant]]") - begin));
  std::string same = std::string(kGood) + entry;
  Result<FleetNeeds> needs = parse_needs(same, "f.toml");
  ASSERT_FALSE(needs.ok());
  EXPECT_NE(needs.error().message.find("'a' is there already as 'a'"), std::string::npos);
  same.replace(same.rfind("name = \"a\""), 10, "name = \"b\"");
  needs = parse_needs(same, "f.toml");
  ASSERT_FALSE(needs.ok());
  EXPECT_NE(needs.error().message.find("'b' is the same machine, kind and place as 'a'"),
            std::string::npos);
  same.replace(same.rfind("region = \"r\""), 12, "region = \"R\"");
  needs = parse_needs(same, "f.toml");
  ASSERT_FALSE(needs.ok());
  EXPECT_NE(needs.error().message.find("'R' differs from 'r' by case alone"), std::string::npos);
}

}  // namespace
}  // namespace pelton::capacity
