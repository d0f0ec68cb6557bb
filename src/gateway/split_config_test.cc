#include "gateway/split_config.h"

#include <gtest/gtest.h>

#include "gateway/config.h"
#include "gateway/config_text.h"

namespace pelton::gateway {
namespace {

Result<GatewayConfig> read(const std::string& keys, const std::string& gateway = "") {
  return parse_gateway_config("[gateway]\n" + gateway + "[[pool]]\nname = \"a\"\nmodel = \"m\"\n" +
                                  keys +
                                  "[[worker]]\npool = \"a\"\nurl = \"http://10.0.0.5:9000\"\n",
                              "f", {});
}

const std::string kKey = "fleet_key_file = \"k\"\n";
const std::string kNames = "tokenizer = \"t\"\n";

TEST(SplitConfig, IsReadAndWritten) {
  EXPECT_EQ(read("")->pools[0].split, SplitConfig{});
  const Result<GatewayConfig> config =
      read(kNames + "split = \"auto\"\nhandoff = \"first\"\n", kKey);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->pools[0].split, (SplitConfig{.mode = SplitConfig::Mode::kAuto,
                                                 .handoff = SplitConfig::Handoff::kFirst}));
  const Result<GatewayConfig> again = parse_gateway_config(config_text(*config), "f", {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->pools[0].split, config->pools[0].split);
}

TEST(SplitConfig, WhatMakesNoSenseIsRefused) {
  const auto why = [](const Result<GatewayConfig>& config) {
    return config.ok() ? "" : config.error().message;
  };
  EXPECT_NE(why(read(kNames + "split = \"some\"\n", kKey)).find("off, auto or always"),
            std::string::npos);
  EXPECT_NE(
      why(read(kNames + "split = \"auto\"\nhandoff = \"cold\"\n", kKey)).find("warm or first"),
      std::string::npos);
  EXPECT_NE(why(read("handoff = \"warm\"\n")).find("without 'split'"), std::string::npos);
  EXPECT_NE(why(read("split = \"auto\"\n", kKey)).find("'tokenizer'"), std::string::npos);
  EXPECT_NE(why(read(kNames + "split = \"auto\"\n")).find("'fleet_key_file'"), std::string::npos);
  EXPECT_NE(why(read(kNames + "kind = \"openai\"\nsplit = \"always\"\n", kKey)).find("of our own"),
            std::string::npos);
  EXPECT_NE(why(read(kNames + "kind = \"vllm\"\nsplit = \"auto\"\n", kKey)).find("off or always"),
            std::string::npos);
  EXPECT_NE(why(read(kNames + "split = \"auto\"\n[pool.scale]\n", kKey)).find("come and go"),
            std::string::npos);
}

}  // namespace
}  // namespace pelton::gateway
