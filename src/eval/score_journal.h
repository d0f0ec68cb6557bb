// What a comparison over a text has computed so far, in a file, so that one that was interrupted
// goes on: a first line that says of what, then a line for each window. Of one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "eval/divergence.h"

namespace pelton::eval {

class ScoreJournal {
 public:
  // `digest`: of the models, the text and how it is cut. What the file has is known; a line that
  // was cut, and what stands behind a gap, is not. Errors: kInvalidArgument (it is of another
  // digest), kIo.
  static Result<ScoreJournal> open(const std::string& path, const std::string& digest);

  // Of the text's second token and those behind it.
  std::span<const PositionScore> known() const { return known_; }

  // Of the tokens behind all those before, in order. Errors: kIo.
  Result<void> keep(std::span<const PositionScore> scores);

 private:
  Result<void> read(std::string_view text, const std::string& path, const std::string& digest);

  std::string path_;
  base::OutputFile file_;
  std::vector<PositionScore> known_;
  int64_t kept_ = 0;
};

}  // namespace pelton::eval
