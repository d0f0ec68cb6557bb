// How ranks that somebody else has started, on several hosts, find their leader: it listens at one
// place that all know, and lets in who proves that it knows the secret that all share. Each
// follower makes two connections, one for steps and one for heartbeats, and says where it listens
// for numbers. Whoever else comes is refused and ends nothing; a rank that is there twice hears
// so. The calling thread, at the start of a group.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "parallel/channel.h"
#include "parallel/member.h"
#include "parallel/sockets.h"

namespace pelton::parallel {

struct Meeting {
  int ranks = 2;
  Place leader;  // where it listens
  std::string secret;
  int64_t wait_ns = 300'000'000'000;  // for all to be there
  // Asked often; true ends the wait.
  std::function<bool()> stopped = [] { return false; };
};

// A follower, as the leader has it.
struct Guest {
  Channel steps{-1};
  Channel control{-1};
  uint64_t number = 0;  // drawn by the process: of both its connections
  Place data;           // where it listens for numbers

  bool is_there() const { return steps.descriptor() >= 0 && control.descriptor() >= 0; }
};

// Returns when all have come, in the order of their ranks, from 1. Errors: kUnavailable naming who
// is missing, which those who came hear as well; kIo where the place is taken.
Result<std::vector<Guest>> meet_followers(const Meeting& meeting);

// A follower's way to its leader: its ends of a group, which become the caller's (member.h).
// Errors: kUnavailable where there is no leader in time; kBadConfig: it has refused, and why.
Result<MemberDescriptors> meet_leader(const Meeting& meeting, int rank);

// Of a group that starts now: what its ranks show each other when they connect for numbers.
std::string data_token(std::string_view secret, std::string_view session);

// What a leader that gives up sends instead of a job.
std::string refusal(std::string_view why);

}  // namespace pelton::parallel
