// The capacity surface that the fluid fidelity moves on: how long a step takes by how many rows
// decode, how much context they have and how many tokens of prompts are beside them. Rows need not
// be whole: between two it is drawn straight. Numbers of tokens count to one part in 128. Pure but
// for what it remembers; one thread.
#pragma once

#include <cstdint>

#include "cost_model/step_time.h"
#include "simulator/simulation.h"

namespace pelton::simulator {

class FluidSurface {
 public:
  // All outlive it.
  FluidSurface(const SimulationOptions& options, const cost_model::StepTimeModel& times);

  // Of a step in which `rows` decode, each with so much context on average.
  double decode_s(double rows, double context) const;
  // Of one with so many tokens of prompts beside them, of which a cache has those before.
  struct Prompt {
    double tokens = 0;
    double cached = 0;
  };
  double with_prompt_s(double rows, double context, const Prompt& prompt) const;

  // Tokens of prompts in a step beside so many rows, at most.
  double prompt_tokens_max(double rows) const;

 private:
  // Of a step, by whole numbers.
  struct Step {
    int64_t rows = 0;
    int64_t context = 0;
    int64_t tokens = 0;
    int64_t cached = 0;

    friend bool operator==(const Step&, const Step&) = default;
  };
  struct Known {
    Step step = {.rows = -1};
    double seconds = 0;
  };
  double whole_s(const Step& step) const;
  double modelled_s(const Step& step) const;

  const cost_model::StepTimeModel& times_;
  cost_model::Windows windows_;
  int step_tokens_;
  int beside_decodes_;  // 0: no bound
  double noise_;        // mean of what steps take beyond the model
  double prompt_noise_;
  mutable std::vector<Known> known_;  // by a hash of the step
};

}  // namespace pelton::simulator
