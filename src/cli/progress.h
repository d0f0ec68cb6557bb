// A progress bar with rate and time left, on stderr. Draws at most ten times a second, only on a
// terminal; elsewhere it is silent. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "cli/terminal.h"

namespace pelton::cli {

class Progress {
 public:
  enum class Unit { kBytes, kCount };

  Progress(std::string label, Unit unit, const base::Clock& clock);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, int64_t total);

  // The line without its bar's colours, at most `width` columns; for update and for tests.
  static std::string line(const std::string& label, Unit unit, int64_t done, int64_t total,
                          double seconds, int width);

 private:
  const std::string label_;
  const Unit unit_;
  const base::Clock& clock_;
  const Terminal terminal_;
  const int64_t start_ns_;
  int64_t drawn_ns_ = 0;
  bool drawn_ = false;
};

}  // namespace pelton::cli
