// What --print-config prints, taken back by --config, is the same state: of every flag of every
// verb that has it, with every kind of value that the flag takes.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/engine_flags.h"
#include "apps/verbs.h"
#include "cli/command_line.h"
#include "node/loaded_model.h"

namespace pelton::apps {
namespace {

using cli::Arguments;
using cli::CommandLine;
using cli::Flag;
using cli::Verb;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

std::vector<Verb> configurable_verbs() {
  std::vector<Verb> found;
  for (Verb& verb : std::vector<Verb>{serve_verb(), chat_verb(), generate_verb(), plan_verb(),
                                      simulate_verb(), bench_serve_verb()}) {
    if (verb.configurable) found.push_back(std::move(verb));
  }
  return found;
}

// Command lines that give the flag every kind of value it takes.
std::vector<Words> ways_to_say(const Flag& flag) {
  std::vector<Words> ways;
  if (flag.kind == Flag::Kind::kSwitch) {
    for (const std::string& name : flag.names()) {
      for (const char* value : {"", "=true", "=false"}) ways.push_back({name + value});
    }
    return ways;
  }
  if (!flag.choices.empty()) {
    for (const std::string& choice : flag.choices) ways.push_back({flag.name, choice});
    return ways;
  }
  switch (flag.kind) {
    case Flag::Kind::kInteger:
    case Flag::Kind::kSize:
      for (const double value : {flag.least, flag.least + 1, flag.most}) {
        ways.push_back({flag.name, fmt::format("{:.0f}", std::floor(value / flag.bare_unit))});
      }
      if (flag.kind == Flag::Kind::kSize && flag.most >= 1 << 16) {
        ways.push_back({flag.name, "1MiB"});
      }
      break;
    case Flag::Kind::kNumber:
      for (const double value :
           {flag.least, flag.most, flag.least + (flag.most - flag.least) / 3}) {
        ways.push_back({flag.name, fmt::format("{}", value)});
      }
      break;
    default:
      ways = {{flag.name, "plain"}, {flag.name, "a \"b\"\\ #=\t\n\xC3\xA9"}, {flag.name, "true"}};
      if (flag.may_be_empty) ways.push_back({flag.name, ""});
      if (flag.many) ways.push_back({flag.name, "one", "two words", "three"});
  }
  return ways;
}

const Flag& named(const Verb& verb, const std::string& name) {
  return *std::find_if(verb.flags.begin(), verb.flags.end(),
                       [&](const Flag& flag) { return flag.name == name; });
}

// What has to be said for `flag` to have an effect.
Words circumstances_of(const Verb& verb, const Flag& flag) {
  if (flag.only_with.empty()) return {};
  const cli::Circumstance& one = flag.only_with.front();
  const Flag& other = named(verb, one.flag);
  // Which may want another one in its turn; of two that want each other that is all.
  const bool is_mutual = std::ranges::any_of(
      other.only_with, [&](const cli::Circumstance& its) { return its.flag == flag.name; });
  Words words = is_mutual ? Words{} : circumstances_of(verb, other);
  const Words said =
      one.values.empty() ? ways_to_say(other).front() : Words{one.flag, one.values.front()};
  words.insert(words.end(), said.begin(), said.end());
  return words;
}

// One way of saying each flag, in which all have an effect.
Words all_flags(const Verb& verb, bool last) {
  Words words;
  for (const Flag& flag : verb.flags) {
    if (!flag.in_config) continue;
    const bool excluded = std::ranges::any_of(verb.exclusive, [&](const auto& group) {
      return group.front() == flag.name && group.back() != flag.name;
    });
    if (excluded) continue;  // of a group the last one
    const std::vector<Words> ways = ways_to_say(flag);
    Words way = last ? ways.back() : ways.front();
    for (const Flag& other : verb.flags) {
      // With this value another flag has no effect.
      const bool hinders =
          std::ranges::any_of(other.not_with, [&](const cli::Circumstance& circumstance) {
            return circumstance.flag == flag.name &&
                   std::ranges::find(circumstance.values, way.back()) != circumstance.values.end();
          });
      if (hinders) way = last ? ways.front() : ways.back();
      const Words wanted = circumstances_of(verb, other);
      if (!wanted.empty() && wanted.front() == flag.name) way = wanted;
      // Amid a chain of them: --a wants --b, which wants --c.
      const bool is_wanted = std::ranges::any_of(other.only_with, [&](const auto& circumstance) {
        return circumstance.flag == flag.name && circumstance.values.empty();
      });
      if (is_wanted && flag.kind == Flag::Kind::kSwitch) way = ways.front();
    }
    words.insert(words.end(), way.begin(), way.end());
  }
  return words;
}

class ConfigRoundTrip : public testing::TestWithParam<Verb> {
 protected:
  ConfigRoundTrip() {
    char name[] = "/tmp/pelton_round_trip.XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ConfigRoundTrip() override { std::filesystem::remove_all(folder_); }

  Result<CommandLine::Request> parse(const Words& words) const {
    Words all = {line_.verbs().front().name};
    all.insert(all.end(), words.begin(), words.end());
    return line_.parse(all);
  }
  // The state after `words`, and after what they print.
  void expect_the_same(const Words& words) {
    SCOPED_TRACE(testing::PrintToString(words));
    Result<CommandLine::Request> before = parse(words);
    ASSERT_TRUE(before.ok()) << before.error().message;
    Words print = words;
    print.push_back("--print-config");
    const Result<CommandLine::Request> printed = parse(print);
    ASSERT_TRUE(printed.ok()) << printed.error().message;
    const std::string file = folder_ + "/printed.toml";
    std::ofstream(file) << printed->text;
    Result<CommandLine::Request> after = parse({"--config", file});
    ASSERT_TRUE(after.ok()) << after.error().message << printed->text;
    compare(before->arguments, after->arguments, printed->text);
  }

  const CommandLine line_{{.name = "pelton", .version = "1", .summary = "s"}, {GetParam()}};

 private:
  void compare(const Arguments& before, const Arguments& after, const std::string& printed) {
    Words changed = after.changed_since(before);
    std::erase(changed, "--config");
    for (const Flag& flag : GetParam().flags) {
      if (!flag.secret || !before.has(flag.name)) continue;
      std::erase(changed, flag.name);
      EXPECT_THAT(printed, HasSubstr("# WARNING: " + cli::config_name(flag.name)));
    }
    EXPECT_THAT(changed, IsEmpty()) << printed;
    for (const Flag& flag : GetParam().flags) {
      const bool is_number = flag.kind != Flag::Kind::kSwitch && flag.kind != Flag::Kind::kText;
      if (!is_number || !before.has(flag.name)) continue;
      EXPECT_EQ(before.number(flag.name), after.number(flag.name)) << flag.name;
      EXPECT_EQ(before.integer(flag.name), after.integer(flag.name)) << flag.name;
    }
  }

  std::string folder_;
};

TEST_P(ConfigRoundTrip, A2_NothingSaid) {
  expect_the_same({"some/model"});
}

TEST_P(ConfigRoundTrip, A2_EveryFlagWithEveryKindOfValue) {
  for (const Flag& flag : GetParam().flags) {
    if (!flag.in_config) continue;
    for (const Words& way : ways_to_say(flag)) {
      Words words = circumstances_of(GetParam(), flag);
      words.insert(words.begin(), "some/model");
      words.insert(words.end(), way.begin(), way.end());
      expect_the_same(words);
    }
  }
}

TEST_P(ConfigRoundTrip, A2_AllFlagsAtOnce) {
  for (const bool last : {false, true}) {
    Words words = all_flags(GetParam(), last);
    words.insert(words.begin(), "some/model");
    expect_the_same(words);
  }
}

// What was wrong: the cache was on, and "false # default" was printed and taken back.
TEST_P(ConfigRoundTrip, A2_PrefixCacheIsWhatWasSaid) {
  for (const auto& [words, on] :
       std::vector<std::pair<Words, bool>>{{{}, true},
                                           {{"--enable-prefix-caching"}, true},
                                           {{"--no-enable-prefix-caching"}, false},
                                           {{"--no-prefix-caching"}, false},
                                           {{"--enable-prefix-caching=false"}, false},
                                           {{"--enable-prefix-caching", "false"}, false},
                                           {{"--enable-prefix-caching", "true"}, true}}) {
    Words print = words;
    print.push_back("--print-config");
    EXPECT_THAT(parse(print)->text, HasSubstr(fmt::format("enable-prefix-caching = {}", on)));
    const std::string file = "/tmp/" + std::to_string(::getpid()) + "_prefix_cache.toml";
    std::ofstream(file) << parse(print)->text;
    const Result<CommandLine::Request> again = parse({"some/model", "--config", file});
    std::filesystem::remove(file);
    ASSERT_TRUE(again.ok()) << again.error().message;
    node::LoadedModel::Options options;
    ASSERT_TRUE(read_batch_flags(again->arguments, options).ok());
    EXPECT_EQ(options.engine.prefix_cache, on);
    EXPECT_EQ(options.executor.prefix_cache, on);
  }
}

INSTANTIATE_TEST_SUITE_P(Verbs, ConfigRoundTrip, testing::ValuesIn(configurable_verbs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pelton::apps
