#include "gateway/schedule_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/time_zone.h"
#include "cli/wording.h"
#include "gateway/config_table.h"

namespace pelton::gateway {
namespace {

using autoscaler::Schedule;

constexpr std::array<std::string_view, 7> kDays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

std::optional<int> day_of(std::string_view text) {
  const auto found = std::ranges::find(kDays, text);
  if (found == kDays.end()) return std::nullopt;
  return static_cast<int>(found - kDays.begin());
}

// "mon", or "fri-mon" over the week's end.
std::optional<uint8_t> days_of(std::string_view text) {
  const size_t dash = text.find('-');
  const std::optional<int> first = day_of(text.substr(0, dash));
  const std::optional<int> last =
      dash == std::string_view::npos ? first : day_of(text.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  uint8_t days = 0;
  for (int day = *first;; day = (day + 1) % 7) {
    days = static_cast<uint8_t>(days | 1 << day);
    if (day == *last) return days;
  }
}

// "HH:MM" as minutes.
std::optional<int> minutes_of(std::string_view text) {
  const auto digit = [&](size_t i) { return std::isdigit(static_cast<unsigned char>(text[i])); };
  if (text.size() != 5 || text[2] != ':' || !digit(0) || !digit(1) || !digit(3) || !digit(4)) {
    return std::nullopt;
  }
  const int hours = (text[0] - '0') * 10 + text[1] - '0';
  const int minutes = (text[3] - '0') * 10 + text[4] - '0';
  if (minutes > 59 || hours > 24 || (hours == 24 && minutes > 0)) return std::nullopt;
  return hours * 60 + minutes;
}

Result<void> read_days(const ConfigTable& table, Schedule& schedule) {
  std::vector<std::string> texts;
  TRY(table.read("days", texts));
  if (!table.has("days")) return {};
  if (texts.empty()) return table.bad("days", "is empty: without 'days' it is every day");
  schedule.days = 0;
  for (const std::string& text : texts) {
    const std::optional<uint8_t> days = days_of(text);
    if (!days) return table.bad("days", "must be days as in \"mon-fri\" or [\"sat\", \"sun\"]");
    schedule.days = static_cast<uint8_t>(schedule.days | *days);
  }
  return {};
}

Result<void> read_time(const ConfigTable& table, std::string_view key, int& minutes) {
  std::string text;
  TRY(table.read(key, text));
  if (text.empty()) return table.bad(key, "is missing: a time as in \"07:30\"");
  const std::optional<int> read = minutes_of(text);
  if (!read) return table.bad(key, "must be a time from 00:00 to 24:00, as in \"07:30\"");
  minutes = *read;
  return {};
}

// Of this machine: Debian's package tzdata.
constexpr const char* kZones = "/usr/share/zoneinfo";

// What stands beside it there, and is called alike.
std::string zone_meant(const std::string& name) {
  namespace fs = std::filesystem;
  const std::string region = fs::path(name).parent_path().string();
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(fs::path(kZones) / region, failed), end; !failed && at != end;
       at.increment(failed)) {
    names.push_back((fs::path(region) / at->path().filename()).string());
  }
  return cli::did_you_mean(name, names);
}

Result<void> read_named_zone(const ConfigTable& table, const std::string& name,
                             Schedule& schedule) {
  Result<base::TimeZone> zone = base::read_time_zone(kZones, name);
  if (zone.ok()) {
    schedule.zone = *std::move(zone);
    return {};
  }
  const bool is_name = zone.error().message.find("is no name") == std::string::npos;
  if (!is_name) {
    return table.bad("zone",
                     "must be UTC, an offset as in \"+01:00\", or a zone's name as in "
                     "\"Europe/Berlin\"");
  }
  if (zone.error().code != ErrorCode::kNotFound) return table.bad("zone", zone.error().message);
  return table.bad(
      "zone", fmt::format("'{}' is not in {} (package tzdata){}", name, kZones, zone_meant(name)));
}

Result<void> read_zone(const ConfigTable& table, Schedule& schedule) {
  constexpr int kOffsetMax = 14 * 60;
  std::string text = "UTC";
  TRY(table.read("zone", text));
  if (text == "UTC") return {};
  const bool is_signed = !text.empty() && (text[0] == '+' || text[0] == '-');
  if (!is_signed) return read_named_zone(table, text, schedule);
  const std::optional<int> offset = minutes_of(std::string_view(text).substr(1));
  if (!offset || *offset > kOffsetMax) {
    return table.bad("zone", "must be at most 14 hours from UTC, as in \"+01:00\"");
  }
  schedule.utc_offset_minutes = text[0] == '-' ? -*offset : *offset;
  return {};
}

Result<void> read_schedule(const ConfigTable& table, std::vector<Schedule>& schedules) {
  constexpr double kReplicasMax = 10'000;
  TRY(table.expect_only({"days", "from", "to", "zone", "min", "max"}));
  Schedule schedule;
  TRY(read_days(table, schedule));
  TRY(read_time(table, "from", schedule.from_minute));
  TRY(read_time(table, "to", schedule.to_minute));
  if (schedule.from_minute == Schedule::kDayMinutes) {
    return table.bad("from", "is the end of the day: write \"00:00\" of the next one");
  }
  TRY(read_zone(table, schedule));
  TRY(table.read("min", {0, kReplicasMax}, schedule.replicas_min));
  TRY(table.read("max", {1, kReplicasMax}, schedule.replicas_max));
  schedules.push_back(schedule);
  return {};
}

std::string time_text(int minutes) {
  return fmt::format("{:02}:{:02}", minutes / 60, minutes % 60);
}

}  // namespace

Result<void> read_schedules(const ConfigTable& table, std::vector<Schedule>& schedules) {
  return table.read_tables("schedules",
                           [&](const ConfigTable& one) { return read_schedule(one, schedules); });
}

std::string schedules_text(const std::vector<Schedule>& schedules) {
  std::string out;
  for (const Schedule& one : schedules) {
    std::string days;
    for (size_t day = 0; day < kDays.size(); ++day) {
      if ((one.days >> day & 1) == 0) continue;
      days += fmt::format("{}\"{}\"", days.empty() ? "" : ", ", kDays[day]);
    }
    const int offset = one.utc_offset_minutes;
    const std::string zone = one.zone.name.empty()
                                 ? (offset < 0 ? "-" : "+") + time_text(std::abs(offset))
                                 : one.zone.name;
    out += fmt::format("{}{{days = [{}], from = \"{}\", to = \"{}\", zone = \"{}\"",
                       out.empty() ? "" : ", ", days, time_text(one.from_minute),
                       time_text(one.to_minute), zone);
    if (one.replicas_min) out += fmt::format(", min = {}", *one.replicas_min);
    if (one.replicas_max) out += fmt::format(", max = {}", *one.replicas_max);
    out += "}";
  }
  return "[" + out + "]";
}

}  // namespace pelton::gateway
