// Results kept over time in an SQLite file, and whether a new one is worse than those before it of
// the same setup. Owned by whoever opens it; one thread. The only file of this room that knows
// SQLite.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "report/comparison.h"

namespace pelton::report {

struct PastResult {
  int64_t id = 0;
  std::string date;
  Json json;
};

class History {
 public:
  // Made if it is not there. Errors: kIo, naming the file.
  static Result<History> open(const std::string& file);
  // To read alone: where there is no such file, none is made.
  static Result<History> open_existing(const std::string& file);

  History(History&&) noexcept;
  ~History();

  // A result as result_json writes it, but for what only its own report draws.
  Result<void> add(const Json& result);
  // Those of the same setup, the newest first.
  Result<std::vector<PastResult>> alike(const Json& result, int count_max) const;
  Result<std::vector<PastResult>> newest(int count_max) const;

 private:
  struct Database;
  explicit History(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

// What makes results comparable: server dialect, model, prompts, load, label.
std::string setup_of(const Json& result);

struct Regression {
  Figure figure;
  double before = 0;  // the median of the earlier results
  double now = 0;
};

// Figures that are worse than the earlier results' median by more than 5 %, and worse than the
// worst of them: a machine's own noise is no news.
std::vector<Regression> regressions(const Json& now, const std::vector<PastResult>& before);

std::string regressions_text(const std::vector<Regression>& found, size_t compared_with);
// A line for each result, the newest last.
// Within `width` columns; 0: as many as it takes.
std::string history_text(const std::vector<PastResult>& results, int width);

}  // namespace pelton::report
