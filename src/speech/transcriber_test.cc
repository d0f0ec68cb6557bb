// A scripted recogniser: a second of sound is a window, whose text is its first sample.
#include "speech/transcriber.h"

#include <future>

#include <gtest/gtest.h>

#include "base/clock.h"

namespace pelton::speech {
namespace {

using namespace std::chrono_literals;

class Seconds final : public Recognition {
 public:
  Seconds(std::vector<float> samples, std::atomic<int>& gate)
      : samples_(std::move(samples)), gate_(gate) {
    transcript_.seconds = static_cast<double>(samples_.size()) / 16'000.0;
  }
  Result<bool> step(const std::function<bool()>& go_on) override {
    while (gate_.load() == 0) {
      if (!go_on()) return Error{ErrorCode::kCancelled, "stopped"};
      std::this_thread::sleep_for(1ms);
    }
    if (at_ >= samples_.size()) return false;
    Segment segment;
    segment.begin_s = static_cast<double>(at_) / 16'000.0;
    segment.end_s = segment.begin_s + 1.0;
    segment.text = " " + std::to_string(static_cast<int>(samples_[at_]));
    transcript_.segments.push_back(segment);
    at_ += 16'000;
    return at_ < samples_.size();
  }
  const Transcript& transcript() const override { return transcript_; }

 private:
  const std::vector<float> samples_;
  std::atomic<int>& gate_;
  size_t at_ = 0;
  Transcript transcript_;
};

class Scripted final : public Recogniser {
 public:
  Result<void> check(const Task& task) const override {
    if (task.language == "xx") return Error{ErrorCode::kInvalidArgument, "no such", "language"};
    return {};
  }
  Result<std::unique_ptr<Recognition>> begin(std::vector<float> samples, const Task&,
                                             const std::function<bool()>&) const override {
    return std::unique_ptr<Recognition>(std::make_unique<Seconds>(std::move(samples), gate));
  }
  std::vector<Result<bool>> step_all(std::span<const Turn> turns) const override {
    batch = static_cast<int>(turns.size());
    std::vector<Result<bool>> results;
    for (const Turn& turn : turns) results.push_back(turn.recognition->step(turn.go_on));
    return results;
  }
  Result<LiveText> hear(LiveWindow window, const std::function<bool()>& go_on) const override {
    ++live;
    while (gate.load() == 0) {
      if (!go_on()) return Error{ErrorCode::kCancelled, "stopped"};
      std::this_thread::sleep_for(1ms);
    }
    return LiveText{.tokens = {static_cast<TokenId>(window.samples.at(0))}, .language = "en"};
  }
  std::string text_of(std::span<const TokenId> tokens) const override {
    return tokens.empty() ? "" : std::to_string(tokens[0]);
  }
  mutable std::atomic<int> gate = 1;   // 0: nobody is heard
  mutable std::atomic<int> batch = 0;  // how many were heard last at once
  mutable std::atomic<int> live = 0;   // windows of what is still being said that were begun
};

// "5:3": three seconds of 5; "bad": no sound.
Result<std::vector<float>> read(const std::string& file, const std::function<bool()>&) {
  if (file == "bad") return Error{ErrorCode::kInvalidArgument, "is no sound", "file"};
  const float value = std::stof(file.substr(0, file.find(':')));
  return std::vector<float>(16'000 * std::stoul(file.substr(file.find(':') + 1)), value);
}

struct Asked {
  std::shared_ptr<Transcriber::Ticket> ticket;
  std::future<Result<Transcript>> end;
};
Asked ask(Transcriber& transcriber, std::string file, std::optional<int64_t> deadline_ns = {}) {
  const auto promise = std::make_shared<std::promise<Result<Transcript>>>();
  Asked asked{.ticket = nullptr, .end = promise->get_future()};
  auto ticket = transcriber.submit({.file = std::move(file),
                                    .task = {},
                                    .deadline_ns = deadline_ns,
                                    .on_segments = {},
                                    .on_end = [promise](Result<Transcript> outcome) {
                                      promise->set_value(std::move(outcome));
                                    }});
  if (!ticket.ok()) {
    promise->set_value(ticket.error());
  } else {
    asked.ticket = *ticket;
  }
  return asked;
}

bool comes_true(const std::function<bool()>& is) {
  for (int i = 0; i < 20'000; ++i) {
    if (is()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}
bool comes_to(const Transcriber& transcriber,
              const std::function<bool(const Transcriber::Stats&)>& is) {
  return comes_true([&] { return is(transcriber.stats()); });
}

TEST(Transcriber, FilesAreHeardInTurns) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({}, model, read, clock);
  Asked first = ask(transcriber, "1:50");
  Asked second = ask(transcriber, "2:1");
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.running == 2; }));
  model.gate = 1;
  ASSERT_EQ(second.end.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(plain_text(second.end.get().value()), "2");
  ASSERT_EQ(first.end.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(first.end.get()->segments.size(), 50u);
  const Transcriber::Stats stats = transcriber.stats();
  EXPECT_EQ(stats.ended[static_cast<size_t>(Transcriber::End::kDone)], 2);
  EXPECT_EQ(stats.audio_seconds, 51.0);
  EXPECT_EQ(stats.windows, 51);
}

TEST(Transcriber, AFullQueueRefuses) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({.waiting_max = 2, .heard_max = 1}, model, read, clock);
  Asked first = ask(transcriber, "1:1");
  Asked second = ask(transcriber, "2:1");
  Asked third = ask(transcriber, "3:1");
  ASSERT_EQ(third.end.wait_for(0s), std::future_status::ready);
  EXPECT_EQ(third.end.get().error().code, ErrorCode::kOverloaded);
  // Who leaves makes room.
  second.ticket.reset();
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) {
    return stats.ended[static_cast<size_t>(Transcriber::End::kCancelled)] == 1;
  }));
  Asked fourth = ask(transcriber, "4:1");
  model.gate = 1;
  EXPECT_EQ(plain_text(fourth.end.get().value()), "4");
  EXPECT_EQ(plain_text(first.end.get().value()), "1");
  // The promise goes with the job, unkept.
  ASSERT_EQ(second.end.wait_for(10s), std::future_status::ready);
  EXPECT_THROW(static_cast<void>(second.end.get()), std::future_error);
}

// Who has its text has left its place, though the thread that heard it is still at it.
TEST(Transcriber, AnAnswerLeavesItsPlaceFirst) {
  const base::SystemClock clock;
  const Scripted model;
  Transcriber transcriber({.waiting_max = 1, .waiting_per_account_max = 1}, model, read, clock);
  for (const std::string file : {"1:1", "bad"}) {
    std::promise<Result<std::shared_ptr<Transcriber::Ticket>>> next;
    int abandoned = -1;
    const auto ticket = transcriber.submit(
        {.file = file, .account = "a", .task = {}, .on_end = [&](const Result<Transcript>&) {
           EXPECT_EQ(transcriber.stats().running + transcriber.stats().waiting, 0);
           abandoned = transcriber.abandon({ErrorCode::kUnavailable, "gone", ""});
           next.set_value(transcriber.submit({.file = "2:1", .account = "a", .task = {}}));
         }});
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    EXPECT_TRUE(next.get_future().get().ok());
    EXPECT_EQ(abandoned, 0);
    transcriber.drain(10'000);
    EXPECT_EQ(transcriber.stats().waiting, 0);
  }
}

TEST(Transcriber, DeadlinesAndUnloadsEndWhatRuns) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  auto transcriber =
      std::make_unique<Transcriber>(Transcriber::Options{.heard_max = 1}, model, read, clock);
  Asked heard = ask(*transcriber, "1:1", clock.now_ns() + 20'000'000);
  Asked waits = ask(*transcriber, "2:1", clock.now_ns() + 20'000'000);
  EXPECT_EQ(heard.end.get().error().code, ErrorCode::kDeadline);
  EXPECT_EQ(waits.end.get().error().code, ErrorCode::kDeadline);
  Asked long_one = ask(*transcriber, "3:1");
  ASSERT_TRUE(comes_to(*transcriber, [](const auto& stats) { return stats.running == 1; }));
  EXPECT_EQ(transcriber->abandon({ErrorCode::kUnavailable, "gone", ""}), 1);
  EXPECT_EQ(long_one.end.get().error().message, "gone");
  Asked last = ask(*transcriber, "4:1");
  transcriber.reset();
  EXPECT_EQ(last.end.get().error().code, ErrorCode::kUnavailable);
}

TEST(Transcriber, WhatIsNoSoundIsSaid) {
  const base::SystemClock clock;
  const Scripted model;
  Transcriber transcriber({}, model, read, clock);
  EXPECT_EQ(ask(transcriber, "bad").end.get().error().field, "file");
  EXPECT_EQ(transcriber.submit({.file = "1:1", .task = {.language = "xx"}}).error().field,
            "language");
}

TEST(Transcriber, ATaskFollowsSoManyTexts) {
  const base::SystemClock clock;
  const Scripted model;
  Transcriber transcriber({.beams_max = 3}, model, read, clock);
  Task task;
  task.search.beam_size = task.search.best_of = 3;
  EXPECT_TRUE(transcriber.check(task).ok());
  task.search.best_of = 4;
  EXPECT_EQ(transcriber.check(task).error().field, "best_of");
  task.search.beam_size = 5;
  EXPECT_EQ(transcriber.submit({.file = "1:1", .task = task}).error().field, "beam_size");
}

TEST(Transcriber, LongRecordingsWaitForRoom) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({.heard_seconds_max = 10.0}, model, read, clock);
  Asked first = ask(transcriber, "1:8");
  Asked second = ask(transcriber, "2:8");
  ASSERT_TRUE(comes_to(transcriber,
                       [](const auto& stats) { return stats.running == 1 && stats.waiting == 1; }));
  // A short one passes it.
  Asked third = ask(transcriber, "3:1");
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.running == 2; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(transcriber.stats().running, 2);
  model.gate = 1;
  EXPECT_EQ(plain_text(third.end.get().value()), "3");
  EXPECT_EQ(second.end.get()->segments.size(), 8u);
  EXPECT_EQ(first.end.get()->segments.size(), 8u);
}

// Both readers are held up: who waits behind them still leaves, and is refused in time.
TEST(Transcriber, SlowFilesKeepNobodyWhoLeaves) {
  const base::SystemClock clock;
  const Scripted model;
  std::atomic<bool> is_slow = true;
  Transcriber transcriber(
      {.waiting_max = 4}, model,
      [&](const std::string& file,
          const std::function<bool()>& go_on) -> Result<std::vector<float>> {
        while (is_slow && go_on()) std::this_thread::sleep_for(1ms);
        return read(file, go_on);
      },
      clock);
  Asked first = ask(transcriber, "1:1");
  Asked second = ask(transcriber, "2:1");
  Asked third = ask(transcriber, "3:1", clock.now_ns() + 10'000'000);
  Asked fourth = ask(transcriber, "4:1");
  ASSERT_EQ(third.end.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(third.end.get().error().code, ErrorCode::kDeadline);
  fourth.ticket.reset();
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.waiting == 2; }));
  is_slow = false;
  EXPECT_EQ(plain_text(first.end.get().value()), "1");
  EXPECT_EQ(plain_text(second.end.get().value()), "2");
}

TEST(Transcriber, AnAccountHasSoManyPlaces) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({.waiting_per_account_max = 2}, model, read, clock);
  std::vector<std::shared_ptr<Transcriber::Ticket>> held;
  const auto code = [&](const std::string& account) {
    auto ticket = transcriber.submit({.file = "1:1", .account = account, .task = {}});
    if (!ticket.ok()) return ticket.error().code;
    held.push_back(*ticket);
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code("a"), ErrorCode::kInternal);
  EXPECT_EQ(code("a"), ErrorCode::kInternal);
  EXPECT_EQ(code("a"), ErrorCode::kOverloaded);
  EXPECT_EQ(code("b"), ErrorCode::kInternal);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(code(""), ErrorCode::kInternal);
}

TEST(Transcriber, SeveralFilesAreHeardInABatch) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({.batch_max = 2}, model, read, clock);
  Asked first = ask(transcriber, "1:3");
  ASSERT_TRUE(comes_true([&] { return model.batch == 1; }));  // alone in its batch
  Asked second = ask(transcriber, "2:30");
  Asked third = ask(transcriber, "3:1");
  Asked fourth = ask(transcriber, "4:30");
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.running == 4; }));
  third.ticket.reset();  // it leaves amid the others
  model.gate = 1;
  EXPECT_EQ(plain_text(first.end.get().value()), "1 1 1");
  EXPECT_EQ(second.end.get()->segments.size(), 30U);
  EXPECT_EQ(fourth.end.get()->segments.size(), 30U);
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.running == 0; }));
  const Transcriber::Stats stats = transcriber.stats();
  EXPECT_EQ(stats.ended[static_cast<size_t>(Transcriber::End::kDone)], 3);
  EXPECT_EQ(stats.ended[static_cast<size_t>(Transcriber::End::kCancelled)], 1);
  EXPECT_EQ(stats.windows, 63);
  EXPECT_EQ(stats.audio_seconds, 63.0);
}

TEST(Transcriber, ABatchIsAsLargeAsItMayBe) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({.batch_max = 3}, model, read, clock);
  Asked blocker = ask(transcriber, "9:1");
  ASSERT_TRUE(comes_true([&] { return model.batch == 1; }));
  std::vector<Asked> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(ask(transcriber, std::to_string(i) + ":1"));
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.running == 4; }));
  model.gate = 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plain_text(asked[static_cast<size_t>(i)].end.get().value()), std::to_string(i));
  }
  EXPECT_EQ(model.batch, 3);
}

struct LivePlace {
  std::promise<Result<LiveText>> heard;
  std::promise<Error> abandoned;
  std::shared_ptr<Transcriber::Live> live;
};
void open(Transcriber& transcriber, LivePlace& place, const std::string& account = {}) {
  auto live = transcriber.open_live(
      {.account = account,
       .on_heard = [&](Result<LiveText> text) { place.heard.set_value(std::move(text)); },
       .on_abandoned = [&](const Error& error) { place.abandoned.set_value(error); }});
  ASSERT_TRUE(live.ok()) << live.error().message;
  place.live = *live;
}
LiveWindow second_of(float value) {
  LiveWindow window;
  window.samples.assign(16'000, value);
  window.is_last = true;
  return window;
}

TEST(Transcriber, LiveWindowsAreHeardBetweenThoseOfFiles) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  Transcriber transcriber({}, model, read, clock);
  Asked file = ask(transcriber, "1:200");
  ASSERT_TRUE(comes_to(transcriber, [](const auto& stats) { return stats.running == 1; }));
  LivePlace place;
  open(transcriber, place);
  EXPECT_EQ(transcriber.stats().live, 1);
  transcriber.hear_live(place.live, second_of(7));
  model.gate = 1;
  const Result<LiveText> heard = place.heard.get_future().get();
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(transcriber.text_of(heard->tokens), "7");
  EXPECT_EQ(file.end.get()->segments.size(), 200U);
  const Transcriber::Stats stats = transcriber.stats();
  EXPECT_EQ(stats.windows, 201);
  EXPECT_EQ(stats.audio_seconds, 201.0);
  place.live.reset();
  EXPECT_EQ(transcriber.stats().live, 0);
}

TEST(Transcriber, LivePlacesCountAmongFiles) {
  const base::SystemClock clock;
  const Scripted model;
  Transcriber transcriber({.waiting_max = 2, .waiting_per_account_max = 1}, model, read, clock);
  const auto refusal = [&](const std::string& account) {
    auto live = transcriber.open_live({.account = account, .on_heard = {}, .on_abandoned = {}});
    return live.ok() ? std::string() : live.error().message;
  };
  LivePlace first;
  LivePlace second;
  open(transcriber, first, "a");
  EXPECT_NE(refusal("a"), "");
  EXPECT_EQ(refusal("b"), "");
  open(transcriber, second, "b");
  EXPECT_NE(refusal(""), "");
  EXPECT_EQ(ask(transcriber, "1:1").end.get().error().code, ErrorCode::kOverloaded);
  second.live.reset();
  EXPECT_EQ(plain_text(ask(transcriber, "1:1").end.get().value()), "1");
}

TEST(Transcriber, LivePlacesEndWithTheModel) {
  const base::SystemClock clock;
  const Scripted model;
  model.gate = 0;
  auto transcriber = std::make_unique<Transcriber>(Transcriber::Options{}, model, read, clock);
  LivePlace left;
  open(*transcriber, left);
  transcriber->hear_live(left.live, second_of(1));
  ASSERT_TRUE(comes_true([&] { return model.live == 1; }));
  left.live.reset();  // its client has gone; the next one is heard all the same
  ASSERT_TRUE(comes_to(*transcriber, [](const auto& stats) { return stats.windows == 1; }));
  LivePlace place;
  open(*transcriber, place);
  transcriber->hear_live(place.live, second_of(2));
  EXPECT_EQ(transcriber->abandon({ErrorCode::kUnavailable, "gone", ""}), 1);
  EXPECT_EQ(place.abandoned.get_future().get().message, "gone");
  transcriber.reset();  // does not wait for the gate
}

TEST(Transcript, IsWrittenInEachForm) {
  Transcript made{.language = "de", .translates = false, .seconds = 3.5, .segments = {}};
  Segment one;
  one.begin_s = 0.0;
  one.end_s = 1.5;
  one.text = " Guten\n\nTag,";
  one.words = {{.text = " Guten", .begin_s = 0.0, .end_s = 0.5, .probability = 0.5}};
  Segment two = one;
  two.begin_s = 3601.25;
  two.end_s = 3602.0;
  two.text = " \"Welt\".";
  made.segments = {one, two};
  EXPECT_EQ(plain_text(made), "Guten\n\nTag, \"Welt\".");
  EXPECT_EQ(subrip(made),
            "1\n00:00:00,000 --> 00:00:01,500\nGuten\nTag,\n\n"
            "2\n01:00:01,250 --> 01:00:02,000\n\"Welt\".\n\n");
  EXPECT_TRUE(
      web_vtt(made).starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nGuten\nTag,\n\n"));
  Transcript marked = made;
  marked.segments.resize(1);
  marked.segments[0].text = " a --> b <i> & c";
  EXPECT_EQ(subrip(marked), "1\n00:00:00,000 --> 00:00:01,500\na -> b <i> & c\n\n");
  EXPECT_EQ(web_vtt(marked), "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\na -> b &lt;i> &amp; c\n\n");
  EXPECT_EQ(json(made),
            R"({"text":"Guten\n\nTag, \"Welt\".","usage":{"type":"duration","seconds":4}})");
  const std::string verbose = verbose_json(made, {.segments = false, .words = true});
  EXPECT_TRUE(verbose.starts_with(R"({"task":"transcribe","language":"german","duration":3.5,)"));
  EXPECT_NE(verbose.find(R"("words":[{"word":"Guten","start":0.0,"end":0.5})"), std::string::npos);
  EXPECT_EQ(verbose.find("segments"), std::string::npos);
}

TEST(Languages, HaveNamesAndCodes) {
  EXPECT_EQ(language_code("German"), "de");
  EXPECT_EQ(language_code("de"), "de");
  EXPECT_EQ(language_code("klingon"), "");
  EXPECT_EQ(language_name("yue"), "cantonese");
  EXPECT_EQ(language_name("l3"), "l3");
}

TEST(CompressionRatio, IsHighOfRepetitions) {
  std::string again;
  for (int i = 0; i < 40; ++i) again += "and then ";
  EXPECT_GT(compression_ratio(again), 2.4);
  EXPECT_LT(compression_ratio("Several words that are each another one."), 1.2);
  EXPECT_EQ(compression_ratio(""), 0.0);
}

}  // namespace
}  // namespace pelton::speech
