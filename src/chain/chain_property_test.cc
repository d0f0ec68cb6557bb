// Random graphs with random faults, answered in random order, give what a plain program gives that
// does one thing after the other.
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "chain/chain_run.h"

namespace pelton::chain {
namespace {

constexpr int kGraphs = 500;

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t bound) { return base::random_bits(seed_, count_++) % bound; }
  bool one_in(uint64_t count) { return below(count) == 0; }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

// What a call is answered with: a function of what is asked, which attempt it is, and the graph.
CallAnswer scripted(uint64_t seed, const StepCall& call, int64_t piece, int attempt) {
  using Fault = CallAnswer::Fault;
  const uint64_t where = base::fnv1a64(fmt::format("{}/{}/{}", call.step->name, piece, attempt));
  const uint64_t draw = base::random_bits(seed, where) % 200;
  const auto status = [](int code, std::string body) {
    return CallAnswer{.fault = Fault::kNone, .status = code, .body = std::move(body), .detail = {}};
  };
  if (draw < 8) return status(503, R"({"error":{"message":"busy"}})");
  if (draw < 12) return status(429, "");
  if (draw < 16) return {.fault = Fault::kTimeout, .status = 0, .body = {}, .detail = {}};
  if (draw < 20) return {.fault = Fault::kUnreachable, .status = 0, .body = {}, .detail = "gone"};
  if (draw < 21) return status(400, R"({"error":"no"})");
  if (draw < 22) return status(200, "<html>");
  const uint64_t hash = base::fnv1a64(call.body) % 100'000;
  return status(200, streamed_body(Endpoint::kChat, fmt::format("t{}.", hash), "stop", Json()));
}

// A random graph as the text of a file.
class RandomChain {
 public:
  explicit RandomChain(Draws& draws) : draws_(draws) {}

  std::string text() {
    const uint64_t count = 1 + draws_.below(8);
    std::vector<std::string> steps;
    for (uint64_t i = 0; i < count; ++i) steps.push_back(step(fmt::format("s{}", i)));
    // Every step is read by the output, in the file's order or not.
    std::string output;
    for (uint64_t i = 0; i < count; ++i) {
      output += fmt::format("{}s{} = \"${{s{}}}\"", i == 0 ? "" : ", ", i, i);
    }
    for (size_t i = steps.size(); i > 1; --i) std::swap(steps[i - 1], steps[draws_.below(i)]);
    std::string text = "name = \"c\"\ninput = {texts = \"[string]\", n = \"integer\"}\noutput = {" +
                       output + "}\n";
    for (const std::string& one : steps) text += one;
    return text;
  }

 private:
  std::string any(const std::vector<std::string>& of) { return of[draws_.below(of.size())]; }

  std::string retry() {
    if (draws_.one_in(3)) return "";
    constexpr const char* kOn[] = {R"(["5xx"])", R"(["429", "timeout"])",
                                   R"(["5xx", "429", "timeout", "unreachable"])"};
    return fmt::format("retry = {{max = {}, wait_s = 0.{}, on = {}}}\n", 1 + draws_.below(3),
                       draws_.below(10), kOn[draws_.below(3)]);
  }

  std::string step(const std::string& name) {
    const bool pieces = draws_.one_in(3);
    const bool asks = !draws_.one_in(3);
    const std::string prompt =
        fmt::format("{}{} {}", pieces ? "${index} ${item} " : "", any(texts_), any(texts_));
    std::string out = fmt::format("[[step]]\nname = \"{}\"\n", name);
    if (pieces) {
      out += fmt::format("for_each = \"{}\"\nparallel = {}\n", any(lists_), 1 + draws_.below(4));
    }
    const bool perhaps = !pieces && draws_.one_in(4);
    if (perhaps) {
      out += fmt::format("when = \"${{length({}) > {}}}\"\n",
                         lengths_[draws_.below(lengths_.size())], draws_.below(20));
    }
    if (!asks && !pieces && draws_.one_in(2)) {
      out += fmt::format("use = \"builtin:split\"\nwith = {{text = \"{}\", size = {}}}\n", prompt,
                         1 + draws_.below(12));
      if (!perhaps) lists_.push_back(fmt::format("${{{}.pieces}}", name));
      return out;
    }
    if (!asks && !pieces) {
      out += fmt::format("use = \"builtin:join\"\nwith = {{parts = \"{}\", separator = \"-\"}}\n",
                         any(lists_));
    } else if (asks) {
      out +=
          "use = \"model:m\"\n" + retry() +
          fmt::format("timeout_s = {}\nwith = {{prompt = \"{}\"}}\n", 1 + draws_.below(5), prompt);
    } else {
      out += fmt::format("use = \"builtin:template\"\nwith = {{text = \"{}\"}}\n", prompt);
    }
    if (pieces) {
      lists_.push_back(fmt::format("${{{}[*].text}}", name));
      lengths_.push_back(name);
    } else {
      texts_.push_back(fmt::format("${{{}.text ?? 'none'}}", name));
      lengths_.push_back(fmt::format("{}.text", name));
    }
    return out;
  }

  Draws& draws_;
  std::vector<std::string> texts_ = {"${input.n}", "word", "${input.texts[0]}"};
  std::vector<std::string> lists_ = {"${input.texts}"};
  std::vector<std::string> lengths_ = {"input.texts"};
};

// One thing after the other; which steps fail, and the output if none does.
class PlainProgram {
 public:
  PlainProgram(const Chain& chain, const Json& input, uint64_t seed)
      : chain_(chain), input_(input), seed_(seed) {}

  std::optional<Json> run() {
    std::set<std::string> missing;  // those without a value
    for (const Step& step : chain_.steps) {
      bool reached = true;
      for (const size_t need : step.needs) {
        reached = reached && !missing.contains(chain_.steps[need].name);
      }
      const std::optional<Json> value = reached ? value_of(step) : std::nullopt;
      if (value) {
        values_.emplace(step.name, *value);
        continue;
      }
      missing.insert(step.name);
      if (reached) failed.insert(step.name);
    }
    if (!missing.empty()) return std::nullopt;
    RenderBudget budget{.bytes_left = 1 << 30};
    return *render(chain_.output, names(nullptr, nullptr), budget);
  }

  std::set<std::string> failed;

 private:
  ValueOf names(const Json* item, const Json* index) const {
    return [this, item, index](std::string_view name) -> const Json* {
      if (name == "input") return &input_;
      if (name == "item") return item;
      if (name == "index") return index;
      return &values_.find(std::string(name))->second;
    };
  }

  std::optional<Json> value_of(const Step& step) {
    if (step.when) {
      const Json holds = evaluate(step.when->expression, names(nullptr, nullptr))->take();
      if (!holds.as_bool()) return Json();
    }
    if (!step.for_each) return piece_value(step, -1, nullptr);
    const Json items = evaluate(step.for_each->expression, names(nullptr, nullptr))->take();
    Json::Array results;
    for (const Json& item : items.as_array()) {
      const std::optional<Json> value = piece_value(step, std::ssize(results), &item);
      if (!value) return std::nullopt;
      results.push_back(*value);
    }
    return Json(std::move(results));
  }

  std::optional<Json> piece_value(const Step& step, int64_t piece, const Json* item) {
    const Json index(piece);
    RenderBudget budget{.bytes_left = 1 << 30};
    const Json arguments = *render(step.with, names(item, &index), budget);
    if (step.builtin != nullptr) return *step.builtin->function(arguments);
    StepCall call = *make_call(step, arguments, "");
    for (int attempt = 0; attempt <= step.retry.most; ++attempt) {
      const CallAnswer answer = scripted(seed_, call, piece, attempt);
      using Fault = CallAnswer::Fault;
      const bool again = answer.fault == Fault::kTimeout       ? step.retry.timeout
                         : answer.fault == Fault::kUnreachable ? step.retry.unreachable
                         : answer.status == 429                ? step.retry.busy
                         : answer.status >= 500                ? step.retry.server_error
                                                               : false;
      if (answer.fault == Fault::kNone && answer.status == 200) {
        Result<Json> value = answer_value(step, answer);
        return value.ok() ? std::optional(*std::move(value)) : std::nullopt;
      }
      if (!again) return std::nullopt;
    }
    return std::nullopt;
  }

  const Chain& chain_;
  const Json& input_;
  const uint64_t seed_;
  std::map<std::string, Json> values_;
};

// Answers in random order, at random times; what has no answer in time is not answered.
void drive(ChainRun& run, uint64_t seed, Draws& draws) {
  int64_t now = 0;
  std::vector<StepCall> running;
  for (int turn = 0; !run.over(); ++turn) {
    ASSERT_LT(turn, 100'000) << "the run does not end";
    run.hold_back(draws.one_in(8));
    const ChainRun::Work work = run.advance(now);
    run.hold_back(false);
    for (const uint64_t ended : work.ended) {
      std::erase_if(running, [&](const StepCall& call) { return call.id == ended; });
    }
    for (const StepCall& call : work.calls) running.push_back(call);
    std::map<std::string, int> at_once;
    for (const StepCall& call : running) {
      ASSERT_LE(++at_once[call.step->name], call.step->parallel);
    }
    if (run.over()) return;
    std::vector<size_t> answerable;
    for (size_t i = 0; i < running.size(); ++i) {
      const CallAnswer answer = scripted(seed, running[i], running[i].piece, running[i].attempt);
      if (answer.fault != CallAnswer::Fault::kTimeout) answerable.push_back(i);
    }
    const std::optional<int64_t> wake = run.wake_ns();
    if (!answerable.empty() && !draws.one_in(6)) {
      const size_t chosen = answerable[draws.below(answerable.size())];
      const StepCall call = running[chosen];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(chosen));
      run.on_answer(call.id, scripted(seed, call, call.piece, call.attempt), now);
      continue;
    }
    // Time goes on, but not past the answers that come in time.
    if (answerable.empty() && wake) now = std::max(now, *wake);
  }
}

uint64_t first_seed() {
  const char* const given = std::getenv("PELTON_SEED");
  return given != nullptr ? std::stoull(given) : std::random_device()();
}

TEST(ChainProperty, ARunGivesWhatAPlainProgramGives) {
  const uint64_t first = first_seed();
  int failures = 0;
  int outputs = 0;
  for (int graph = 0; graph < kGraphs; ++graph) {
    const uint64_t seed = first + static_cast<uint64_t>(graph);
    Draws draws(seed);
    const std::string text = RandomChain(draws).text();
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed) + "\n" + text);
    const Result<Chain> chain = parse_chain(text, "c.toml");
    ASSERT_TRUE(chain.ok()) << chain.error().message;
    const Json input = *Json::parse(R"({"texts":["one two. three","four","five. six"],"n":7})");
    PlainProgram plain(*chain, input, seed);
    const std::optional<Json> expected = plain.run();
    ChainRun run(*chain, input, {}, 0);
    drive(run, seed, draws);
    ASSERT_TRUE(run.over());
    if (expected) {
      ASSERT_FALSE(run.failure()) << run.failure()->message;
      ASSERT_EQ(run.output().dump(), expected->dump());
      ++outputs;
    } else {
      ASSERT_TRUE(run.failure());
      ASSERT_TRUE(plain.failed.contains(run.failure()->step)) << run.failure()->message;
      ++failures;
    }
  }
  RecordProperty("first_seed", std::to_string(first));
  // Both happen often, or the test says little.
  EXPECT_GT(outputs, kGraphs / 10);
  EXPECT_GT(failures, kGraphs / 20);
}

}  // namespace
}  // namespace pelton::chain
