// Writes down what each step computed and how long it took, as lines that `pelton calibrate` reads
// (docs/formats/step_log.md): an executor around another one. Engine thread only.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/executor.h"

namespace pelton::engine {

class LoggedExecutor final : public Executor {
 public:
  // A day's log must not fill the disk.
  static constexpr int64_t kBytesMax = int64_t{1} << 30;

  // `clock` outlives it. kIo: the file cannot be written.
  static Result<std::unique_ptr<LoggedExecutor>> make(std::unique_ptr<Executor> inner,
                                                      const std::string& file,
                                                      const base::Clock& clock);
  ~LoggedExecutor() override;

  const ExecutorCapacity& capacity() const override { return inner_->capacity(); }
  void submit(StepPlan plan) override;
  StepResult collect() override;

 private:
  struct Pending {
    int64_t submitted_ns = 0;
    bool after_pause = false;  // nobody in it was running before
    struct Row {
      int32_t start = 0;
      int32_t count = 0;
      int32_t sampled = 0;
    };
    std::vector<Row> rows;  // none: nothing to log
  };

  LoggedExecutor(std::unique_ptr<Executor> inner, std::FILE* file, const base::Clock& clock);
  void write(int64_t step, const Pending& pending, int64_t now_ns);

  std::unique_ptr<Executor> inner_;
  std::FILE* file_;
  const base::Clock& clock_;
  std::deque<Pending> pending_;
  int64_t last_end_ns_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace pelton::engine
