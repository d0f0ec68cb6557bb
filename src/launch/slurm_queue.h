// What Slurm's programs print, and what they are given: text in, values out, and the reverse. Lines
// of others, or that are none, are passed over. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/launcher.h"

namespace pelton::launch {

// Format of `squeue`: a job's id, state, time left, reason and comment.
constexpr const char* kQueueFormat = "%i|%T|%L|%r|%k";

struct SlurmJob {
  enum class State { kPending, kRunning, kEnding, kEnded };

  int64_t id = 0;
  State state = State::kPending;
  std::string state_name;         // as Slurm says it: "RUNNING"
  std::optional<int64_t> left_s;  // until its time limit; none: it has none, or does not run
  std::string reason;             // why it waits
  ReplicaOrder order;

  friend bool operator==(const SlurmJob&, const SlurmJob&) = default;
};

// A job's comment: "pelton FLEET ORDINAL TOKEN POOL"; a pool's name may have spaces.
std::string slurm_comment(std::string_view fleet, const ReplicaOrder& order);
// Jobs of this fleet, in the order of their ids.
std::vector<SlurmJob> parse_queue(std::string_view text, std::string_view fleet);

// "2-03:04:05", "1:02:03", "4:05"; none for "UNLIMITED" and what is no time.
std::optional<int64_t> parse_time_left(std::string_view text);

// Of `sbatch --parsable`: "123" or "123;cluster".
std::optional<int64_t> parse_job_id(std::string_view text);

// Of `scontrol --oneliner show job`: "ExitCode=4:0".
std::optional<int> parse_exit_code(std::string_view text);

// A batch script that says its node's name and becomes the program.
std::string batch_script(const std::vector<std::string>& words);

}  // namespace pelton::launch
