// What a server's metrics say of speculation, before and after a run: vLLM's counters, and Pelton's
// of the time that guessing took. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::bench {

struct SpeculationCounts {
  double drafts = 0;  // rows with guesses
  double draft_tokens = 0;
  double accepted_tokens = 0;
  std::vector<double> accepted_by_place;  // vLLM's label "position", from 0
  double draft_s = 0;                     // of steps without prompts; 0: not said
  double step_s = 0;                      // those steps in all

  SpeculationCounts since(const SpeculationCounts& before) const;
};

// Of a page in Prometheus' text format, all models and engines together; none where the server does
// not speculate. What is no number counts as nothing.
std::optional<SpeculationCounts> parse_speculation(std::string_view page);

// As vLLM's bench serve prints it: a block of lines; empty where nothing was guessed.
std::string speculation_text(const SpeculationCounts& counts);

}  // namespace pelton::bench
