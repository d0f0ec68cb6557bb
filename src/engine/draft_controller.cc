#include "engine/draft_controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pelton::engine {
namespace {

// Before anything is known: likely enough to be tried.
constexpr double kAcceptanceAtFirst = 0.7;
constexpr double kTriesAtFirst = 4;
constexpr double kTriesOfPlaceBefore = 64;
constexpr double kTriesKept = 2048;  // then the old ones count half
// Texts change, also while hardly anything is tried: with each step what was tried counts a little
// less, until so much is left of it.
constexpr double kTriesForgotten = 1.0 / 256;
constexpr double kTriesRemembered = 16;

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
// So many steps are seen before their time counts, and the least of them is what counts then. Had
// the machine something else to do at the first one, guessing would seem to cost so much that it is
// hardly tried again.
constexpr int kFirstSteps = 2;
constexpr double kDraftVariance = 0.05;  // of a draft's length: enough to see what a guess adds
constexpr double kSequenceWeight = 1.0 / 32;  // of a guess, to those before it
constexpr double kFactorMax = 2.0;
constexpr double kProbing = 0.004;       // of the time is what probes are estimated to lose at most
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

// A place of which little is known is taken to be like the one before it, with `before`.
double DraftController::acceptance_behind(const Places& places, size_t place, double before) {
  const double weight = place == 0 ? kTriesAtFirst : kTriesOfPlaceBefore;
  return (places[place].hit + weight * before) / (places[place].tried + weight);
}

std::array<double, DraftController::kPlaces> DraftController::acceptances(size_t proposer) const {
  std::array<double, kPlaces> by_place;
  double acceptance = kAcceptanceAtFirst;
  for (size_t place = 0; place < kPlaces; ++place) {
    by_place[place] = acceptance = acceptance_behind(accepted_[proposer], place, acceptance);
  }
  return by_place;
}

DraftController::Report::Acceptance DraftController::tried_acceptances(size_t proposer) const {
  const std::array<double, kPlaces> all = acceptances(proposer);
  Report::Acceptance by_place;
  for (size_t place = 0; place < kPlaces; ++place) {
    if (accepted_[proposer][place].tried > 0) by_place[place] = all[place];
  }
  return by_place;
}

double DraftController::drafted_share() const {
  return drafted_.hit / drafted_.tried;
}

bool DraftController::wants_probe(const DraftHistory& history, int waiting) const {
  return options_.adaptive && history.steps_off >= history.probe_after &&
         probe_credit_ns_ >= (1 + waiting) * probe_cost_ns_;
}

void DraftController::note_waiting(int rows) {
  if (rows == 0) return;
  waited_.hit += rows;
  probe_credit_ns_ -= rows * token_ns_;
}

double DraftController::waited_ns() const {
  return waited_.tried > 0 ? waited_.hit / waited_.tried * token_ns_ : 0;
}

void DraftController::forget_slowly() {
  for (Places& places : accepted_) {
    for (Share& share : places) {
      if (share.tried <= kTriesRemembered) continue;
      share.tried -= share.tried * kTriesForgotten;
      share.hit -= share.hit * kTriesForgotten;
    }
  }
}

void DraftController::note_draft(DraftHistory& history, const Draft& draft) {
  const auto& [granted, drafted, accepted, proposer] = draft;
  if (granted == 0) return note_off(history);
  history.steps_off = 0;
  drafted_.add(granted, drafted);
  if (drafted == 0) return;
  history.proposer = proposer;
  Places& own = accepted_[proposer];
  double expected = kAcceptanceAtFirst;
  for (int i = 0; i < drafted && i <= accepted; ++i) {  // behind the first wrong one: no news
    const size_t place = std::min(static_cast<size_t>(i), kPlaces - 1);
    if (i == static_cast<int>(place)) expected = acceptance_behind(own, place, expected);
    const double hit = i < accepted ? 1 : 0;
    const double seen = std::min(hit / expected, kFactorMax);
    history.factor += (seen - history.factor) * kSequenceWeight;
    own[place].add(1, hit);
    accepted_.back()[place].add(1, hit);
  }
  history.probe_after =
      accepted > 0 ? kProbeAfterMin : std::min(2 * history.probe_after, kProbeAfterMax);
}

void DraftController::note_step(const Step& step) {
  const auto& [rows, longest_draft, elapsed_ns, draft_ns, catch_up_ns, proposer_ns] = step;
  if (rows <= 0 || elapsed_ns <= 0) return;
  forget_slowly();
  const size_t index = time_index(rows);
  if (step_times_.size() <= index) step_times_.resize(index + 1);
  const auto ns = static_cast<double>(std::max<int64_t>(elapsed_ns - draft_ns, 1));
  StepTime& kept = step_times_[index];
  if (kept.steps < kFirstSteps) {
    if (kept.steps++ == 0 || ns < kept.ns) kept = {kept.steps, static_cast<double>(rows), ns};
  } else {
    kept.rows += (rows - kept.rows) * kStepTimeWeight;
    // One step in which the machine did something else says little.
    kept.ns += (std::min(ns, 4 * kept.ns) - kept.ns) * kStepTimeWeight;
  }
  // Asking a proposer for nothing takes next to nothing: that says nothing of guessing.
  if (longest_draft == 0) return;
  for (size_t i = 0; i < kProposersMax; ++i) {
    const auto seen = static_cast<double>(proposer_ns[i]);
    double& lately = proposer_ns_[i];
    if (seen > 0) lately += lately == 0 ? seen : (seen - lately) * kStepTimeWeight;
  }
  DraftTime& time = draft_time_;
  const double k_off = longest_draft - time.k;
  const auto asked_ns = static_cast<double>(std::max<int64_t>(draft_ns - catch_up_ns, 0));
  const double ns_off = asked_ns - time.ns;
  if (!std::exchange(time.seen, true)) {
    time.k = longest_draft;
    time.ns = asked_ns;
    return;
  }
  const double weight = kStepTimeWeight;
  time.k += weight * k_off;
  time.ns += weight * ns_off;
  time.k_variance = (1 - weight) * (time.k_variance + weight * k_off * k_off);
  time.covariance = (1 - weight) * (time.covariance + weight * k_off * ns_off);
}

// What guessing takes where one row is granted so many guesses. A draft model runs once for each, a
// search finds them all at once: D = a + b k, neither below 0. Where only one k was seen, the least
// that any such line has is taken, so that others are tried: in proportion below it, no more above.
double DraftController::draft_ns(int longest_draft) const {
  const DraftTime& time = draft_time_;
  if (longest_draft == 0 || !time.seen) return 0;
  const double most = time.ns / std::max(time.k, 1.0);  // b, if a is 0
  const double ahead = longest_draft - time.k;
  double slope = ahead < 0 ? most : 0;
  if (time.k_variance > kDraftVariance) {
    slope = std::clamp(time.covariance / time.k_variance, 0.0, most);
  }
  return std::max(time.ns + slope * ahead, 0.0);
}

void DraftController::note_beside(bool has_guesses, int64_t ns) {
  Beside& kept = beside_[has_guesses ? 1 : 0];
  const auto seen = static_cast<double>(ns);
  if (kept.steps < kFirstSteps) {
    kept.ns = kept.steps++ == 0 ? seen : std::min(kept.ns, seen);
  } else {
    kept.ns += (std::min(seen, 4 * kept.ns) - kept.ns) * kStepTimeWeight;
  }
}

double DraftController::beside_ns(bool has_guesses) const {
  const Beside& seen = beside_[has_guesses ? 1 : 0];
  return seen.steps == kFirstSteps ? seen.ns : 0;
}

// estimated_ns_[rows]: on straight lines between what was seen, and on the last of them beyond;
// where only one was seen, scaled from that. Never less for more rows.
void DraftController::estimate_step_times(int rows_max) {
  estimated_ns_.assign(static_cast<size_t>(rows_max) + 1, 0);
  const auto seen = [](const StepTime& time) { return time.steps == kFirstSteps; };
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
    if (rows <= first.rows) {
      ns = first.ns * rows / first.rows;
    } else if (high == step_times_.end()) {
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
  std::array<std::array<double, kPlaces>, kProposersMax + 1> acceptance_of;
  for (size_t i = 0; i < acceptance_of.size(); ++i) acceptance_of[i] = acceptances(i);
  unranked_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    double survival = 1;
    const double factor = candidates[i].history->sure_factor();
    const auto& by_place = acceptance_of[candidates[i].history->proposer];
    for (int place = 0; place < candidates[i].tokens_max; ++place) {
      survival *=
          std::min(by_place[std::min(static_cast<size_t>(place), kPlaces - 1)] * factor, 0.99);
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
  report_.rows = rows;
  guesses_max = std::max(guesses_max, 0);
  if (!options_.adaptive) return give_what_fits(candidates, guesses_max);
  for (Candidate& candidate : candidates) {
    candidate.tokens = 0;
    candidate.tokens_max = std::min(candidate.tokens_max, options_.tokens_max);
  }
  rank_guesses(candidates);
  const int most = std::min(static_cast<int>(guesses_.size()), guesses_max);
  estimate_step_times(rows + most);
  const Total chosen = best_total(rows, most, candidates.size());
  last_guesses_ = chosen.guesses;
  for (int i = 0; i < chosen.guesses; ++i) {
    Candidate& candidate =
        candidates[static_cast<size_t>(guesses_[static_cast<size_t>(i)].candidate)];
    ++candidate.tokens;
    candidate.history->is_probe = false;
  }
  grant_probes(candidates, rows, chosen, guesses_max - chosen.guesses);
  report_.guesses = chosen.guesses;
  // Nothing was decided: who could have guesses is still being computed.
  const bool waits = std::ranges::any_of(candidates, &Candidate::waits);
  if (most == 0 && waits) return;
  if (rows > 0) {
    const double plain_ns = step_ns(rows, 0, 0);
    const double ns = step_ns(rows, chosen.guesses, chosen.longest_draft);
    report_.gain = chosen.tokens_per_ns * plain_ns / rows;
    expected_.tokens += chosen.tokens_per_ns * ns;
    expected_.ns += ns;
    expected_without_.tokens += rows;
    expected_without_.ns += plain_ns;
  }
  report_.state = chosen.guesses > 0 ? State::kOn : most == 0 ? State::kIdle : State::kLosing;
}

void DraftController::give_what_fits(std::span<Candidate> candidates, int guesses_max) {
  int granted = 0;
  for (Candidate& candidate : candidates) {
    candidate.tokens = std::min(candidate.tokens_max, guesses_max - granted);
    granted += candidate.tokens;
  }
  report_.state = granted > 0 ? State::kOn : State::kIdle;
  report_.guesses = granted;
}

// Of a step with so many decodes and granted guesses. Each of these is computed with a probability:
// the proposer may have none.
double DraftController::step_ns(int rows, int guesses, int longest_draft) const {
  const double at = rows + drafted_share() * guesses;
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, estimated_ns_.size() - 1);
  const double ns = estimated_ns_[below] + (estimated_ns_[above] - estimated_ns_[below]) *
                                               (at - static_cast<double>(below));
  return ns + draft_ns(longest_draft) + beside_ns(guesses > 0);
}

// Of the likeliest guesses as many as give the most tokens a second; as many as last time where
// that is hardly less.
DraftController::Total DraftController::best_total(int rows, int most, size_t candidates) {
  const double share = drafted_share();
  double tokens = rows;
  Total best = {.tokens_per_ns = rows > 0 ? rows / step_ns(rows, 0, 0) : 0};
  Total last = best;
  lengths_.assign(candidates, 0);
  int longest = 0;
  for (int m = 1; m <= most; ++m) {
    const Guess& guess = guesses_[static_cast<size_t>(m) - 1];
    tokens += share * guess.survival;
    longest = std::max(longest, ++lengths_[static_cast<size_t>(guess.candidate)]);
    const Total total = {.guesses = m,
                         .longest_draft = longest,
                         .tokens_per_ns = tokens / step_ns(rows, m, longest)};
    if (total.tokens_per_ns > best.tokens_per_ns) best = total;
    if (m == last_guesses_) last = total;
  }
  const bool stays = last.guesses == last_guesses_ &&
                     best.tokens_per_ns < (1 + kWorthChanging * share) * last.tokens_per_ns;
  return stays ? last : best;
}

// A guess each for those that have had none for long, as far as what was saved up pays what is
// likely lost: the time that the step takes longer, less what the guesses that are right are worth.
// Those that are due together share the time of drafting.
void DraftController::grant_probes(std::span<Candidate> candidates, int rows, const Total& chosen,
                                   int probes_max) {
  const double plain_ns = step_ns(rows, chosen.guesses, chosen.longest_draft);
  token_ns_ = chosen.tokens_per_ns > 0 ? 1 / chosen.tokens_per_ns : 0;
  const auto loss_ns = [&](int probes) {
    const int longest = std::max(chosen.longest_draft, std::min(probes, 1));
    const double longer_ns = step_ns(rows, chosen.guesses + probes, longest) - plain_ns;
    return std::max(longer_ns - drafted_share() *
                                    acceptance_behind(accepted_.back(), 0, kAcceptanceAtFirst) *
                                    probes * token_ns_,
                    0.0);
  };
  const double credit_ns = probe_credit_ns_;
  int probes = 0;
  bool any_more = false;
  for (Candidate& candidate : candidates) {
    if (candidate.tokens > 0 || candidate.tokens_max == 0 || probes == probes_max) continue;
    any_more = true;
    const bool is_due = probes == 0
                            ? wants_probe(*candidate.history)
                            : candidate.history->steps_off >= candidate.history->probe_after &&
                                  loss_ns(probes + 1) <= credit_ns;
    if (!is_due) continue;
    candidate.tokens = 1;
    candidate.history->is_probe = true;
    ++probes;
  }
  waited_.add(probes, 0);
  probe_credit_ns_ += kProbing * plain_ns - loss_ns(probes);
  if (any_more) probe_cost_ns_ = loss_ns(1) + waited_ns();
  probe_credit_ns_ = std::min(probe_credit_ns_, std::max(plain_ns, probe_cost_ns_));
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
  report.acceptance = tried_acceptances(kProposersMax);
  for (size_t i = 0; i < kProposersMax; ++i) {
    report.proposers[i] = {.acceptance = tried_acceptances(i), .draft_ns = proposer_ns_[i]};
  }
  report.drafted_share = drafted_share();
  if (expected_.ns > 0) {
    report.gain_so_far =
        expected_.tokens / expected_.ns * expected_without_.ns / expected_without_.tokens;
  }
  report.step_ns = step_times_.size() > 1 ? step_times_[1].ns : 0;
  report.draft_ns = draft_time_.ns;
  return report;
}

}  // namespace pelton::engine
