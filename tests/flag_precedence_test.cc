// A7 of all verbs: of two flags that do not go together, the one on the command line is in effect
// and the environment's is not; both on the command line are refused; and no variable, alone, keeps
// a verb from running.
#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/verbs.h"
#include "base/file.h"
#include "cli/command_line.h"
#include "cli/exit_code.h"

namespace pelton::cli {

void PrintTo(const Verb& verb, std::ostream* out) {
  *out << verb.name;
}

}  // namespace pelton::cli

namespace pelton::apps {
namespace {

using cli::CommandLine;
using cli::Flag;
using cli::Verb;

using Words = std::vector<std::string>;

std::vector<Verb> all_verbs() {
  static const std::vector<Verb> none;
  return {serve_verb(),
          chat_verb(),
          generate_verb(),
          logits_verb(),
          embed_verb(),
          transcribe_verb(),
          snac_verb(),
          tokenize_verb(),
          grammar_verb(),
          inspect_verb(),
          pack_verb(),
          plan_verb(),
          calibrate_verb(),
          simulate_verb(),
          verify_verb(),
          synth_verb(),
          bench_latency_verb(),
          bench_prefix_verb(),
          bench_serve_verb(),
          bench_throughput_verb(),
          bench_compare_verb(),
          bench_sweep_verb(),
          bench_history_verb(),
          bench_bandwidth_verb(),
          bench_gateway_verb(),
          pull_verb(),
          cache_list_verb(),
          cache_purge_verb(),
          completion_verb({}, none),
          manual_verb({}, none)};
}

const Flag* find(const Verb& verb, const std::string& name) {
  const auto found = std::find_if(verb.flags.begin(), verb.flags.end(),
                                  [&](const Flag& flag) { return flag.name == name; });
  return found == verb.flags.end() ? nullptr : &*found;
}

std::string value_of(const Flag& flag) {
  if (flag.kind == Flag::Kind::kSwitch) return "true";
  if (!flag.choices.empty()) return flag.choices.back();
  if (flag.kind == Flag::Kind::kText) return "x";
  return fmt::format("{}", std::clamp(3.0, flag.least, flag.most));
}

bool conflict(const Flag& flag, const std::string& other) {
  return std::any_of(flag.not_with.begin(), flag.not_with.end(),
                     [&](const cli::Circumstance& one) { return one.flag == other; });
}

// What a flag needs to have an effect, as words; none of it is `without`.
Words needs_of(const Verb& verb, const Flag& flag, const std::string& without) {
  for (const cli::Circumstance& one : flag.only_with) {
    const Flag* needed = find(verb, one.flag);
    if (needed == nullptr || one.flag == without || conflict(flag, one.flag)) continue;
    Words words = {one.flag};
    if (!one.values.empty()) {
      words.push_back(one.values.front());
    } else if (needed->kind != Flag::Kind::kSwitch) {
      words.push_back(value_of(*needed));
    }
    const Words more = needs_of(verb, *needed, without);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  return {};
}

// A flag or positional as words, with what it needs.
Words arguments_for(const Verb& verb, const std::string& name, const std::string& without) {
  const Flag* flag = find(verb, name);
  if (flag == nullptr) return {"some"};  // a positional
  Words words = flag->kind == Flag::Kind::kSwitch ? Words{name} : Words{name, value_of(*flag)};
  const Words needs = needs_of(verb, *flag, without);
  words.insert(words.end(), needs.begin(), needs.end());
  return words;
}

struct Pair {
  std::string word;
  std::string other;
};

std::vector<Pair> pairs_of(const Verb& verb) {
  std::vector<Pair> pairs;
  for (const std::vector<std::string>& group : verb.exclusive) {
    for (const std::string& one : group) {
      for (const std::string& other : group) {
        if (one != other) pairs.push_back({one, other});
      }
    }
  }
  for (const Flag& flag : verb.flags) {
    for (const cli::Circumstance& other : flag.not_with) {
      const bool is_known =
          find(verb, other.flag) != nullptr ||
          std::any_of(verb.positionals.begin(), verb.positionals.end(),
                      [&](const cli::Positional& one) { return one.name == other.flag; });
      if (!other.values.empty() || !is_known) continue;
      pairs.push_back({flag.name, other.flag});
      pairs.push_back({other.flag, flag.name});
    }
  }
  return pairs;
}

class FlagPrecedence : public testing::TestWithParam<Verb> {
 protected:
  // Behind the verb's name, with what it cannot do without.
  Result<CommandLine::Request> parse(const Words& words) const {
    const Verb& verb = GetParam();
    Words all;
    for (size_t at = 0, end = 0; at < verb.name.size(); at = end + 1) {
      end = std::min(verb.name.find(' ', at), verb.name.size());
      all.push_back(verb.name.substr(at, end - at));
    }
    for (const cli::Positional& positional : verb.positionals) {
      if (positional.required) {
        all.push_back(positional.choices.empty() ? "model" : positional.choices.front());
      }
    }
    all.insert(all.end(), words.begin(), words.end());
    for (const Flag& flag : verb.flags) {
      if (!flag.required || std::find(all.begin(), all.end(), flag.name) != all.end()) continue;
      all.insert(all.end(), {flag.name, value_of(flag)});
    }
    return line_.parse(all);
  }

  const CommandLine line_{{.name = "pelton", .version = "1", .summary = "s"}, {GetParam()}};
};

TEST_P(FlagPrecedence, A7_AWordGoesBeforeAVariableThatItDoesNotGoWith) {
  for (const auto& [word, other] : pairs_of(GetParam())) {
    const Flag* flag = find(GetParam(), other);
    if (flag == nullptr) continue;  // a positional
    SCOPED_TRACE(word + " with a variable for " + other);
    const std::string variable = cli::environment_name(other);
    const Words words = arguments_for(GetParam(), word, other);
    setenv(variable.c_str(), value_of(*flag).c_str(), 1);
    const Result<CommandLine::Request> request = parse(words);
    unsetenv(variable.c_str());
    ASSERT_TRUE(request.ok()) << request.error().message << testing::PrintToString(words);
    EXPECT_TRUE(request->arguments.has(word));
    EXPECT_NE(request->arguments.origin(other), "$" + variable);
  }
}

TEST_P(FlagPrecedence, A7_BothAsWordsAreRefused) {
  for (const auto& [word, other] : pairs_of(GetParam())) {
    const bool is_known = find(GetParam(), word) != nullptr && find(GetParam(), other) != nullptr;
    if (!is_known) continue;
    SCOPED_TRACE(word + " and " + other);
    Words words = arguments_for(GetParam(), word, other);
    const Words more = arguments_for(GetParam(), other, word);
    words.insert(words.end(), more.begin(), more.end());
    const Result<CommandLine::Request> request = parse(words);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(cli::exit_code(request.error()), cli::kExitUsage);
  }
}

TEST_P(FlagPrecedence, A7_AVariableAloneIsForAllVerbs) {
  for (const Flag& flag : GetParam().flags) {
    if (flag.name == "--config" || flag.name == "--print-config") continue;
    SCOPED_TRACE(flag.name);
    const std::string variable = cli::environment_name(flag.name);
    setenv(variable.c_str(), value_of(flag).c_str(), 1);
    const Result<CommandLine::Request> request = parse({});
    unsetenv(variable.c_str());
    EXPECT_TRUE(request.ok()) << request.error().message;
  }
}

// What the tests above walk over is there at all.
TEST(FlagPairs, A7_ThereAreExclusiveGroups) {
  size_t pairs = 0;
  size_t groups = 0;
  for (const Verb& verb : all_verbs()) {
    pairs += pairs_of(verb).size();
    groups += verb.exclusive.size();
    for (const std::vector<std::string>& group : verb.exclusive) {
      for (const std::string& name : group) {
        const bool is_positional =
            std::any_of(verb.positionals.begin(), verb.positionals.end(),
                        [&](const cli::Positional& one) { return one.name == name; });
        EXPECT_TRUE(is_positional || find(verb, name) != nullptr) << verb.name << " " << name;
      }
    }
  }
  EXPECT_GE(groups, 5u);
  EXPECT_GE(pairs, 100u);
}

// docs/pasted_commands.md has a row for each foreign flag of serve, written by PELTON_RECORD=1;
// none of them is also one of serve's own.
TEST(ForeignFlags, ThePageHasAllOfThem) {
  const Verb serve = serve_verb();
  std::string table;
  for (const cli::ForeignFlag& foreign : serve.foreign) {
    for (const std::string& name : foreign.names) EXPECT_EQ(find(serve, name), nullptr) << name;
    if (foreign.is_positional) continue;
    const bool any = foreign.taken == Words{"*"};
    const std::string taken = any ? "taken with a note"
                              : foreign.taken.empty()
                                  ? "refused"
                                  : fmt::format("`{}` taken with a note, others refused",
                                                fmt::join(foreign.taken, "`, `"));
    table +=
        fmt::format("| `{}` | {} | {} |\n", fmt::join(foreign.names, "`, `"), taken, foreign.why);
  }
  const std::string file = PELTON_SOURCE_DIR "/docs/pasted_commands.md";
  std::string page = base::read_file(file, size_t{1} << 20).value();
  const std::string head = "| flag | what | why |\n|---|---|---|\n";
  const size_t begin = page.find(head);
  ASSERT_NE(begin, std::string::npos);
  const size_t first = begin + head.size();
  size_t end = first;
  while (page.compare(end, 2, "| ") == 0) end = page.find('\n', end) + 1;
  if (std::getenv("PELTON_RECORD") != nullptr) {
    page.replace(first, end - first, table);
    ASSERT_TRUE(base::write_file(file, page).ok());
  } else {
    EXPECT_EQ(page.substr(first, end - first), table);
  }
}

INSTANTIATE_TEST_SUITE_P(Verbs, FlagPrecedence, testing::ValuesIn(all_verbs()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace pelton::apps
