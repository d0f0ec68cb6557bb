#include "net/http_time.h"

#include <array>
#include <ctime>

#include <fmt/format.h>

namespace pelton::net {

std::string http_date(int64_t unix_seconds) {
  // By hand: strftime would write the names in the process's locale.
  static constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                       "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t seconds = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  if (gmtime_r(&seconds, &utc) == nullptr) return "Thu, 01 Jan 1970 00:00:00 GMT";
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<size_t>(utc.tm_wday)], utc.tm_mday,
                     kMonths[static_cast<size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour,
                     utc.tm_min, utc.tm_sec);
}

}  // namespace pelton::net
