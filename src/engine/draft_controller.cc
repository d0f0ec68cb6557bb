#include "engine/draft_controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pelton::engine {
namespace {

// Before anything is known: likely enough to be tried.
constexpr double kAcceptanceAtFirst = 0.7;
constexpr double kTriesAtFirst = 4;
constexpr double kTriesKept = 2048;  // then the old ones count half

// How step times grow with rows where none was seen: as little as on the best of machines, so that
// it is tried; what was seen counts from then on.
double time_ratio(double rows) {
  return std::sqrt(rows);
}

// 1 to 8 rows each have an entry, then each is a quarter wider: 9-10, 11-12, 13-15, ...
size_t time_index(int rows) {
  if (rows <= 8) return static_cast<size_t>(rows);
  return 8 + static_cast<size_t>(std::ceil(std::log(rows / 8.0) / std::log(1.25)));
}

constexpr double kStepTimeWeight = 0.125;
constexpr double kSequenceWeight = 1.0 / 32;  // of a guess, to those before it
constexpr double kFactorMax = 2.0;
constexpr double kWorthChanging = 0.02;  // of the steps in which something is guessed

}  // namespace

void DraftController::Share::add(double tries, double hits) {
  if (tried > kTriesKept) {
    tried /= 2;
    hit /= 2;
  }
  tried += tries;
  hit += hits;
}

DraftController::DraftController(const Options& options) : options_(options) {
  drafted_ = {kTriesAtFirst, kTriesAtFirst};
}

// A place of which little is known is taken to be like the one before it.
double DraftController::acceptance(size_t place) const {
  double acceptance = kAcceptanceAtFirst;
  for (size_t i = 0; i <= std::min(place, kPlaces - 1); ++i) {
    const Share& share = accepted_[i];
    acceptance = (share.hit + kTriesAtFirst * acceptance) / (share.tried + kTriesAtFirst);
  }
  return acceptance;
}

double DraftController::drafted_share() const {
  return drafted_.hit / drafted_.tried;
}

bool DraftController::wants_probe(const DraftHistory& history) const {
  return options_.adaptive && history.steps_off >= history.probe_after;
}

void DraftController::note_draft(DraftHistory& history, int granted, int drafted, int accepted) {
  if (granted == 0) return note_off(history);
  history.steps_off = 0;
  drafted_.add(granted, drafted);
  if (drafted == 0) return;
  for (int i = 0; i < drafted && i <= accepted; ++i) {  // behind the first wrong one: no news
    const size_t place = std::min(static_cast<size_t>(i), kPlaces - 1);
    const double hit = i < accepted ? 1 : 0;
    const double seen = std::min(hit / acceptance(place), kFactorMax);
    history.factor += (seen - history.factor) * kSequenceWeight;
    accepted_[place].add(1, hit);
  }
  history.probe_after =
      accepted > 0 ? kProbeAfterMin : std::min(2 * history.probe_after, kProbeAfterMax);
}

void DraftController::note_step(int rows, int64_t elapsed_ns, int64_t draft_ns) {
  if (rows <= 0 || elapsed_ns <= 0) return;
  const size_t index = time_index(rows);
  if (step_times_.size() <= index) step_times_.resize(index + 1);
  const auto ns = static_cast<double>(std::max<int64_t>(elapsed_ns - draft_ns, 1));
  StepTime& kept = step_times_[index];
  if (kept.ns == 0) kept = {.rows = static_cast<double>(rows), .ns = ns};
  kept.rows += (rows - kept.rows) * kStepTimeWeight;
  // One step in which the machine did something else says little.
  kept.ns += (std::min(ns, 4 * kept.ns) - kept.ns) * kStepTimeWeight;
  if (draft_ns > 0) {
    draft_ns_ += (static_cast<double>(draft_ns) - draft_ns_) * kStepTimeWeight;
  }
}

// estimated_ns_[rows]: on straight lines between what was seen, and on the last of them beyond;
// where only one was seen, scaled from that. Never less for more rows.
void DraftController::estimate_step_times(int rows_max) {
  estimated_ns_.assign(static_cast<size_t>(rows_max) + 1, 0);
  const auto seen = [](const StepTime& time) { return time.ns > 0; };
  auto low = std::find_if(step_times_.begin(), step_times_.end(), seen);
  const StepTime first = low == step_times_.end() ? StepTime{.rows = 1, .ns = 1} : *low;
  auto high = low == step_times_.end() ? low : std::find_if(low + 1, step_times_.end(), seen);
  for (int rows = 1; rows <= rows_max; ++rows) {
    while (high != step_times_.end() && high->rows < rows) {
      const auto next = std::find_if(high + 1, step_times_.end(), seen);
      if (next == step_times_.end()) break;
      low = high;
      high = next;
    }
    double& ns = estimated_ns_[static_cast<size_t>(rows)];
    if (high == step_times_.end() || rows <= first.rows) {
      ns = first.ns * time_ratio(rows) / time_ratio(first.rows);
    } else {
      const double slope = (high->ns - low->ns) / std::max(high->rows - low->rows, 0.1);
      ns = low->ns + std::clamp(slope, 0.0, low->ns / low->rows) * (rows - low->rows);
    }
    ns = std::max(ns, estimated_ns_[static_cast<size_t>(rows) - 1]);
  }
}

// By survival to a 2^22nd, the likeliest first: two passes of counting, by the lower and by the
// upper half of the digits. Equals stay in order, so each sequence's first come first.
void DraftController::rank_guesses(std::span<const Candidate> candidates) {
  constexpr int kDigitBits = 11;
  constexpr uint32_t kDigits = 1 << kDigitBits;
  constexpr uint32_t kKeyMax = kDigits * kDigits - 1;
  std::array<std::array<uint32_t, kDigits>, 2> begins{};
  const auto digit_of = [](float survival, int pass) {
    const uint32_t key = kKeyMax - static_cast<uint32_t>(survival * static_cast<float>(kKeyMax));
    return pass == 0 ? key % kDigits : key / kDigits;
  };
  std::array<double, kPlaces> by_place;
  for (size_t place = 0; place < kPlaces; ++place) by_place[place] = acceptance(place);
  unranked_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    double survival = 1;
    for (int place = 0; place < candidates[i].tokens_max; ++place) {
      survival *= std::min(by_place[std::min(static_cast<size_t>(place), kPlaces - 1)] *
                               candidates[i].history->factor,
                           0.99);
      unranked_.push_back({static_cast<float>(survival), static_cast<int>(i)});
      for (const int pass : {0, 1})
        ++begins[static_cast<size_t>(pass)][digit_of(unranked_.back().survival, pass)];
    }
  }
  guesses_.resize(unranked_.size());
  for (const int pass : {0, 1}) {
    auto& begin = begins[static_cast<size_t>(pass)];
    uint32_t next = 0;
    for (uint32_t& count : begin) next += std::exchange(count, next);
    for (const Guess& guess : unranked_) guesses_[begin[digit_of(guess.survival, pass)]++] = guess;
    if (pass == 0) std::swap(guesses_, unranked_);
  }
}

void DraftController::choose(std::span<Candidate> candidates, int rows, int guesses_max) {
  if (!options_.adaptive) {
    int granted = 0;
    for (Candidate& candidate : candidates) {
      candidate.tokens = std::min(candidate.tokens_max, guesses_max);
      guesses_max -= candidate.tokens;
      granted += candidate.tokens;
    }
    report_.state = granted > 0 ? State::kOn : State::kIdle;
    report_.guesses = granted;
    report_.rows = rows;
    return;
  }
  for (Candidate& candidate : candidates) {
    candidate.tokens = 0;
    candidate.tokens_max = std::min(candidate.tokens_max, options_.tokens_max);
  }
  rank_guesses(candidates);
  const auto most = std::min(guesses_.size(), static_cast<size_t>(std::max(guesses_max, 0)));
  estimate_step_times(rows + static_cast<int>(most));
  // A guess that was granted is computed with this probability: the proposer may have none.
  const double share = drafted_share();
  const auto ns_of = [&](double guesses) {
    const double at = rows + guesses;
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, estimated_ns_.size() - 1);
    const double step = estimated_ns_[below] + (estimated_ns_[above] - estimated_ns_[below]) *
                                                   (at - static_cast<double>(below));
    return step + (guesses > 0 ? draft_ns_ : 0);
  };
  double tokens = rows;
  const double without = rows > 0 ? rows / ns_of(0) : 0;
  double best = without;
  double last = without;  // with as many as last time
  size_t chosen = 0;
  for (size_t m = 1; m <= most; ++m) {
    tokens += share * guesses_[m - 1].survival;
    const double speed = tokens / ns_of(share * static_cast<double>(m));
    if (speed > best) {
      best = speed;
      chosen = m;
    }
    if (static_cast<int>(m) == last_guesses_) last = speed;
  }
  if (static_cast<size_t>(last_guesses_) <= most && best < (1 + kWorthChanging * share) * last) {
    chosen = static_cast<size_t>(last_guesses_);
    best = last;
  }
  last_guesses_ = static_cast<int>(chosen);
  for (size_t i = 0; i < chosen; ++i) {
    ++candidates[static_cast<size_t>(guesses_[i].candidate)].tokens;
  }
  int left = guesses_max - static_cast<int>(chosen);
  for (Candidate& candidate : candidates) {
    const bool probes = candidate.tokens == 0 && candidate.tokens_max > 0 && left > 0 &&
                        wants_probe(*candidate.history);
    if (!probes) continue;
    candidate.tokens = 1;
    --left;
  }
  report_.gain = without > 0 ? best / without : 0;
  const bool nobody = guesses_.empty() || guesses_max <= 0;
  report_.state = chosen > 0 ? State::kOn : nobody ? State::kIdle : State::kLosing;
  report_.guesses = static_cast<int>(chosen);
  report_.rows = rows;
}

std::string_view name_of(DraftController::State state) {
  switch (state) {
    case DraftController::State::kIdle:
      return "idle";
    case DraftController::State::kOn:
      return "on";
    case DraftController::State::kLosing:
      return "losing";
  }
  return "";
}

DraftController::Report DraftController::report() const {
  Report report = report_;
  for (size_t place = 0; place < kPlaces; ++place) report.acceptance[place] = acceptance(place);
  report.drafted_share = drafted_share();
  report.step_ns = step_times_.size() > 1 ? step_times_[1].ns : 0;
  report.draft_ns = draft_ns_;
  return report;
}

}  // namespace pelton::engine
