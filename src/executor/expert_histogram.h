// The file in which a server keeps how often its tokens chose each expert, from start to start
// (--expert-histogram): what experts are dealt out to ranks by. One thread.
#pragma once

#include <string>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "layers/expert_placement.h"

namespace pelton::executor {

class ExpertHistogram {
 public:
  // What the file has; nothing where there is none yet. Errors: kBadConfig naming the file; kIo.
  static Result<ExpertHistogram> open(const std::string& file);

  const layers::ExpertLoads& before() const { return before_; }
  // The file becomes what it had, and what was chosen since. Error: kIo.
  Result<void> keep(const layers::ExpertLoads& since) const;

 private:
  explicit ExpertHistogram(std::string file) : file_(std::move(file)) {}

  std::string file_;
  layers::ExpertLoads before_;
};

}  // namespace pelton::executor
