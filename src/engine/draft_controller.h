// Speculation: how many guesses each decoding sequence gets in the next step. Of all ways to spend
// m rows on guesses the m likeliest to count are best, so the controller walks m from none to all
// and takes the one with the most tokens a second:
//
//   U(m) = (rows + sum of the m largest survivals) / (T(rows + m) + D(k))
//
// survival of a sequence's j-th guess: the product of the acceptance of its first j places, as
// guesses by whoever guessed for it last were right, times a factor of its own; T: what
// a step of so many rows took lately; D: what guessing took where the longest draft had k guesses,
// on a line through what was seen. It walks all m, because T is concave
// where rows share experts: a first guess may lose and four may gain (docs/decisions/0048). Pure:
// no clock, nothing random. Owned by the scheduler; engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/step_plan.h"

namespace pelton::engine {

// What is kept of one sequence.
struct DraftHistory {
  // Of its acceptance, to everybody's. What it differs by chance alone does not count.
  double factor = 1.0;
  static constexpr double kFactorNoise = 0.1;
  double sure_factor() const {
    return factor < 1.0 ? std::min(factor + kFactorNoise, 1.0)
                        : std::max(factor - kFactorNoise, 1.0);
  }
  size_t proposer = kProposersMax;  // who guessed for it last; kProposersMax: nobody has
  bool is_probe = false;            // its last guess was one, to see
  int steps_off = 0;                // without a guess, in a row
  int probe_after = 16;             // so many of them it gets one
};

class DraftController {
 public:
  static constexpr size_t kPlaces = 8;  // of a guess in its row, counted apart; later ones together
  static constexpr int kProbeAfterMin = 16;
  static constexpr int kProbeAfterMax = 256;

  struct Options {
    int tokens_max = 0;     // guesses of one row
    bool adaptive = false;  // otherwise each row gets as many as it may
  };

  explicit DraftController(const Options& options);

  struct Candidate {
    DraftHistory* history = nullptr;
    int tokens_max = 0;  // it may have so many
    bool waits = false;  // it may have none only because its last token is not known yet
    int tokens = 0;      // the answer
  };

  // rows: decodes in the step, candidates or not; guesses_max: of all together.
  void choose(std::span<Candidate> candidates, int rows, int guesses_max);

  // A sequence without guesses for so long that it should get one, to see; `waiting`: so many wait
  // for theirs already, each of which is to be paid for.
  bool wants_probe(const DraftHistory& history, int waiting = 0) const;
  // Rows that the step at hand goes by without, because a probe needs all of its sequence's tokens
  // known, before it and behind it. Part of what probes cost.
  void note_waiting(int rows);
  // It had no guess in a step that it was in.
  static void note_off(DraftHistory& history) { ++history.steps_off; }

  // What became of a row that might have `granted` guesses.
  struct Draft {
    int granted = 0;
    int drafted = 0;
    int accepted = 0;
    size_t proposer = 0;  // whose they are, below kProposersMax
  };
  void note_draft(DraftHistory& history, const Draft& draft);
  // A step without prompts.
  struct Step {
    int rows = 0;           // guesses included
    int longest_draft = 0;  // guesses that one row was granted, at most
    int64_t elapsed_ns = 0;
    int64_t draft_ns = 0;  // of these; counts where guesses were granted
    // Of these, for what a proposer had not computed while nobody asked it: that is over.
    int64_t catch_up_ns = 0;
    std::array<int64_t, kProposersMax> proposer_ns{};  // by who was asked
  };
  void note_step(const Step& step);
  // What lay between that step's computing and the one's before, of a step in which guesses were
  // granted, or of one without: only such steps are planned while the one before is computed.
  // Counts with the second one of its kind.
  void note_beside(bool has_guesses, int64_t ns);

  // Why the last choice granted what it did.
  enum class State : uint8_t {
    kIdle,    // nobody could have a guess
    kOn,      // guesses were granted
    kLosing,  // none gains what it costs
  };
  struct Report {
    State state = State::kIdle;
    // Of a guess whose earlier ones were right, by place: everybody's. None: it was never tried.
    using Acceptance = std::array<std::optional<double>, kPlaces>;
    Acceptance acceptance{};
    struct Proposer {
      Acceptance acceptance{};
      double draft_ns = 0;  // of asking it; 0: it never was
    };
    std::array<Proposer, kProposersMax> proposers{};
    double drafted_share = 0;  // of the guesses granted: those a proposer had
    double step_ns = 0;        // of one row
    double draft_ns = 0;       // of guessing, a step with guesses
    double gain = 0;  // tokens a second to those without guesses, as estimated at the last choice
    double gain_so_far = 0;  // the same of all choices together
    int guesses = 0;         // granted at the last choice
    int rows = 0;            // decodes there
  };
  Report report() const;

 private:
  struct Share {
    double tried = 0;
    double hit = 0;
    void add(double tries, double hits);
  };
  using Places = std::array<Share, kPlaces>;
  static double acceptance_behind(const Places& places, size_t place, double before);
  std::array<double, kPlaces> acceptances(size_t proposer) const;
  Report::Acceptance tried_acceptances(size_t proposer) const;
  double drafted_share() const;
  void forget_slowly();
  double waited_ns() const;  // for one probe
  void estimate_step_times(int rows_max);
  void rank_guesses(std::span<const Candidate> candidates);
  void give_what_fits(std::span<Candidate> candidates, int guesses_max);
  // How many guesses, and what comes of them.
  struct Total {
    int guesses = 0;
    int longest_draft = 0;
    double tokens_per_ns = 0;
  };
  double step_ns(int rows, int guesses, int longest_draft) const;
  double draft_ns(int longest_draft) const;
  double beside_ns(bool has_guesses) const;  // 0: not known yet
  Total best_total(int rows, int most, size_t candidates);
  void grant_probes(std::span<Candidate> candidates, int rows, const Total& chosen, int probes_max);

  const Options options_;
  std::array<Places, kProposersMax + 1> accepted_{};  // by who guessed; the last: by anybody
  std::array<double, kProposersMax> proposer_ns_{};   // D of each, in the mean
  Share drafted_;
  struct StepTime {
    int steps = 0;    // seen, up to kFirstSteps
    double rows = 0;  // the mean of those
    double ns = 0;
  };
  std::vector<StepTime> step_times_;  // by time_index
  // D(k): means, lately, of k, of what guessing took, and of how the two vary together.
  struct DraftTime {
    bool seen = false;
    double k = 0;
    double ns = 0;
    double k_variance = 0;
    double covariance = 0;
  };
  DraftTime draft_time_;
  struct Beside {
    int steps = 0;  // seen, up to kFirstSteps
    double ns = 0;
  };
  std::array<Beside, 2> beside_{};  // steps without guesses, with them
  int last_guesses_ = 0;
  // Probes are paid for by a share of all time (kProbing), saved up for a step at most; the last
  // known price of one, and of a token; how many rows went without for how many probes.
  double probe_credit_ns_ = 0;
  double probe_cost_ns_ = 0;
  double token_ns_ = 0;
  Share waited_;
  // What was expected at all choices: tokens and time, with guesses and without.
  struct Expected {
    double tokens = 0;
    double ns = 0;
  };
  Expected expected_;
  Expected expected_without_;
  Report report_;

  // Scratch of a choice.
  std::vector<double> estimated_ns_;  // by rows
  struct Guess {
    float survival;
    int candidate;
  };
  std::vector<Guess> guesses_;  // the likeliest first
  std::vector<Guess> unranked_;
  std::vector<int> lengths_;  // of each candidate's draft, as best_total() walks
};

// "idle", "on", "losing"
std::string_view name_of(DraftController::State state);

}  // namespace pelton::engine
