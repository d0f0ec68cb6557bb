#include "models/whisper_beams.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pelton::models {
namespace {

struct Beam {
  WhisperCandidate text;
  WhisperWindow window;
  std::vector<float> logprobs;  // of what follows
};

// A beam and one token more.
struct Extension {
  size_t beam = 0;
  TokenId token = 0;
  double logprob = 0.0;
};

std::vector<Extension> extensions_of(std::span<const Beam> beams, size_t each) {
  std::vector<Extension> all;
  for (size_t i = 0; i < beams.size(); ++i) {
    const std::vector<float>& logprobs = beams[i].logprobs;
    std::vector<TokenId> ids(logprobs.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto by_likelihood = [&](TokenId a, TokenId b) {
      const float of_a = logprobs[static_cast<size_t>(a)];
      const float of_b = logprobs[static_cast<size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    };
    const size_t count = std::min(each, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                      by_likelihood);
    for (size_t k = 0; k < count; ++k) {
      const double logprob = logprobs[static_cast<size_t>(ids[k])];
      if (std::isinf(logprob)) break;  // masked
      all.push_back({.beam = i, .token = ids[k], .logprob = beams[i].text.logprob + logprob});
    }
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Extension::logprob);
  return all;
}

class BeamSearch {
 public:
  BeamSearch(Whisper& model, const WhisperTask& task)
      : model_(model),
        task_(task),
        beam_size_(static_cast<size_t>(task.search.beam_size)),
        ended_max_(static_cast<size_t>(
            std::max(1.0, std::round(task.search.beam_size * task.search.patience)))) {}

  void begin(const WhisperWindow& window, std::span<const float> logits) {
    beams_.push_back({.text = {}, .window = window, .logprobs = {}});
    set_logprobs(beams_.front(), logits);
  }

  // A token more for each text that goes on; false: the search is over.
  bool step() {
    std::vector<WhisperCandidate> ended;
    std::vector<Extension> kept;
    for (const Extension& one : extensions_of(beams_, beam_size_ + 1)) {
      if (one.token == model_.config().end_of_text) {
        const WhisperCandidate& text = beams_[one.beam].text;
        ended.push_back({.tokens = text.tokens, .logprob = one.logprob, .ended = true});
      } else if (kept.push_back(one); kept.size() == beam_size_) {
        break;
      }
    }
    for (WhisperCandidate& text : ended) {
      if (ended_.size() < ended_max_) ended_.push_back(std::move(text));
    }
    take(kept);
    if (ended_.size() >= ended_max_ || beams_.empty()) return false;
    const Beam& front = beams_.front();
    if (front.window.length() == model_.config().target_positions) return false;
    const size_t count = task_.begun.size() + front.text.tokens.size();
    if (static_cast<int>(count) >= task_.tokens_max) return false;
    run();
    return true;
  }

  // Where too few have ended, the likeliest of the others count too.
  WhisperCandidate best() {
    for (Beam& beam : beams_) {
      if (ended_.size() >= beam_size_) break;
      ended_.push_back(std::move(beam.text));
    }
    CHECK(!ended_.empty(), "no token may come");
    const auto score = [&](const WhisperCandidate& text) {
      return candidate_score(text, task_.search);
    };
    return *std::ranges::max_element(ended_, {}, score);
  }

 private:
  void set_logprobs(Beam& beam, std::span<const float> logits) const {
    std::vector<TokenId> all = task_.begun;
    all.insert(all.end(), beam.text.tokens.begin(), beam.text.tokens.end());
    beam.logprobs.assign(logits.begin(), logits.end());
    to_logprobs(beam.logprobs, all, model_.config(), {.timestamps = task_.timestamps});
  }

  // The beams are these from now on. The last that goes on with a beam has its window; the others
  // get copies, in windows that nobody needs any more.
  void take(std::span<const Extension> kept) {
    std::vector<size_t> uses(beams_.size(), 0);
    for (const Extension& one : kept) ++uses[one.beam];
    for (size_t i = 0; i < beams_.size(); ++i) {
      if (uses[i] == 0) spare_.push_back(std::move(beams_[i].window));
    }
    std::vector<Beam> next;
    for (const Extension& one : kept) {
      Beam& from = beams_[one.beam];
      WhisperCandidate text = from.text;
      text.tokens.push_back(one.token);
      text.logprob = one.logprob;
      const bool is_last = --uses[one.beam] == 0;
      next.push_back({.text = std::move(text),
                      .window = is_last ? std::move(from.window) : copy_of(from.window),
                      .logprobs = {}});
    }
    beams_ = std::move(next);
  }

  WhisperWindow copy_of(const WhisperWindow& window) {
    if (spare_.empty()) return window;
    WhisperWindow copy = std::move(spare_.back());
    spare_.pop_back();
    copy.take_tokens_of(window);
    return copy;
  }

  void run() {
    std::vector<WhisperWindow*> windows;
    std::vector<TokenId> tokens;
    for (Beam& beam : beams_) {
      windows.push_back(&beam.window);
      tokens.push_back(beam.text.tokens.back());
    }
    const std::span<const float> logits = model_.step_each(windows, tokens);
    const size_t vocab = logits.size() / beams_.size();
    for (size_t i = 0; i < beams_.size(); ++i) {
      set_logprobs(beams_[i], logits.subspan(i * vocab, vocab));
    }
  }

  Whisper& model_;
  const WhisperTask& task_;
  const size_t beam_size_;
  const size_t ended_max_;
  std::vector<Beam> beams_;  // the likeliest first
  std::vector<WhisperWindow> spare_;
  std::vector<WhisperCandidate> ended_;  // in the order in which they did, the likeliest first
};

}  // namespace

WhisperCandidate follow_beams(Whisper& model, WhisperWindow& window, std::span<const float> logits,
                              const WhisperTask& task, const std::function<bool()>& go_on) {
  if (static_cast<int>(task.begun.size()) >= task.tokens_max) return {};
  BeamSearch search(model, task);
  search.begin(window, logits);
  while (go_on() && search.step()) {
  }
  return search.best();
}

}  // namespace pelton::models
