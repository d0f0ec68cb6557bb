// Clocks of places: when they are set, and by how much, as IANA's data base says it (Debian's
// package tzdata). Of its compiled files (TZif, RFC 8536) what is over is left out, and the rule
// for the future is written out for as long as a process may run. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::base {

struct TimeZone {
  static constexpr int64_t kBegin_s = 1'767'225'600;  // 2026-01-01; of what was before nothing
  static constexpr int kLastYear = 2099;

  struct Change {
    int64_t at_s = 0;
    int offset_s = 0;  // east of UTC, from then on

    friend bool operator==(const Change&, const Change&) = default;
  };

  std::string name;             // "Europe/Berlin"; empty: there is none
  int offset_s = 0;             // until the first change
  std::vector<Change> changes;  // ascending, each by something

  int offset_at(int64_t unix_s) const;

  friend bool operator==(const TimeZone&, const TimeZone&) = default;
};

// Of such a file's bytes, without its name. Errors: kInvalidArgument: it is none, is damaged, or is
// of a kind that says nothing of the future (version 1) or counts leap seconds.
Result<TimeZone> parse_time_zone(std::string_view bytes);

// `folder`: "/usr/share/zoneinfo". Errors: kInvalidArgument (no name of a zone, or as above),
// kNotFound, kIo.
Result<TimeZone> read_time_zone(const std::string& folder, const std::string& name);

}  // namespace pelton::base
