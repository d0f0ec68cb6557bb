// Beam search against a plain twin of openai/whisper's decoding.py, which computes every text from
// its beginning, over the golden model.
#include "models/whisper_beams.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "audio/log_mel.h"
#include "audio/wav_file.h"
#include "base/file.h"
#include "base/random.h"

namespace pelton::models {
namespace {

const std::string kFolder = PELTON_SOURCE_DIR "/testdata/golden/audio/whisper";

struct Scored {
  std::vector<TokenId> tokens;  // with the end of text, where it has come
  double logprob = 0.0;
};

class WhisperBeams : public testing::Test {
 protected:
  void SetUp() override {
    kernels_ = kernels::make_kernels(kernels::KernelChoice::kReference, pool_).value();
    model_ = Whisper::load(kFolder, *kernels_).value();
    const std::string file = *base::read_file(kFolder + "/audio.wav");
    audio::Sound sound =
        audio::read_wav({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "a").value();
    sound.samples.resize(480'000);
    window_ = model_->window(model_->encode(audio::LogMel(80).of(sound.samples)));
  }

  WhisperTask task(const WhisperSearch& search, bool timestamps) const {
    return {.language = model_->config().start + 1,
            .timestamps = timestamps,
            .previous = {},
            .begun = {},
            .tokens_max = 14,
            .search = search};
  }

  std::vector<float> logprobs_of(const WhisperTask& task, std::span<const TokenId> tokens) {
    std::vector<TokenId> all = whisper_prompt(model_->config(), task);
    all.insert(all.end(), tokens.begin(), tokens.end());
    window_.rewind(0);
    const std::span<const float> rows = model_->step(window_, all);
    const auto row = rows.last(static_cast<size_t>(model_->config().vocab_size));
    std::vector<float> logprobs(row.begin(), row.end());
    to_logprobs(logprobs, tokens, model_->config(), {.timestamps = task.timestamps});
    return logprobs;
  }

  // BeamSearchDecoder.update: the texts of all beams and the tokens that may follow, each once.
  std::vector<Scored> candidates(const WhisperTask& task, const std::vector<Scored>& beams) {
    std::vector<Scored> scores;
    for (const Scored& beam : beams) {
      const std::vector<float> logprobs = logprobs_of(task, beam.tokens);
      std::vector<TokenId> ids(logprobs.size());
      std::iota(ids.begin(), ids.end(), 0);
      std::ranges::stable_sort(ids, std::ranges::greater{},
                               [&](TokenId id) { return logprobs[static_cast<size_t>(id)]; });
      for (int k = 0; k <= task.search.beam_size; ++k) {
        const TokenId id = ids[static_cast<size_t>(k)];
        const double logprob = logprobs[static_cast<size_t>(id)];
        if (std::isinf(logprob)) continue;
        Scored made{.tokens = beam.tokens, .logprob = beam.logprob + logprob};
        made.tokens.push_back(id);
        const auto same = std::ranges::find(scores, made.tokens, &Scored::tokens);
        if (same == scores.end()) {
          scores.push_back(made);
        } else {
          *same = made;
        }
      }
    }
    std::ranges::stable_sort(scores, std::ranges::greater{}, &Scored::logprob);
    return scores;
  }

  WhisperCandidate plain_search(const WhisperTask& task) {
    const auto beam_size = static_cast<size_t>(task.search.beam_size);
    const auto ended_max =
        static_cast<size_t>(std::lround(task.search.beam_size * task.search.patience));
    const TokenId end = model_->config().end_of_text;
    std::vector<Scored> beams(beam_size);  // all alike
    std::vector<Scored> ended;
    for (int n = 0; n < task.tokens_max && ended.size() < ended_max; ++n) {
      std::vector<Scored> next;
      for (const Scored& one : candidates(task, beams)) {
        if (one.tokens.back() != end) {
          next.push_back(one);
          if (next.size() == beam_size) break;
        } else if (ended.size() < ended_max) {
          ended.push_back(one);
        }
      }
      beams = next;
    }
    for (const Scored& beam : beams) {
      if (ended.size() < beam_size) ended.push_back(beam);
    }
    WhisperCandidate best;
    double highest = -1e30;
    for (const Scored& one : ended) {
      WhisperCandidate made{.tokens = one.tokens, .logprob = one.logprob};
      made.ended = !made.tokens.empty() && made.tokens.back() == end;
      if (made.ended) made.tokens.pop_back();
      const auto count = static_cast<double>(made.tokens.size());
      const double penalty = task.search.length_penalty
                                 ? std::pow((5 + count) / 6, *task.search.length_penalty)
                                 : std::max(count, 1.0);
      if (made.logprob / penalty <= highest) continue;
      highest = made.logprob / penalty;
      best = made;
    }
    return best;
  }

  WhisperText decode(const WhisperTask& task) {
    return decode_window(*model_, window_, task, [] { return true; });
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Whisper> model_;
  WhisperWindow window_;
};

TEST_F(WhisperBeams, TheyAreThoseOfThePlainTwin) {
  const WhisperText greedy = decode(task({}, true));
  int others = 0;
  for (const bool timestamps : {true, false}) {
    for (const WhisperSearch& search :
         {WhisperSearch{.beam_size = 2}, WhisperSearch{.beam_size = 3, .patience = 2.0},
          WhisperSearch{.beam_size = 5}, WhisperSearch{.beam_size = 5, .length_penalty = 0.0},
          WhisperSearch{.beam_size = 4, .length_penalty = 1.0}}) {
      const WhisperTask asked = task(search, timestamps);
      const WhisperText found = decode(asked);
      const WhisperCandidate exact = plain_search(asked);
      EXPECT_EQ(found.tokens, exact.tokens) << search.beam_size;
      EXPECT_EQ(found.ended, exact.ended);
      EXPECT_NEAR(found.average_logprob,
                  exact.logprob / static_cast<double>(exact.tokens.size() + 1), 1e-9);
      others += timestamps && found.tokens != greedy.tokens ? 1 : 0;
    }
  }
  EXPECT_GT(others, 0);  // or nothing has been searched
}

TEST_F(WhisperBeams, OneBeamIsGreedy) {
  WhisperTask asked = task({}, true);
  const WhisperText greedy = decode(asked);
  const std::vector<TokenId> prompt = whisper_prompt(model_->config(), asked);
  window_.rewind(0);
  const std::span<const float> rows = model_->step(window_, prompt);
  const std::vector<float> row(rows.end() - model_->config().vocab_size, rows.end());
  const WhisperCandidate found = follow_beams(*model_, window_, row, asked, [] { return true; });
  EXPECT_EQ(found.tokens, greedy.tokens);
}

TEST_F(WhisperBeams, WhatStandsIsTheBeginningOfEach) {
  WhisperTask asked = task({.beam_size = 3}, false);
  asked.begun = {7, 9};
  const WhisperText found = decode(asked);
  ASSERT_GE(found.tokens.size(), 2U);
  EXPECT_EQ(found.tokens[0], 7);
  EXPECT_EQ(found.tokens[1], 9);
  EXPECT_LE(found.tokens.size(), 14U);
}

TEST_F(WhisperBeams, WhoStopsGetsTheBestSoFar) {
  int tokens = 0;
  const WhisperText stopped =
      decode_window(*model_, window_, task({.beam_size = 3}, true), [&] { return ++tokens <= 4; });
  EXPECT_GT(stopped.tokens.size(), 0U);
  EXPECT_LE(stopped.tokens.size(), 4U);
}

TEST_F(WhisperBeams, TheBestOfSeveralDrawsIsTaken) {
  WhisperTask asked = task({.best_of = 4}, true);
  asked.temperature = 0.8;
  asked.seed = 11;
  const WhisperText best = decode(asked);
  asked.search.best_of = 1;
  double highest = -1e30;
  std::vector<TokenId> exact;
  for (uint64_t i = 0; i < 4; ++i) {
    asked.seed = i == 0 ? 11 : base::random_bits(11, i);
    const WhisperText one = decode(asked);
    const auto count = static_cast<double>(one.tokens.size());
    const double score = one.average_logprob * (count + 1) / std::max(count, 1.0);
    if (score <= highest) continue;
    highest = score;
    exact = one.tokens;
  }
  EXPECT_EQ(best.tokens, exact);
}

}  // namespace
}  // namespace pelton::models
