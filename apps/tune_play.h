// Plays settings of `pelton tune` in the simulator, each once: what --history keeps is not played
// again. Main thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/tune_point.h"
#include "apps/variations.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "report/goodput.h"
#include "store/played_points.h"

namespace pelton::apps {

// The key of a Variation of --hardware LIST: not a flag of simulate, but one of its --gpu and
// --instance, with as many devices as a copy may need.
inline constexpr const char* kHardwareKey = "hardware";

// "h100@2.5": NAME[@DOLLARS], of a device for an hour, or of an instance whole.
struct NamedHardware {
  std::string name;
  std::optional<double> dollars;
};
// Errors: kInvalidArgument, also where neither a GPU nor an instance has that name.
Result<NamedHardware> parse_named_hardware(const std::string& text);
// Nothing where the flag is not given.
Result<std::optional<Variation>> read_hardware_axis(const cli::Arguments& arguments);

class PointPlayer {
 public:
  // Opens --history. `flags`: the verb's.
  static Result<PointPlayer> make(const cli::Arguments& arguments, std::vector<cli::Flag> flags);

  // Of `arguments` with these settings. Settings that are no flag's value are an error; those that
  // fit on no machine are a run that says so.
  Result<PlayedRun> play(const cli::Arguments& arguments, const Settings& settings);
  Result<Point> judge(const cli::Arguments& arguments, Settings settings,
                      const std::vector<report::Objective>& objectives, BestBy best_by);
  // What settings come to as flags.
  Result<cli::Arguments> with_settings(const cli::Arguments& arguments,
                                       const Settings& settings) const;
  const std::vector<cli::Flag>& flags() const { return flags_; }

  int64_t played() const { return played_; }
  int64_t reused() const { return reused_; }

 private:
  Result<std::string> key_of(const cli::Arguments& changed, const Settings& settings);
  Result<std::string> digest_of_file(const std::string& file);
  void keep(const std::string& key, const cli::Arguments& changed, const Settings& settings,
            const PlayedRun& run);

  std::vector<cli::Flag> flags_;
  std::optional<store::PlayedPoints> history_;
  bool is_noted_ = false;                       // of how the load's file was read
  bool keeps_ = true;                           // false: the history could not be written
  std::map<std::string, std::string> digests_;  // of files, by name
  int64_t played_ = 0;
  int64_t reused_ = 0;
};

// --list: the newest of the file.
Result<std::string> history_list(const std::string& file);

}  // namespace pelton::apps
