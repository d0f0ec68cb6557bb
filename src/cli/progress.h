// How far long work is, with time left and rate. On a terminal a bar on stderr, drawn at most ten
// times a second; elsewhere a line every ten seconds, so that a service's log shows that it goes
// on. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "cli/terminal.h"

namespace pelton::cli {

class Progress {
 public:
  enum class Unit { kBytes, kCount };

  // Where lines go that stderr, being no terminal, does not get as a bar.
  using Lines = std::function<void(const std::string& line)>;

  Progress(std::string label, Unit unit, const base::Clock& clock);  // lines go to stderr
  Progress(std::string label, Unit unit, const base::Clock& clock, Lines lines);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, int64_t total);
  // Other work, timed from now on; lines keep their distance.
  void begin(std::string label, Unit unit);
  // Takes the line away, for other words to stand there; update() draws it again.
  void clear();

  // Label, bar, share, time left, amounts, rate, in at most `width` columns: what comes last is
  // left out first, and the bar before anything else. A total of 0: nobody knows, the label alone.
  // For update and for tests.
  static std::string line(const std::string& label, Unit unit, int64_t done, int64_t total,
                          double seconds, int width);

 private:
  std::string label_;
  Unit unit_;
  const base::Clock& clock_;
  const Lines lines_;
  const Terminal terminal_;
  int64_t start_ns_;
  int64_t shown_ns_;    // when a bar or line was last shown; before the first one, the beginning
  bool drawn_ = false;  // a bar stands there
};

}  // namespace pelton::cli
