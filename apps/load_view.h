// A load test as it runs, on one line of the terminal: how many are done, at what rates, how long
// still, and the shape of the times to the first token. Draws from a thread of its own, so that
// drawing never holds up what is measured.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"
#include "bench/load_generator.h"
#include "cli/interrupt.h"

namespace pelton::apps {

class LoadView {
 public:
  // All outlive it. Passes a pending interrupt on to `stop`, terminal or not.
  LoadView(const bench::LoadGenerator& generator, const cli::Interrupt& interrupt,
           std::atomic<bool>& stop, const base::Clock& clock, bool wanted);
  ~LoadView();  // clears the line
  LoadView(const LoadView&) = delete;
  LoadView& operator=(const LoadView&) = delete;

  // The line, at most `width` columns; for drawing and for tests.
  static std::string line(const bench::LoadProgress& progress, double seconds, double tokens_per_s,
                          int width);

 private:
  void run();

  const bench::LoadGenerator& generator_;
  const cli::Interrupt& interrupt_;
  std::atomic<bool>& stop_;
  const base::Clock& clock_;
  const bool drawn_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace pelton::apps
