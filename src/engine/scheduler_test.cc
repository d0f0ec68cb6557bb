// Stories: text files in testdata/ that drive the scheduler and a modelled executor, and show what
// each step did. PELTON_RECORD=1 writes what happened into the files instead of comparing.
//
//   engine blocks=8 block_tokens=4 step_tokens=6 [window_blocks=8 window=1000 slots=4 context=1000
//          steps_in_flight=1 cache=0 decode_first=0 prompt_bound=N priority_tokens=N
//          weights=NAME:N,NAME:N host_blocks=N host_window_blocks=N
//          draft=N (guesses behind a row) acceptance=PERCENT (of guesses that are right)
//          groups=NAME:WINDOW:BLOCKS,... (other KV groups than full attention and one window)]
//   submit NAME prompt=N max_new=N [min_new=N priority=N deadline=N stop=TOKEN says=1,2,3
//          like=NAME shares=N (its first N tokens are those of NAME's prompt and answer)
//          salt=WORD pin=1 tenant=NAME start_by=N
//          answers=N (the second is called NAME.1)]
//   fail               the next step that is submitted fails
//   cancel NAME
//   clock N            the time that the next plans get
//   step [N]           plan and submit a step; then commit the oldest once enough are in flight
//   ----               what happened follows, up to an empty line
#include "engine/scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"
#include "engine/modelled_executor.h"
#include "engine/seat_tables.h"

namespace pelton::engine {
namespace {

using Words = std::map<std::string, std::string>;

int number(const Words& words, const std::string& key, int otherwise) {
  const auto found = words.find(key);
  return found == words.end() ? otherwise : std::stoi(found->second);
}

std::vector<TokenId> numbers(const Words& words, const std::string& key) {
  std::vector<TokenId> list;
  const auto found = words.find(key);
  if (found == words.end()) return list;
  std::istringstream text(found->second);
  for (std::string one; std::getline(text, one, ',');) list.push_back(std::stoi(one));
  return list;
}

std::vector<std::pair<std::string, double>> weights(const Words& words) {
  std::vector<std::pair<std::string, double>> weights;
  const auto found = words.find("weights");
  std::istringstream text(found == words.end() ? "" : found->second);
  for (std::string one; std::getline(text, one, ',');) {
    const size_t colon = one.find(':');
    weights.emplace_back(one.substr(0, colon), std::stod(one.substr(colon + 1)));
  }
  return weights;
}

kv::PerGroup<kv::GroupCapacity> groups_of(const Words& words) {
  const auto found = words.find("groups");
  if (found == words.end()) {
    return {{{.name = "full"}, {number(words, "blocks", 8), number(words, "host_blocks", 0)}},
            {{.name = "window", .sliding_window = number(words, "window", 200)},
             {number(words, "window_blocks", 64), number(words, "host_window_blocks", 64)}}};
  }
  kv::PerGroup<kv::GroupCapacity> groups;
  std::istringstream text(found->second);
  for (std::string one; std::getline(text, one, ',');) {
    const size_t window = one.find(':') + 1;
    const size_t blocks = one.find(':', window) + 1;
    groups.push_back({{.name = one.substr(0, window - 1),
                       .sliding_window = std::stoi(one.substr(window, blocks - window - 1))},
                      {std::stoi(one.substr(blocks))}});
  }
  return groups;
}

class Story {
 public:
  // Runs one line and returns what happened.
  std::string run(const std::string& line);

 private:
  // What the reader of the story knows of a sequence.
  struct Shown {
    std::string name;
    bool prefilling = true;
    SlotTables tables;
  };

  void build(const Words& words);
  std::string submit(const std::string& name, const Words& words);
  std::string step();
  std::string show_row(const StepPlan& plan, const ScheduledRow& row);
  std::string show_copies(const StepPlan& plan) const;
  std::string show_events();
  std::string show_end(const Shown& shown, const StreamEnd& end);
  static std::string show_blocks(const std::vector<BlockId>& before,
                                 const std::vector<BlockId>& after, const std::string& name);
  std::string show_returned(Shown& shown) const;
  std::string name_of(int group) const {
    const std::string& name = groups_[group].spec.name;
    return name == "full" ? "blocks" : name;
  }
  // The window is left out of most stories.
  bool shows(int group) const { return group == 0 || shows_window_; }

  int steps_in_flight_ = 1;
  std::vector<std::pair<std::string, double>> weights_;
  int in_flight_ = 0;
  int64_t now_ns_ = 0;
  kv::PerGroup<kv::GroupCapacity> groups_;
  bool shows_window_ = false;
  bool fails_ = false;
  std::map<uint64_t, std::vector<TokenId>> says_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ModelledExecutor> executor_;
  std::map<SequenceId, Shown> shown_;
  std::map<Slot, SequenceId> slots_;
  std::map<std::string, std::vector<TokenId>> texts_;  // by name: prompt and answer
};

std::string Story::run(const std::string& line) {
  std::istringstream text(line);
  std::string verb, name;
  text >> verb;
  Words words;
  for (std::string word; text >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      name = word;
    } else {
      words[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  if (verb == "engine") return build(words), "";
  if (verb == "submit") return submit(name, words);
  if (verb == "fail") return fails_ = true, "";
  if (verb == "clock") return now_ns_ = std::stoll(name), "";
  if (verb == "cancel") {
    for (const auto& [id, shown] : shown_) {
      if (shown.name == name) scheduler_->cancel(id);
    }
    return show_events();
  }
  if (verb == "step") {
    std::string happened;
    for (int i = 0; i < (name.empty() ? 1 : std::stoi(name)); ++i) happened += step();
    return happened;
  }
  return "unknown verb " + verb + "\n";
}

void Story::build(const Words& words) {
  ExecutorCapacity capacity;
  capacity.block_tokens = number(words, "block_tokens", 4);
  groups_ = capacity.groups = groups_of(words);
  capacity.sequences_max = number(words, "slots", 4);
  capacity.batch_tokens_max = number(words, "step_tokens", 6);
  capacity.context_tokens_max = number(words, "context", 1000);
  capacity.pooled_sequences_max = number(words, "pooled_slots", 0);
  capacity.embedding_size = capacity.pooled_sequences_max > 0 ? 2 : 0;
  capacity.draft_tokens_max = number(words, "draft", 0);
  capacity.draft_rows_max = capacity.draft_tokens_max * capacity.sequences_max;
  steps_in_flight_ = number(words, "steps_in_flight", 1);
  shows_window_ = words.count("window") + words.count("groups") > 0;
  Scheduler::Options options;
  options.prefix_cache = number(words, "cache", 0) != 0;
  if (number(words, "decode_first", 0) != 0) {
    options.policy.order = SchedulingPolicy::Order::kDecodeFirst;
    options.policy.decode_first_prompt_tokens = number(words, "decode_first", 0);
  }
  options.policy.prompt_tokens_beside_decodes_max = number(words, "prompt_bound", 0);
  options.policy.fairness.priority_tokens = number(words, "priority_tokens", 65'536);
  weights_ = weights(words);
  scheduler_ = std::make_unique<Scheduler>(capacity, options);
  executor_ = std::make_unique<ModelledExecutor>(ModelledExecutor::Options{
      .capacity = capacity,
      .next_token =
          [this](const ModelledExecutor::Seen& seen) {
            const std::vector<TokenId>& says = says_[seen.sampling.seed];
            const size_t line = seen.tokens.size() - static_cast<size_t>(seen.prompt_count);
            const TokenId token = line < says.size() ? says[line] : 1;
            const bool banned =
                std::find(seen.banned.begin(), seen.banned.end(), token) != seen.banned.end();
            return banned ? token + 1 : token;
          },
      .fail_step = [this](const StepPlan&) -> std::optional<Error> {
        if (!std::exchange(fails_, false)) return std::nullopt;
        return Error{ErrorCode::kInternal, "the story says so"};
      },
      .draft_acceptance = 0.01 * number(words, "acceptance", 0),
      .draft_seed = 1});
}

std::string Story::submit(const std::string& name, const Words& words) {
  request::GenerationRequest request;
  request.id = name;
  for (int i = 0; i < number(words, "prompt", 1); ++i) {
    request.prompt.push_back(1000 * (1 + static_cast<int>(says_.size())) + i);
  }
  if (words.count("like")) {
    const std::vector<TokenId>& other = texts_.at(words.at("like"));
    const size_t shared = static_cast<size_t>(number(words, "shares", 0));
    CHECK(shared <= other.size() && shared <= request.prompt.size(), "a story shares too much");
    std::copy_n(other.begin(), shared, request.prompt.begin());
  }
  if (words.count("salt")) request.cache_salt = words.at("salt");
  if (words.count("tenant")) request.tenant = words.at("tenant");
  for (const auto& [tenant, weight] : weights_) {
    if (tenant == request.tenant) request.weight = weight;
  }
  request.pin_prefix = number(words, "pin", 0) != 0;
  request.stop.max_new_tokens = number(words, "max_new", 1);
  request.stop.min_new_tokens = number(words, "min_new", 0);
  request.stop.stop_tokens = numbers(words, "stop");
  request.priority = number(words, "priority", 0);
  if (words.count("deadline")) request.deadline_ns = number(words, "deadline", 0);
  if (words.count("start_by")) request.start_by_ns = number(words, "start_by", 0);
  request.sampling.seed = says_.size();
  request.sampling.presence_penalty = 0.5f;  // so that the executor compares histories
  if (words.count("embed")) {
    request.pooling =
        words.at("embed") == "mean" ? request::Pooling::kMean : request::Pooling::kLast;
  }
  const int answers = number(words, "answers", 1);
  for (int i = 0; i < answers; ++i) {
    says_[request.sampling.seed + static_cast<uint64_t>(i)] = numbers(words, "says");
  }
  const Result<std::vector<SequenceId>> ids = scheduler_->submit_answers(request, answers);
  if (!ids.ok()) {
    return fmt::format("{} refused, {}: {}\n", name, error_code_name(ids.error().code),
                       ids.error().message);
  }
  for (size_t i = 0; i < ids->size(); ++i) {
    const std::string one = i == 0 ? name : fmt::format("{}.{}", name, i);
    shown_[(*ids)[i]].name = one;
    texts_[one] = request.prompt;
  }
  return "";
}

std::string Story::step() {
  StepPlan plan = scheduler_->plan(now_ns_);
  std::string happened = show_events();
  const bool submitted = !plan.empty();
  if (submitted) {
    happened += show_copies(plan);
    if (fails_) happened += "the step fails\n";
    for (const ScheduledRow& row : plan.sequences) happened += show_row(plan, row);
    executor_->submit(std::move(plan));
    ++in_flight_;
  }
  if (in_flight_ == steps_in_flight_ || (in_flight_ > 0 && !submitted)) {
    scheduler_->commit(executor_->collect());
    --in_flight_;
  }
  scheduler_->check_integrity();
  happened += show_events();
  return happened.empty() ? "nothing\n" : happened;
}

std::string Story::show_row(const StepPlan& plan, const ScheduledRow& row) {
  Shown& shown = shown_[slots_.at(row.slot)];
  const int32_t end = row.start + row.token_count();
  std::string text = fmt::format("{} ", shown.name);
  if (row.tokens.count == 0) {
    text += fmt::format("decode {} of the step before", row.start);
  } else if (row.token_count() == 1 && !shown.prefilling) {
    text += fmt::format("decode {}", row.start);
  } else {
    text += fmt::format("prefill [{},{})", row.start, end);
  }
  if (row.arrival != kNoArrival && row.start > 0) text += fmt::format("  found [0,{})", row.start);
  shown.prefilling = !row.sample;
  const SlotTables before = shown.tables;
  shown.tables.follow(plan, row);
  for (int group = 0; group < groups_.size(); ++group) {
    if (!shows(group)) continue;
    text += show_blocks(before.of(group), shown.tables.of(group), name_of(group));
  }
  if (row.banned.count > 0) {
    text += fmt::format("  banned {}", fmt::join(row.banned.of(plan.banned), " "));
  }
  if (row.embed) text += "  -> embedding";
  if (row.draft_max > 0) text += fmt::format("  and {} guesses", row.draft_max);
  return text + (row.sample ? "  -> token\n" : "\n");
}

std::string Story::show_copies(const StepPlan& plan) const {
  std::map<std::string, std::string> copies;
  for (const BlockCopy& copy : plan.copies) {
    if (!shows(copy.group)) continue;
    std::string way = copy.from_tier == copy.to_tier ? "here"
                      : copy.to_tier == kv::kHost    ? "to the host"
                                                     : "from the host";
    way += ", " + name_of(copy.group);
    copies[way] += fmt::format(" {}>{}", copy.from, copy.to);
  }
  std::string text;
  for (const auto& [way, blocks] : copies) text += fmt::format("copied {}{}\n", way, blocks);
  return text;
}

// The entries of `after` that are new, and those of `before` that are gone.
std::string Story::show_blocks(const std::vector<BlockId>& before,
                               const std::vector<BlockId>& after, const std::string& name) {
  std::string taken, gone;
  for (size_t i = 0; i < after.size(); ++i) {
    if (i >= before.size() && after[i] != kNoBlock) taken += fmt::format(" {}", after[i]);
    if (i < before.size() && before[i] != after[i]) gone += fmt::format(" {}", before[i]);
  }
  std::string text;
  if (!taken.empty()) text += fmt::format("  {}{}", name, taken);
  if (!gone.empty()) text += fmt::format("  {} returned{}", name, gone);
  return text;
}

std::string Story::show_returned(Shown& shown) const {
  std::string text;
  for (const BlockId block : shown.tables.of(0)) {
    if (block != kNoBlock) text += fmt::format(" {}", block);
  }
  shown.tables = {};
  shown.prefilling = true;
  return text.empty() ? "" : fmt::format("  {} returned{}", name_of(0), text);
}

std::string Story::show_events() {
  std::string text;
  std::vector<Scheduler::Event> events;
  scheduler_->take_events(events);
  for (const Scheduler::Event& event : events) {
    Shown& shown = shown_[event.id];
    if (event.slot_allocation == Scheduler::Event::SlotAllocation::kScheduled)
      slots_[event.slot] = event.id;
    if (event.slot_allocation == Scheduler::Event::SlotAllocation::kPreempted) {
      text += fmt::format("{} preempted{}\n", shown.name, show_returned(shown));
    }
    if (event.slot_allocation == Scheduler::Event::SlotAllocation::kSwappedOut) {
      text += fmt::format("{} swapped out{}\n", shown.name, show_returned(shown));
    }
    if (event.token) texts_[shown.name].push_back(event.token->token);
    if (event.token && event.token->token != 1) {
      text += fmt::format("{} says {}\n", shown.name, event.token->token);
    }
    if (event.end) text += show_end(shown, *event.end) + show_returned(shown) + "\n";
  }
  return text;
}

std::string Story::show_end(const Shown& shown, const StreamEnd& end) {
  switch (end.reason) {
    case FinishReason::kStop:
      return fmt::format("{} finished, stop, {} tokens", shown.name, end.output_tokens);
    case FinishReason::kRepetition:
      return fmt::format("{} finished, repetition, {} tokens", shown.name, end.output_tokens);
    case FinishReason::kLength:
      return fmt::format("{} finished, length, {} tokens", shown.name, end.output_tokens);
    case FinishReason::kCancelled:
      return fmt::format("{} cancelled", shown.name);
    case FinishReason::kError:
      return fmt::format("{} failed, {}", shown.name, error_code_name(end.error->code));
    case FinishReason::kEmbedded:
      return fmt::format("{} embedded", shown.name);
  }
  return "";
}

// Replays the file's lines; what they tell stands under ---- and ends at an empty line.
std::string retell(const std::string& file) {
  Story story;
  std::string shown, happened;
  std::istringstream lines(file);
  bool in_telling = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "----") {
      shown += "----\n" + (happened.empty() ? "nothing\n" : happened) + "\n";
      happened.clear();
      in_telling = true;
    } else if (in_telling) {
      in_telling = !line.empty();
    } else {
      shown += line + "\n";
      if (!line.empty() && line[0] != '#') happened += story.run(line);
    }
  }
  return shown + happened;
}

class SchedulerStory : public testing::TestWithParam<std::string> {};

std::vector<std::string> story_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(PELTON_SOURCE_DIR "/src/engine/testdata")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Stories, SchedulerStory, testing::ValuesIn(story_names()),
                         [](const auto& info) { return info.param; });

TEST_P(SchedulerStory, goes_as_told) {
  const std::string path = PELTON_SOURCE_DIR "/src/engine/testdata/" + GetParam() + ".txt";
  const Result<std::string> file = base::read_file(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::string shown = retell(file.value());
  if (std::getenv("PELTON_RECORD") != nullptr) {
    ASSERT_TRUE(base::write_file(path, shown).ok());
  }
  EXPECT_EQ(shown, file.value());
}

}  // namespace
}  // namespace pelton::engine
