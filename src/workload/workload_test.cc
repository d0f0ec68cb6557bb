#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "workload/arrivals.h"
#include "workload/offered_load.h"
#include "workload/recorded.h"
#include "workload/synthetic.h"

namespace pelton::workload {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<double> times_of(const Arrivals& arrivals, int64_t count) {
  const Result<std::vector<double>> times = arrival_times(arrivals, count);
  EXPECT_TRUE(times.ok()) << (times.ok() ? "" : times.error().message);
  return times.ok() ? *times : std::vector<double>();
}

// Standard deviation of the gaps over their mean.
double variation(const std::vector<double>& times) {
  double sum = 0;
  double squares = 0;
  double before = 0;
  for (const double time : times) {
    sum += time - before;
    squares += (time - before) * (time - before);
    before = time;
  }
  const double n = static_cast<double>(times.size());
  return std::sqrt(std::max(0.0, squares / n - sum / n * sum / n)) / (sum / n);
}

// The test's own verses and rows.
TEST(Sonnet, PromptsShareTheirFirstLines) {
  std::string poem;
  for (int i = 0; i < 40; ++i) poem += "line number " + std::to_string(i) + " of a small poem\n";
  const Vocabulary vocabulary;
  const SonnetLengths lengths{.input_tokens = 200, .output_tokens = 7, .prefix_tokens = 80};
  const auto made = sonnet_conversations(poem, "p", lengths, 5, 3, vocabulary);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->size(), 5);
  const std::string& first = made->at(0).turns.at(0).prompt;
  EXPECT_TRUE(
      first.starts_with("Pick as many lines as you can from these poem lines:\nline number 0"));
  for (const Conversation& one : *made) {
    const Turn& turn = one.turns.at(0);
    EXPECT_EQ(turn.prompt.substr(0, 4 * 70), first.substr(0, 4 * 70));
    EXPECT_GE(turn.prompt_tokens, 190);
    EXPECT_LT(turn.prompt_tokens, 220);
    EXPECT_EQ(turn.output_tokens, 7);
  }
  EXPECT_NE(made->at(1).turns.at(0).prompt, first);
  const auto invented = sonnet_conversations("", "none", lengths, 2, 3, vocabulary);
  ASSERT_TRUE(invented.ok());
  EXPECT_GE(invented->at(0).turns.at(0).prompt_tokens, 190);
  EXPECT_FALSE(sonnet_conversations(" \n ", "p", lengths, 2, 3, vocabulary).ok());
  EXPECT_FALSE(
      sonnet_conversations(poem, "p", {.input_tokens = 5, .prefix_tokens = 6}, 2, 3, vocabulary)
          .ok());
}

TEST(BurstGpt, TakesLengthsOfAnsweredRequests) {
  const std::string file =
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,100,10,110,API log\n6,GPT-4,20,3,23,API log\n7,GPT-4,30,0,30,API log\n";
  const auto made = burstgpt_conversations(file, "b", 4, 1, Vocabulary());
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->size(), 4);
  for (const Conversation& one : *made) {
    EXPECT_EQ(one.turns.at(0).prompt_tokens, 20);
    EXPECT_EQ(one.turns.at(0).output_tokens, 3);
    EXPECT_FALSE(one.at_s);
  }
  EXPECT_FALSE(burstgpt_conversations("a,b\n1,2\n", "b", 1, 1, Vocabulary()).ok());
  EXPECT_FALSE(burstgpt_conversations("", "b", 1, 1, Vocabulary()).ok());
}

TEST(HubRows, FindTheirWords) {
  const std::string rows =
      R"({"question": "q"})"
      "\n"
      R"({"conversations": [{"from": "gpt", "value": "x"}, {"from": "human", "value": "c"}]})"
      "\n"
      R"({"turns": ["t", "u"]})"
      "\n"
      R"({"instruction": "i", "input": "more"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "m"}]})"
      "\n";
  const auto made =
      hub_rows_conversations(rows, "h", {.count = 6, .output_tokens = 9}, Vocabulary());
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::vector<std::string> words;
  for (const Conversation& one : *made) words.push_back(one.turns.at(0).prompt);
  EXPECT_EQ(words, (std::vector<std::string>{"q", "c", "t", "i\nmore", "", "q"}));
  EXPECT_NE(made->at(4).turns.at(0).messages_json, "");
  EXPECT_EQ(made->at(0).turns.at(0).output_tokens, 9);
  EXPECT_TRUE(
      hub_rows_conversations(R"([{"text": "a"}, {"text": "b"}])", "h", {.count = 2}, Vocabulary())
          .ok());
  EXPECT_FALSE(hub_rows_conversations(R"({"other": 1})", "h", {.count = 1}, Vocabulary()).ok());
  EXPECT_FALSE(hub_rows_conversations("", "h", {.count = 1}, Vocabulary()).ok());
}

TEST(Draws, GammaHasItsMeanAndVariance) {
  for (const double shape : {0.25, 1.0, 4.0}) {
    Draws draws(7, 1);
    double sum = 0;
    double squares = 0;
    constexpr int kCount = 200'000;
    for (int i = 0; i < kCount; ++i) {
      const double x = draws.gamma(shape, 2);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kCount;
    EXPECT_NEAR(mean, shape * 2, 0.02 * shape * 2);
    EXPECT_NEAR(squares / kCount - mean * mean, shape * 4, 0.04 * shape * 4);
  }
}

TEST(Draws, ASkewedChoiceIsZipfsLaw) {
  const SkewedChoice zipf(4, 1);  // 1, 1/2, 1/3, 1/4 of 25/12
  EXPECT_EQ(zipf.at(0), 0u);
  EXPECT_EQ(zipf.at(0.4799), 0u);
  EXPECT_EQ(zipf.at(0.4801), 1u);
  EXPECT_EQ(zipf.at(0.7201), 2u);
  EXPECT_EQ(zipf.at(0.8801), 3u);
  EXPECT_EQ(zipf.at(1 - 0x1.0p-53), 3u);
  const SkewedChoice even(5, 0);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(even.at((static_cast<double>(i) + 0.5) / 5), i);
  EXPECT_TRUE(SkewedChoice(0, 1).empty());
}

TEST(Draws, IntegersReachBothEnds) {
  Draws draws(1, 2);
  std::set<int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(draws.integer(3, 6));
  EXPECT_EQ(seen, (std::set<int64_t>{3, 4, 5, 6}));
}

TEST(Arrivals, PoissonBurstsAndMetronome) {
  for (const auto& [burstiness, expected] :
       std::map<double, double>{{0.25, 2.0}, {1.0, 1.0}, {4.0, 0.5}, {kInfinite, 0.0}}) {
    const auto times = times_of({.rate = 50, .burstiness = burstiness, .seed = 3}, 20'000);
    EXPECT_NEAR(times.back(), 400, 1e-6) << "stretched to count / rate";
    EXPECT_NEAR(variation(times), expected, 0.05) << burstiness;
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  }
}

TEST(Arrivals, OneSeedOneRun) {
  const Arrivals arrivals{.rate = 2, .seed = 5};
  EXPECT_EQ(times_of(arrivals, 100), times_of(arrivals, 100));
  EXPECT_NE(times_of(arrivals, 100), times_of({.rate = 2, .seed = 6}, 100));
}

TEST(Arrivals, AllAtOnce) {
  EXPECT_EQ(times_of({.rate = kInfinite}, 3), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(times_of({.rate = 1}, 0).empty());
}

TEST(Arrivals, RampsRise) {
  for (const Ramp::Shape shape : {Ramp::Shape::kLinear, Ramp::Shape::kExponential}) {
    const Arrivals arrivals{.burstiness = kInfinite,
                            .ramp = Ramp{.shape = shape, .start_rps = 1, .end_rps = 16}};
    const auto times = times_of(arrivals, 101);
    EXPECT_NEAR(times[0], 1.0, 1e-9);
    EXPECT_NEAR(times[100] - times[99], 1.0 / 16, 1e-9);
    const double middle = shape == Ramp::Shape::kLinear ? 8.5 : 4;
    EXPECT_NEAR(times[50] - times[49], 1 / middle, 1e-9);
  }
}

TEST(Arrivals, ADayHasPeakAndTrough) {
  const Arrivals arrivals{.rate = 100, .day = Day{.swing = 0.8, .period_s = 100}, .seed = 1};
  int peak = 0;    // around a quarter of the day
  int trough = 0;  // around three quarters
  for (const double t : times_of(arrivals, 10'000)) {
    if (t >= 20 && t < 30) ++peak;
    if (t >= 70 && t < 80) ++trough;
  }
  EXPECT_NEAR(peak, 1787, 150);  // 1000 (1 + 0.8 * mean of sin from 0.2 to 0.3 turns)
  EXPECT_NEAR(trough, 213, 60);
}

TEST(Spikes, ComeOnTop) {
  int before = 0;
  int within = 0;
  int behind = 0;
  const std::vector<double> times =
      times_of({.rate = 10, .spikes = {{.at_s = 50, .for_s = 20, .rps = 90}}, .seed = 1}, 3'000);
  for (const double t : times) {
    if (t < 50) ++before;
    if (t >= 50 && t < 70) ++within;
    if (t >= 70 && t < 120) ++behind;
  }
  EXPECT_NEAR(before, 500, 90);
  EXPECT_NEAR(within, 2000, 180);  // 20 s of 10 + 90 a second
  EXPECT_NEAR(behind, 500, 90);
  EXPECT_NEAR(times.back(), 120, 1e-6);  // 3000 = 10 x 120 + 90 x 20
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
}

TEST(Arrivals, RefusesNonsense) {
  const double nan = std::nan("");
  for (const Arrivals& bad :
       {Arrivals{.rate = 0}, Arrivals{.rate = nan}, Arrivals{.rate = 1, .burstiness = 0},
        Arrivals{.ramp = Ramp{.start_rps = -1}},
        Arrivals{.ramp = Ramp{.shape = Ramp::Shape::kExponential, .start_rps = 0}},
        Arrivals{.rate = kInfinite, .day = Day{}}, Arrivals{.rate = 1, .day = Day{.swing = 2}}}) {
    EXPECT_FALSE(arrival_times(bad, 10).ok());
  }
  for (const Spike& spike : {Spike{.at_s = -1}, Spike{.for_s = 0}, Spike{.rps = nan}}) {
    EXPECT_FALSE(arrival_times({.rate = 1, .spikes = {spike}}, 10).ok());
  }
  EXPECT_FALSE(arrival_times({.rate = kInfinite, .spikes = {Spike{}}}, 10).ok());
  EXPECT_FALSE(arrival_times({.rate = 1, .ramp = Ramp{}, .spikes = {Spike{}}}, 10).ok());
  EXPECT_FALSE(parse_rate("0", "f").ok());
  EXPECT_FALSE(parse_rate("nan", "f").ok());
  EXPECT_FALSE(parse_rate("1x", "f").ok());
  EXPECT_EQ(parse_rate("inf", "f").value(), kInfinite);
  EXPECT_EQ(parse_rate("0.5", "f").value(), 0.5);
}

// Words of one token each, by their number.
Vocabulary numbered_words() {
  std::vector<Vocabulary::Word> words;
  for (int i = 0; i < 500; ++i) words.push_back({.text = " w" + std::to_string(i), .id = i});
  return Vocabulary(std::move(words), [](std::string_view text) {
    return static_cast<int>(std::count(text.begin(), text.end(), ' '));
  });
}

TEST(Synthetic, LengthsAreExact) {
  const Vocabulary vocabulary = numbered_words();
  const auto made = random_conversations(
      {.input_tokens = 100, .output_tokens = 20, .range_ratio = 0.3, .prefix_tokens = 7}, {}, 200,
      vocabulary, 1);
  ASSERT_TRUE(made.ok());
  std::set<int> inputs;
  std::set<std::string> texts;
  const std::string prefix =
      (*made)[0].turns[0].prompt.substr(0, (*made)[0].turns[0].prompt.find(' ', 25));
  for (const Conversation& one : *made) {
    const Turn& turn = one.turns.at(0);
    EXPECT_EQ(vocabulary.count(turn.prompt), turn.prompt_tokens);
    EXPECT_EQ(static_cast<int>(turn.ids.size()), turn.prompt_tokens);
    EXPECT_GE(turn.prompt_tokens, 77);
    EXPECT_LE(turn.prompt_tokens, 137);
    EXPECT_GE(turn.output_tokens, 14);
    EXPECT_LE(turn.output_tokens, 26);
    EXPECT_TRUE(turn.prompt.starts_with(prefix));
    inputs.insert(turn.prompt_tokens);
    texts.insert(turn.prompt);
  }
  EXPECT_GT(inputs.size(), 30u);
  EXPECT_EQ(texts.size(), 200u);
  // A longer run begins with the shorter one's prompts.
  const auto more = random_conversations(
      {.input_tokens = 100, .output_tokens = 20, .range_ratio = 0.3, .prefix_tokens = 7}, {}, 201,
      vocabulary, 1);
  EXPECT_EQ((*more)[199].turns[0].prompt, (*made)[199].turns[0].prompt);
}

TEST(Synthetic, Turns) {
  const auto made = random_conversations({.input_tokens = 5, .output_tokens = 3},
                                         {.count = 4, .think_s = 2}, 500, Vocabulary(), 1);
  ASSERT_TRUE(made.ok());
  double think = 0;
  for (const Conversation& one : *made) {
    ASSERT_EQ(one.turns.size(), 4u);
    EXPECT_EQ(one.turns[0].think_s, 0);
    for (int t = 1; t < 4; ++t) think += one.turns[static_cast<size_t>(t)].think_s;
  }
  EXPECT_NEAR(think / 1500, 2, 0.2);
}

TEST(Synthetic, PrefixesRepeat) {
  const Vocabulary vocabulary = numbered_words();
  const auto made = prefix_repetition({.prefix_tokens = 30, .suffix_tokens = 10, .prefix_count = 4},
                                      40, vocabulary, 9);
  ASSERT_TRUE(made.ok());
  std::map<std::vector<TokenId>, int> prefixes;
  bool shuffled = false;
  for (size_t i = 0; i < made->size(); ++i) {
    const std::vector<TokenId>& ids = (*made)[i].turns[0].ids;
    ASSERT_EQ(ids.size(), 40u);
    ++prefixes[{ids.begin(), ids.begin() + 30}];
    shuffled = shuffled || (i >= 4 && !std::equal(ids.begin(), ids.begin() + 30,
                                                  (*made)[i - 4].turns[0].ids.begin()));
  }
  EXPECT_EQ(prefixes.size(), 4u);
  for (const auto& [prefix, times] : prefixes) EXPECT_EQ(times, 10);
  EXPECT_TRUE(shuffled);
}

TEST(Synthetic, RefusesWhatMemoryCannotHold) {
  const auto made = random_conversations({.input_tokens = 1'000'000}, {}, 1000, Vocabulary(), 1);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().field, "num_prompts");
  EXPECT_FALSE(random_conversations({.range_ratio = 1}, {}, 1, Vocabulary(), 1).ok());
  EXPECT_FALSE(random_conversations({.input_tokens = 0}, {}, 1, Vocabulary(), 1).ok());
  EXPECT_FALSE(preset_lengths("heavy").ok());
}

TEST(Recorded, ShareGpt) {
  const std::string text = R"([
    {"conversations": [{"from": "human", "value": "a b c d e f g h i j k l"},
                       {"from": "gpt", "value": "one two three four five six"},
                       {"from": "human", "value": "and then, what came after that?"},
                       {"from": "gpt", "value": "nothing of note, I think"}]},
    {"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "short"}]},
    {"conversations": [{"from": "gpt", "value": "I begin, which is not usual at all"},
                       {"from": "human", "value": "indeed it is not, I would say"}]},
    {"id": "without"}, {"conversations": [{"from": "human", "value": "alone"}]}])";
  const auto one = sharegpt_conversations(text, "f", {.count = 3}, Vocabulary());
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_EQ(one->size(), 3u) << "a short file is begun again";
  EXPECT_EQ((*one)[2].turns.size(), 1u);
  EXPECT_EQ((*one)[0].turns[0].prompt, "a b c d e f g h i j k l");
  EXPECT_EQ((*one)[0].turns[0].output_tokens, 7);  // 27 bytes by four
  const auto two = sharegpt_conversations(
      text, "f", {.count = 1, .output_tokens = 9, .turns_max = 5, .think_s = 1}, Vocabulary());
  ASSERT_EQ((*two)[0].turns.size(), 2u);
  EXPECT_EQ((*two)[0].turns[1].output_tokens, 9);
  EXPECT_EQ((*two)[0].turns[1].think_s, 1);

  for (const char* bad : {"", "{}", "[", "[{]", R"([{"conversations":[]}])", R"([{"a":1},)"}) {
    const auto refused = sharegpt_conversations(bad, "the file", {.count = 1}, Vocabulary());
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_TRUE(refused.error().message.starts_with("the file")) << refused.error().message;
  }
}

TEST(Recorded, ShareGptChoosesEvenly) {
  std::string text = "[";
  for (int i = 0; i < 20; ++i) {
    text += (i ? "," : "") + std::string(R"({"conversations":[{"value":"prompt number )") +
            std::to_string(100 + i) + R"( , yes"},{"value":"and its answer, here"}]})";
  }
  text += "]";
  std::map<std::string, int> chosen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto made = sharegpt_conversations(text, "f", {.count = 5, .seed = seed}, Vocabulary());
    for (const Conversation& one : *made) ++chosen[one.turns[0].prompt];
  }
  ASSERT_EQ(chosen.size(), 20u);
  for (const auto& [prompt, times] : chosen) EXPECT_NEAR(times, 100, 40) << prompt;
}

TEST(Recorded, Custom) {
  const std::string text =
      "{\"prompt\":\"hello\",\"output_tokens\":4}\n\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\r\n";
  const auto made = custom_conversations(text, "f", {.count = 3}, Vocabulary());
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->size(), 3u);
  EXPECT_EQ((*made)[0].turns[0].output_tokens, 4);
  EXPECT_EQ((*made)[1].turns[0].messages_json, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ((*made)[2].turns[0].prompt, "hello");
  const auto bad = custom_conversations("\n{\"prompt\":\"\"}", "f", {.count = 1}, Vocabulary());
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(bad.error().message.starts_with("f:2: ")) << bad.error().message;
  EXPECT_FALSE(custom_conversations("", "f", {.count = 1}, Vocabulary()).ok());
}

TEST(Trace, MooncakeSharesBlocks) {
  const std::string text =
      R"({"timestamp": 3000, "input_length": 1030, "output_length": 52, "hash_ids": [5, 6, 7]})"
      "\n"
      R"({"timestamp": 1000, "input_length": 600, "output_length": 0, "hash_ids": [5, 9]})"
      "\n"
      R"({"timestamp": 9000, "input_length": 3, "output_length": 2})";
  const Vocabulary vocabulary = numbered_words();
  const auto made = trace_conversations(text, "f", {.speed = 2}, vocabulary);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->conversations.size(), 3u);
  EXPECT_EQ(made->conversations[0].at_s, 0.0);
  EXPECT_EQ(made->conversations[1].at_s, 1.0);
  EXPECT_EQ(made->conversations[2].at_s, 4.0);
  const std::vector<TokenId>& first = made->conversations[0].turns[0].ids;
  const std::vector<TokenId>& second = made->conversations[1].turns[0].ids;
  ASSERT_EQ(first.size(), 600u);
  ASSERT_EQ(second.size(), 1030u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 512, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 512, first.end(), second.begin() + 512));
  EXPECT_EQ(made->conversations[0].turns[0].output_tokens, 1);
}

TEST(Trace, BurstGpt) {
  const std::string text =
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,7,230,237,API log\n";
  const auto made = trace_conversations(text, "f", {}, Vocabulary());
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->conversations.size(), 2u);
  EXPECT_EQ(made->conversations[1].at_s, 40.5);
  EXPECT_EQ(made->conversations[1].turns[0].prompt_tokens, 7);
  EXPECT_EQ(made->conversations[1].turns[0].output_tokens, 230);
  const auto one = trace_conversations(text, "f", {.count = 1}, Vocabulary());
  EXPECT_EQ(one->conversations.size(), 1u);
  for (const char* bad :
       {"", "a,b\n1,2\n", "Timestamp,Request tokens,Response tokens\n1,x,2\n", "{\"timestamp\":1}",
        "{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}",
        "{\"timestamp\":1,\"input_length\":99999999,\"output_length\":1}", "{",
        R"({"timestamp":1,"input_length":9,"output_length":1,"hash_ids":"1,2"})",
        R"({"timestamp":1,"input_length":9,"output_length":1,"hash_ids":3})"}) {
    EXPECT_FALSE(trace_conversations(bad, "f", {}, Vocabulary()).ok()) << bad;
  }
}

// As a gateway's request log has it: members beside those of a trace, blocks of its own width.
TEST(Trace, RequestLog) {
  const std::string line =
      R"({"timestamp":%,"pool":"box","input_length":200,"output_length":9,"cached_tokens":128,)"
      R"("block_tokens":64,"hash_ids":[11,12,@],"status":200,"outcome":"ok","duration_ms":3.5})"
      "\n";
  const auto with = [&](const std::string& at, const std::string& id) {
    std::string text = line;
    text.replace(text.find('%'), 1, at);
    text.replace(text.find('@'), 1, id);
    return text;
  };
  // Written when they are over: not in the order in which they came.
  const auto made = trace_conversations(with("1790000002000", "13") + with("1790000000500", "14"),
                                        "f", {}, ids_vocabulary(1000));
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->conversations.size(), 2u);
  EXPECT_EQ(made->conversations[0].at_s, 0);
  EXPECT_EQ(made->conversations[1].at_s, 1.5);
  const auto& first = made->conversations[0].turns[0].ids;
  const auto& second = made->conversations[1].turns[0].ids;
  ASSERT_EQ(first.size(), 200u);
  ASSERT_EQ(second.size(), 200u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 128, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 128, first.begin() + 192, second.begin() + 128));
  for (const char* bad : {"0", "-64", "\"64\"", "1e9"}) {
    std::string text = with("1", "13");
    text.replace(text.find("64,"), 2, bad);
    EXPECT_FALSE(trace_conversations(text, "f", {}, Vocabulary()).ok()) << bad;
  }
}

TEST(Trace, IsBoundedInTokens) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    text += R"({"timestamp":1,"input_length":10000000,"output_length":1})"
            "\n";
  }
  const auto made = trace_conversations(text, "f", {}, Vocabulary());
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("--num-prompts"), std::string::npos);
}

std::string line_at(const std::string& timestamp) {
  return R"({"timestamp":)" + timestamp + R"(,"input_length":20,"output_length":4})" + "\n";
}

TEST(Trace, TimesBeyondWhatIsATimeAreRefusedByTheLine) {
  const auto error = [](const std::string& text) {
    const auto made = trace_conversations(text, "f", {}, ids_vocabulary(10));
    return made.ok() ? std::string("taken") : made.error().message;
  };
  // Nanoseconds, as some logs have them.
  EXPECT_EQ(error(line_at("1790000000000000000")),
            "f:1: the time must be from 0 to 1e+15 milliseconds, not 1.79e+18");
  EXPECT_NE(error(line_at("1") + line_at("1e308")).find("f:2: the time must be"),
            std::string::npos);
  EXPECT_NE(error(line_at("0") + line_at("1e13")).find("days apart, more than 366"),
            std::string::npos);
  // The moment is large, what lies between two is not.
  const auto late = trace_conversations(line_at("10000000000000") + line_at("10000000000250"), "f",
                                        {}, ids_vocabulary(10));
  ASSERT_TRUE(late.ok()) << late.error().message;
  EXPECT_EQ(late->conversations[1].at_s, 0.25);
  const auto slow = trace_conversations(line_at("0") + line_at("86400000"), "f", {.speed = 1e-3},
                                        ids_vocabulary(10));
  EXPECT_FALSE(slow.ok()) << "a day a thousand times slower";
}

TEST(Trace, WhatGoesBackIsCountedAndSaid) {
  const auto made = trace_conversations(line_at("5") + line_at("3") + line_at("4") + line_at("5"),
                                        "f", {}, ids_vocabulary(10));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->went_back, 2);
  EXPECT_EQ(trace_note("f", *made),
            "f: 2 of its 4 requests came before one that stands above them; all are taken in the "
            "order of their times");
  const auto rising = trace_conversations(line_at("3") + line_at("3"), "f", {}, ids_vocabulary(10));
  EXPECT_EQ(trace_note("f", *rising), "");
}

// As a gateway's request log has them: what had no answer is counted and said.
TEST(Trace, WhatHadNoAnswerIsCountedAndSaid) {
  const auto line = [](int input, int output, const char* outcome) {
    return fmt::format(R"({{"timestamp":1,"input_length":{},"output_length":{},"outcome":"{}"}})"
                       "\n",
                       input, output, outcome);
  };
  const auto made = trace_conversations(
      line(5, 2, "ok") + line(5, 0, "left") + line(5, 3, "error") + line(0, 2, "ok"), "f", {},
      ids_vocabulary(10));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->unanswered, 3);
  EXPECT_EQ(trace_note("f", *made),
            "f: 3 of its 4 requests had no answer (an outcome that is not ok, or no tokens); they "
            "are asked, and played as answered, with a token at least");
}

TEST(Trace, IsBoundedInRequests) {
  std::string text;
  for (int i = 0; i < 6; ++i) text += line_at("1");
  const TraceOptions options{.requests_max = 5};
  const auto made = trace_conversations(text + "no request", "f", options, ids_vocabulary(10));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "f:6: more than 5 requests; --num-prompts takes the first ones");
  TraceOptions first = options;
  first.count = 5;
  EXPECT_TRUE(trace_conversations(text, "f", first, ids_vocabulary(10)).ok());
  const std::string long_line = line_at("1").substr(0, 16) + std::string(17 << 20, ' ') + "}";
  EXPECT_NE(
      trace_conversations(long_line, "f", {}, ids_vocabulary(10)).error().message.find("bytes"),
      std::string::npos);
}

// Ids that no token of the prompt is left for take no memory, and change nothing.
TEST(Trace, BlocksBehindThePromptAreNothing) {
  const auto of = [](const std::string& ids) {
    return trace_conversations(
        R"({"timestamp":1,"input_length":600,"output_length":1,"hash_ids":[)" + ids + "]}", "f", {},
        ids_vocabulary(100));
  };
  EXPECT_EQ(of("1,2,3,4").value().conversations[0].turns[0].ids,
            of("1,2").value().conversations[0].turns[0].ids);
  EXPECT_FALSE(of("1,2,3,\"x\"").ok());
}

TEST(OfferedLoad, A13_EachTurnIsARequestWithAllThatWasSaid) {
  WorkloadSpec spec;
  spec.lengths = {.input_tokens = 200, .output_tokens = 100};
  spec.turns = {.count = 4, .think_s = 1};
  spec.count = 40;
  spec.arrivals.rate = 5;
  const OfferedLoad load = offered_load(*make_workload(spec, ids_vocabulary(100)));
  EXPECT_NEAR(load.requests_per_s, 20, 1e-6);
  EXPECT_DOUBLE_EQ(load.repeated_tokens, (0 + 300 + 600 + 900) / 4.0);
  EXPECT_DOUBLE_EQ(load.prompt_tokens, 200 + load.repeated_tokens);
  EXPECT_DOUBLE_EQ(load.output_tokens, 100);
}

TEST(OfferedLoad, TheRateIsThatOfTheArrivals) {
  WorkloadSpec spec;
  spec.arrivals.rate = std::numeric_limits<double>::infinity();
  EXPECT_EQ(offered_load(*make_workload(spec, ids_vocabulary(100))).requests_per_s, 0);
  spec.arrivals.ramp = Ramp{.start_rps = 10, .end_rps = 30};
  spec.count = 5000;
  EXPECT_NEAR(offered_load(*make_workload(spec, ids_vocabulary(100))).requests_per_s, 20, 3);
  Workload trace;
  for (const double at_s : {0.0, 1.0, 2.0}) {
    trace.conversations.push_back({.turns = {{.prompt_tokens = 10, .output_tokens = 0}}});
    trace.at_s.push_back(at_s);
  }
  EXPECT_DOUBLE_EQ(offered_load(trace).requests_per_s, 1);
  EXPECT_DOUBLE_EQ(offered_load(trace).output_tokens, kOutputTokensOtherwise);
  EXPECT_EQ(offered_load({}).requests_per_s, 0);
}

}  // namespace
}  // namespace pelton::workload
