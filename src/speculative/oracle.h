// A proposer that knows the answers, and spoils a share of its guesses: for tests, and to measure
// what speculation would gain at a given acceptance before there is a drafter that has it. Its
// answers are right whatever it guesses, so random weights will do.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "speculative/proposer.h"

namespace pelton::speculative {

class Oracle final : public Proposer {
 public:
  // What is generated behind each prompt when it is sampled with that seed.
  using Answers = std::map<std::pair<std::vector<TokenId>, uint64_t>, std::vector<TokenId>>;
  struct Options {
    double acceptance = 1.0;  // a guess is right with this probability, by a hash of its position
    int vocab_size = 0;
    int slot_count = 0;
  };

  Oracle(const Options& options, Answers answers);

  // A line an answer: {"prompt":[ids],"seed":N,"output":[ids]}, `seed` 0 if absent. Errors: kIo,
  // kInvalidArgument with the line.
  static Result<Answers> read_answers(const std::string& file);

  std::string_view name() const override { return "oracle"; }
  void begin(const NewSequence& sequence) override;
  void append(int, std::span<const TokenId>, size_t) override {}
  Result<void> draft(std::span<DraftRequest> requests) override;
  int64_t bytes() const override { return 0; }  // an instrument: not counted

 private:
  struct Slot {
    const std::vector<TokenId>* answer = nullptr;  // null: not known
    size_t prompt_count = 0;
    uint64_t seed = 0;
  };

  const Options options_;
  const Answers answers_;
  std::vector<Slot> slots_;
};

}  // namespace pelton::speculative
