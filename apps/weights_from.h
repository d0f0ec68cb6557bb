// `pelton serve --weights-from`: models fetched from peers and an origin before they are loaded,
// into
// --weights-cache or, where no copy is asked for, a folder that is gone once they are. Owned by the
// verb; the load thread, one model at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "weights/fetch.h"
#include "weights/share_server.h"
#include "weights/temporary_copy.h"

namespace pelton::apps {

// --weights-from and weights_source_flags().
std::vector<cli::Flag> weights_from_flags();

class WeightsFrom {
 public:
  struct Fetched {
    std::string folder;  // to be loaded
    std::vector<std::pair<std::string, double>> phases = {};
    std::optional<weights::TemporaryCopy> temporary = {};  // to be kept until that is done
  };

  // Null without --weights-from. `clock` and `log` outlive it. Errors: kInvalidArgument,
  // kBadConfig, those of the listener.
  static Result<std::unique_ptr<WeightsFrom>> open(const cli::Arguments& arguments,
                                                   const base::Clock& clock, base::Log& log);

  // A folder that is here is served as it is. Any thread, also for several models at once. Errors:
  // those of weights::mirror().
  Result<Fetched> fetch(const std::string& model, const std::function<bool()>& stopped);

 private:
  WeightsFrom(const base::Clock& clock, base::Log& log) : clock_(clock), log_(log) {}

  const base::Clock& clock_;
  base::Log& log_;
  std::string cache_;                            // empty: no copy is kept
  weights::FetchOptions options_;                // its places hold models, each below its name
  std::unique_ptr<weights::ShareServer> share_;  // null: nothing is given on
};

}  // namespace pelton::apps
