#include "base/time_zone.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::base {
namespace {

constexpr int kMinute_s = 60;
constexpr int kHour_s = 3600;
constexpr int kDay_s = 24 * kHour_s;
constexpr int kOffsetMax_s = 26 * kHour_s;
constexpr size_t kFileBytesMax = size_t{256} << 10;

// Big-endian numbers, one after the other. Beyond the end all is zero, and is_sound() false.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : left_(bytes) {}

  int64_t number(size_t size) {
    const std::string_view bytes = take(size);
    uint64_t value = 0;
    for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
    const size_t unused = 64 - 8 * size;
    return static_cast<int64_t>(value << unused) >> unused;  // with its sign
  }
  std::string_view take(size_t size) {
    sound_ = sound_ && size <= left_.size();
    if (!sound_) return {};
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  std::string_view left() const { return left_; }
  bool is_sound() const { return sound_; }

 private:
  std::string_view left_;
  bool sound_ = true;
};

// How many of what a block has.
struct Counts {
  char version = 0;
  size_t utc_flags = 0;
  size_t standard_flags = 0;
  size_t leaps = 0;
  size_t times = 0;
  size_t types = 0;
  size_t letters = 0;

  // Of the block behind them, whose times have so many bytes.
  size_t bytes(size_t time_bytes) const {
    return times * (time_bytes + 1) + types * 6 + letters + leaps * (time_bytes + 4) +
           standard_flags + utc_flags;
  }
};

std::optional<Counts> read_counts(Cursor& in) {
  constexpr size_t kReserved = 15;
  constexpr size_t kMost = 4096;
  if (in.take(4) != "TZif") return std::nullopt;
  Counts counts;
  counts.version = static_cast<char>(in.number(1));
  in.take(kReserved);
  for (size_t* const one : {&counts.utc_flags, &counts.standard_flags, &counts.leaps, &counts.times,
                            &counts.types, &counts.letters}) {
    const int64_t count = in.number(4);
    if (count < 0 || static_cast<size_t>(count) > kMost) return std::nullopt;
    *one = static_cast<size_t>(count);
  }
  if (!in.is_sound()) return std::nullopt;
  return counts;
}

// A day of each year, as POSIX has it in TZ, and when on it.
struct RuleDay {
  enum class Kind { kWeekday, kWithoutLeapDay, kWithLeapDay };
  Kind kind = Kind::kWeekday;
  int month = 0;
  int week = 0;  // 5: the last
  int day = 0;   // of the week, 0 being Sunday; of the year
  int time_s = 2 * kHour_s;

  // By the clock that is in force then.
  int64_t in(int year) const {
    using namespace std::chrono;
    const std::chrono::year y(year);
    sys_days at = sys_days(y / January / 1);
    if (kind == Kind::kWeekday) {
      const auto m = y / std::chrono::month(static_cast<unsigned>(month));
      const weekday on(static_cast<unsigned>(day));
      at = week == 5 ? sys_days(m / on[last]) : sys_days(m / on[static_cast<unsigned>(week)]);
    } else if (kind == Kind::kWithoutLeapDay) {
      constexpr int kMarch = 60;  // from 1
      at += days(day - 1 + (y.is_leap() && day >= kMarch ? 1 : 0));
    } else {
      at += days(day);
    }
    return int64_t{at.time_since_epoch().count()} * kDay_s + time_s;
  }
};

struct Rule {
  int standard_s = 0;           // east of UTC
  std::optional<int> summer_s;  // likewise; none: it is never another one
  RuleDay begin;                // of summer, by the standard clock
  RuleDay end;                  // by summer's
};

// "CET-1CEST,M3.5.0,M10.5.0/3"
class RuleReader {
 public:
  explicit RuleReader(std::string_view text) : left_(text) {}

  std::optional<Rule> read() {
    constexpr int kHoursMax = 24;
    Rule rule;
    name();
    rule.standard_s = -time(kHoursMax);
    if (!left_.empty()) {
      name();
      const bool is_given = !left_.empty() && left_.front() != ',';
      rule.summer_s = is_given ? -time(kHoursMax) : rule.standard_s + kHour_s;
      expect(',');
      rule.begin = day();
      expect(',');
      rule.end = day();
    }
    if (!sound_ || !left_.empty()) return std::nullopt;
    return rule;
  }

 private:
  bool skip(char c) {
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  void expect(char c) { sound_ = skip(c) && sound_; }
  void name() {
    constexpr size_t kLeast = 3;
    size_t size = 0;
    if (skip('<')) {
      size = std::min(left_.find('>'), left_.size());
      left_.remove_prefix(size);
      expect('>');
    } else {
      const auto is_letter = [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
      };
      while (size < left_.size() && is_letter(left_[size])) ++size;
      left_.remove_prefix(size);
    }
    sound_ = sound_ && size >= kLeast;
  }
  int number(int least, int most) {
    constexpr size_t kDigitsMax = 3;
    int value = 0;
    size_t size = 0;
    for (; size < left_.size() && size < kDigitsMax; ++size) {
      const char c = left_[size];
      if (c < '0' || c > '9') break;
      value = value * 10 + (c - '0');
    }
    left_.remove_prefix(size);
    sound_ = sound_ && size > 0 && value >= least && value <= most;
    return value;
  }
  // "-1", "2:30", "+26:00:00": in seconds.
  int time(int hours_max) {
    constexpr int kSixtyLess = 59;
    const bool is_negative = skip('-');
    if (!is_negative) skip('+');
    int seconds = number(0, hours_max) * kHour_s;
    if (skip(':')) {
      seconds += number(0, kSixtyLess) * kMinute_s;
      if (skip(':')) seconds += number(0, kSixtyLess);
    }
    return is_negative ? -seconds : seconds;
  }
  RuleDay day() {
    constexpr int kHoursMax = 167;
    RuleDay day;
    if (skip('M')) {
      day.month = number(1, 12);
      expect('.');
      day.week = number(1, 5);
      expect('.');
      day.day = number(0, 6);
    } else if (skip('J')) {
      day.kind = RuleDay::Kind::kWithoutLeapDay;
      day.day = number(1, 365);
    } else {
      day.kind = RuleDay::Kind::kWithLeapDay;
      day.day = number(0, 365);
    }
    if (skip('/')) day.time_s = time(kHoursMax);
    return day;
  }

  std::string_view left_;
  bool sound_ = true;
};

// When the rule sets the clock, from the year before the first that counts on.
std::vector<TimeZone::Change> changes_by(const Rule& rule) {
  constexpr int kFirstYear = 2025;
  std::vector<TimeZone::Change> changes;
  if (!rule.summer_s) return changes;
  for (int year = kFirstYear; year <= TimeZone::kLastYear; ++year) {
    changes.push_back({rule.begin.in(year)-rule.standard_s, *rule.summer_s});
    changes.push_back({rule.end.in(year) - *rule.summer_s, rule.standard_s});
  }
  // Where it is summer all year one ends as the next one begins, and stands before it.
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  return changes;
}

// The offset when it begins, and what changes it from then on.
TimeZone zone_of(int offset_s, const std::vector<TimeZone::Change>& changes) {
  TimeZone zone{.name = {}, .offset_s = offset_s, .changes = {}};
  for (const TimeZone::Change& one : changes) {
    if (one.at_s <= TimeZone::kBegin_s) {
      zone.offset_s = one.offset_s;
      continue;
    }
    if (!zone.changes.empty() && zone.changes.back().at_s == one.at_s) zone.changes.pop_back();
    const int before = zone.changes.empty() ? zone.offset_s : zone.changes.back().offset_s;
    if (one.offset_s != before) zone.changes.push_back(one);
  }
  return zone;
}

Error damaged(std::string_view why) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("is no compiled time zone: {}", why), {}};
}

bool is_zone_name(std::string_view name) {
  constexpr size_t kBytesMax = 64;
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/";
  // Each part begins with a letter, so none leads elsewhere.
  char before = '/';
  for (const char c : name) {
    const bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (before == '/' && !is_letter) return false;
    before = c;
  }
  return before != '/' && name.size() <= kBytesMax &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

}  // namespace

int TimeZone::offset_at(int64_t unix_s) const {
  const auto after =
      std::upper_bound(changes.begin(), changes.end(), unix_s,
                       [](int64_t at_s, const Change& one) { return at_s < one.at_s; });
  return after == changes.begin() ? offset_s : std::prev(after)->offset_s;
}

Result<TimeZone> parse_time_zone(std::string_view bytes) {
  Cursor in(bytes);
  const std::optional<Counts> first = read_counts(in);
  if (!first) return damaged("its head");
  if (first->version < '2') return damaged("version 1, which says nothing of the future");
  in.take(first->bytes(4));  // the same for programs of 32 bits
  const std::optional<Counts> counts = read_counts(in);
  if (!counts) return damaged("its second head");
  if (counts->leaps > 0) return damaged("it counts leap seconds");
  if (counts->types == 0) return damaged("it has no clock");
  Cursor times(in.take(counts->times * 8));
  Cursor indexes(in.take(counts->times));
  Cursor types(in.take(counts->types * 6));
  in.take(counts->letters + counts->standard_flags + counts->utc_flags);
  if (!in.is_sound()) return damaged("it is cut off");
  std::vector<int> offsets;
  for (size_t i = 0; i < counts->types; ++i) {
    const int64_t offset_s = types.number(4);
    types.take(2);
    if (std::abs(offset_s) > kOffsetMax_s) return damaged("an offset");
    offsets.push_back(static_cast<int>(offset_s));
  }
  std::vector<TimeZone::Change> changes;
  for (size_t i = 0; i < counts->times; ++i) {
    const int64_t at_s = times.number(8);
    const auto type = static_cast<uint8_t>(indexes.number(1));
    const bool is_next = changes.empty() || at_s > changes.back().at_s;
    if (!is_next || type >= offsets.size()) return damaged("its changes");
    changes.push_back({at_s, offsets[type]});
  }
  const std::string_view footer = in.left();
  if (footer.size() < 2 || footer.front() != '\n' || footer.back() != '\n') {
    return damaged("its rule for the future is cut off");
  }
  const std::string_view text = footer.substr(1, footer.size() - 2);
  const int64_t last_s = changes.empty() ? INT64_MIN : changes.back().at_s;
  if (!text.empty()) {
    const std::optional<Rule> rule = RuleReader(text).read();
    if (!rule) return damaged("its rule for the future");
    for (const TimeZone::Change& one : changes_by(*rule)) {
      if (one.at_s > last_s) changes.push_back(one);
    }
  }
  return zone_of(offsets[0], changes);
}

Result<TimeZone> read_time_zone(const std::string& folder, const std::string& name) {
  if (!is_zone_name(name)) {
    return Error{
        ErrorCode::kInvalidArgument, fmt::format("'{}' is no name of a time zone", name), {}};
  }
  const std::string path = folder + "/" + name;
  TRY_ASSIGN(const std::string bytes, read_file(path, kFileBytesMax));
  Result<TimeZone> zone = parse_time_zone(bytes);
  if (!zone.ok()) {
    Error error = zone.error();
    error.message = path + " " + error.message;
    return error;
  }
  zone->name = name;
  return zone;
}

}  // namespace pelton::base
