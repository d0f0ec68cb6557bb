// Whether one arm of a split is worse than the others, by tests that may be looked at after every
// request: the chance that one ever says so of an arm that is not worse is bounded once, for all
// looks together. Pure.
//
// Each test multiplies up evidence E, which is 1 in the mean at every step while the arm is not
// worse; by Ville's inequality P(E ever reaches 1 / alpha) <= alpha. What is drawn (a conversation,
// say) is noted once, each for the candidate with the same chance and independently of the others.
// It is noted in blocks of a fixed size; within a block, given what became of all in it, only which
// of them were the candidate's is chance. So nothing is assumed of how the load, the errors of a
// bad hour or the lengths of prompts change with time. This is testing by betting, in the form of
// Turner, Ly, Grünwald, "Generic E-Variables for Exact Sequential k-Sample Tests that allow for
// Optional Stopping" (2021) for counts, and of Shekhar, Ramdas, "Nonparametric Two-Sample Testing
// by Betting" (2021) for ranks; several bets are held at once, as by the mixture of a mixture SPRT
// (Johari, Koomen, Pekelis, Walsh, "Peeking at A/B Tests", 2017).
//
// Worked example, of counts: a block of 64 has 1 of the candidate. One of the 64 failed, and it was
// the candidate's. If the arms are alike each is as likely to be the one that failed: 1/64. If the
// candidate's odds to fail are 5 times theirs, it is 5 / (5 + 63) = 0.0735. The bet on 5 pays
// 0.0735 / 0.0156 = 4.71. Had another one failed, it would have paid (1 / 68) / (1 / 64) = 0.94.
// A block in which none failed, or all are of one side, pays 1.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace pelton::gateway {

enum class ArmSide { kCandidate, kOthers };

template <typename Value>
struct BySide {
  Value candidate{};
  Value others{};

  Value& of(ArmSide side) { return side == ArmSide::kCandidate ? candidate : others; }
  const Value& of(ArmSide side) const { return side == ArmSide::kCandidate ? candidate : others; }
  BySide& operator+=(const BySide& more) {
    candidate += more.candidate;
    others += more.others;
    return *this;
  }
  friend bool operator==(const BySide&, const BySide&) = default;
};

// The least and the greatest value that are not refuted.
struct Interval {
  double low = 0;
  double high = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
};

// The mean of several bets' products, of which the logarithms are given: evidence itself.
double mixed_log_evidence(std::span<const double> log_products);

// How many requests of each arm failed, and the evidence that the candidate's odds to fail are more
// than (1 + tolerance) times the others'.
class OddsTest {
 public:
  // Odds ratios that are bet on, above what is tolerated.
  static constexpr std::array<double, 6> kRatios = {1.5, 2, 3, 5, 10, 30};
  // Requests of a block: fewer say less of how often others fail, more are waited for longer.
  static constexpr int64_t kBlock = 64;

  // What several gateways have seen adds up: each product is of its own requests.
  struct Evidence {
    BySide<int64_t> requests;
    BySide<int64_t> failed;
    std::array<double, kRatios.size()> log_products{};

    Evidence& operator+=(const Evidence& more);
    double log_evidence() const { return mixed_log_evidence(log_products); }
    friend bool operator==(const Evidence&, const Evidence&) = default;
  };

  explicit OddsTest(double tolerance) : tolerated_(1 + tolerance) {}

  // True: the evidence has changed.
  bool note(ArmSide side, bool failed);
  // Those of the block that is open count no more: shares change.
  void end_block() { open_ = {}; }
  const Evidence& evidence() const { return evidence_; }
  void set_evidence(const Evidence& evidence) { evidence_ = evidence; }

 private:
  struct Block {
    BySide<int64_t> requests;
    BySide<int64_t> failed;
  };

  const double tolerated_;
  Block open_;
  Evidence evidence_;
};

// Of requests that fail with one unchanging chance each, of which `failed` did: the interval that
// holds that chance, at every look, with probability 1 - alpha. By Robbins' mixture: with a uniform
// prior, the product is B(failed + 1, others + 1) / (p^failed (1 - p)^others).
Interval chance_interval(int64_t failed, int64_t requests, double alpha);

// Values of both arms (times, lengths) by their order alone, and the evidence that the candidate's
// are more, or less, than (1 + tolerance) times as large. In a block those of the side that has
// fewer are put among the others' one by one, in an order drawn for itself; u, the share of those
// already there that one exceeds, has the mean 1/2 if the arms are alike, whatever the ones before
// it were (sequential ranks are independent), and 1 + lambda (2 u - 1) the mean 1.
class RankTest {
 public:
  static constexpr std::array<double, 4> kBets = {0.1, 0.3, 0.6, 0.95};
  static constexpr size_t kBlock = 32;  // values
  using Products = std::array<double, kBets.size()>;

  // For one ratio: that the candidate's values divided by it are larger, and that they are smaller.
  struct Bets {
    Products larger{};
    Products smaller{};
    friend bool operator==(const Bets&, const Bets&) = default;
  };
  struct Evidence {
    BySide<int64_t> values;
    Bets at_tolerance;       // larger: of the ratio 1 + tolerance; smaller: of 1 / (1 + tolerance)
    std::vector<Bets> grid;  // by ratios(); empty: no interval is asked for

    Evidence& operator+=(const Evidence& more);
    friend bool operator==(const Evidence&, const Evidence&) = default;
  };

  enum class Grid { kNone, kKept };
  RankTest(double tolerance, Grid grid);

  // Above 0. True: the evidence has changed.
  bool note(ArmSide side, double value);
  void end_block();
  const Evidence& evidence() const { return evidence_; }
  void set_evidence(Evidence evidence);

  // Ratios of which each is refuted or not: from 1/8 to 8, closer about 1.
  static const std::vector<double>& ratios();
  // Of the candidate's values to the others', if they differ by one factor; none refuted below or
  // above: 1/8 or 8. `estimate`: the least refuted.
  struct Ratio {
    Interval interval;
    double estimate = 1;
  };
  static Ratio ratio(const Evidence& evidence, double alpha);

 private:
  void close_block();

  const double log_tolerated_;
  BySide<std::vector<double>> open_;  // logarithms
  Evidence evidence_;
};

}  // namespace pelton::gateway
