#include "grammar/numeric_bounds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace pelton::grammar {
namespace {

constexpr int64_t kDigitsMax = 400;
// Nobody writes a smaller number without an exponent.
constexpr const char* kNextToZero = "1e-17";

constexpr uint32_t kDot = 10;
constexpr uint32_t kMinus = 11;
constexpr uint32_t kOther = 12;
constexpr uint32_t kLetters = 13;

// A magnitude, written out: no zeros in front of `whole` (0 is empty), none behind `fraction`.
struct Digits {
  std::string whole, fraction;
  bool is_zero() const { return whole.empty() && fraction.empty(); }
};

struct Bound {
  Digits digits;
  bool negative = false;
};

Result<Bound> read_bound(std::string_view text) {
  const Error no_number{ErrorCode::kInvalidArgument,
                        fmt::format("a bound is no number: '{}'", text.substr(0, 40)), ""};
  Bound bound;
  size_t at = 0;
  const auto digits = [&] {
    const size_t began = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return std::string(text.substr(began, at - began));
  };
  if (at < text.size() && text[at] == '-') {
    bound.negative = true;
    ++at;
  }
  std::string all = digits();
  if (all.empty()) return no_number;
  int64_t point = static_cast<int64_t>(all.size());
  if (at < text.size() && text[at] == '.') {
    ++at;
    const std::string fraction = digits();
    if (fraction.empty()) return no_number;
    all += fraction;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && text[at] == '+') ++at;
    int64_t exponent = 0;
    const auto [end, error] =
        std::from_chars(text.data() + at, text.data() + text.size(), exponent);
    if (error == std::errc::invalid_argument) return no_number;
    if (error != std::errc() || exponent > 100'000 || exponent < -100'000) exponent = 100'000;
    at = static_cast<size_t>(end - text.data());
    point += exponent;
  }
  if (at != text.size()) return no_number;
  const size_t first = std::min(all.find_first_not_of('0'), all.size());
  all.erase(0, first);
  point -= static_cast<int64_t>(first);
  all.erase(all.find_last_not_of('0') + 1);
  if (all.empty()) return Bound{};
  const int64_t size = static_cast<int64_t>(all.size());
  if (std::max(point, int64_t{0}) + std::max(size - point, int64_t{0}) > kDigitsMax) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("a bound of more than {} digits: {}", kDigitsMax, text.substr(0, 40)),
                 ""};
  }
  if (point <= 0) {
    bound.digits.fraction = std::string(static_cast<size_t>(-point), '0') + all;
  } else if (point >= size) {
    bound.digits.whole = all + std::string(static_cast<size_t>(point - size), '0');
  } else {
    bound.digits.whole = all.substr(0, static_cast<size_t>(point));
    bound.digits.fraction = all.substr(static_cast<size_t>(point));
  }
  return bound;
}

// The nearest bound that is not excluded, below (towards = -1) or above (1).
std::string next_double(const std::string& text, int towards) {
  const double value = std::strtod(text.c_str(), nullptr);
  if (value == 0) return towards < 0 ? std::string("-") + kNextToZero : kNextToZero;
  const double next = std::nextafter(value, towards * std::numeric_limits<double>::infinity());
  char digits[64];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), next);
  return std::string(digits, end.ptr);
}

// Which magnitudes one sign allows; nothing means no limit.
struct Interval {
  bool possible = false;
  std::optional<Digits> low, high;
};

enum class Phase : uint8_t { kStart, kMinus, kZero, kWhole, kDot, kFraction };

// Where a text stands: how it compares, as far as it is known, with either limit of its sign. While
// the whole part is read only equal counts of digits compare; from the dot on it is the number.
// Between 10 and 25.5, (low, high) behind each byte:
//   2 (above, equal)  5 (above, equal)  . (above, equal)  5 (above, equal): accepted; 6: above the
//   high limit, so no way on
// 9 and 100 compare by their counts of digits when they end: 9 is below 10, 100 above 25.5.
struct Place {
  Phase phase = Phase::kStart;
  bool negative = false;
  uint32_t digits = 0;  // in this part; no longer counted where it makes no difference
  int low = 0;          // -1: below the limit, 0: equal so far, 1: above
  int high = 0;

  uint64_t key() const {
    return static_cast<uint64_t>(phase) | uint64_t{negative} << 3 | uint64_t{digits} << 8 |
           static_cast<uint64_t>(low + 1) << 40 | static_cast<uint64_t>(high + 1) << 42;
  }
};

class Writer {
 public:
  Writer(Interval positive, Interval negative)
      : positive_(std::move(positive)), negative_(std::move(negative)) {}

  ByteDfa write() {
    ByteDfa::ByteClasses classes;
    classes.fill(kOther);
    for (uint8_t d = 0; d < 10; ++d) classes[static_cast<size_t>('0' + d)] = d;
    classes['.'] = kDot;
    classes['-'] = kMinus;
    table_ = DfaTable::with_letters(kLetters);
    table_.start = state_of({});
    for (DfaState s = 1; s < table_.state_count(); ++s) {
      const Place place = places_[s - 1];
      table_.accepting[s] = accepts(place) ? 1 : 0;
      for (uint32_t letter = 0; letter < kOther; ++letter) {
        const std::optional<Place> next = step(place, letter);
        if (!next) continue;
        const DfaState to = state_of(*next);
        table_.at(s, letter) = to;
      }
    }
    return {classes, table_};
  }

 private:
  DfaState state_of(const Place& place) {
    const auto [at, fresh] = numbers_.emplace(place.key(), table_.state_count());
    if (fresh) {
      table_.add_state();
      places_.push_back(place);
    }
    return at->second;
  }

  const Interval& interval(const Place& place) const {
    return place.negative ? negative_ : positive_;
  }

  std::optional<Place> step(const Place& from, uint32_t letter) const {
    Place to = from;
    if (letter == kMinus) {
      if (from.phase != Phase::kStart || !negative_.possible) return std::nullopt;
      to.phase = Phase::kMinus;
      to.negative = true;
      return to;
    }
    if (letter == kDot) {
      if (from.phase != Phase::kZero && from.phase != Phase::kWhole) return std::nullopt;
      to = at_point(from);
      to.phase = Phase::kDot;
      return settled(to);
    }
    switch (from.phase) {
      case Phase::kStart:
      case Phase::kMinus:
        if (!interval(from).possible) return std::nullopt;
        to.phase = letter == 0 ? Phase::kZero : Phase::kWhole;
        return letter == 0 ? to : with_digit(to, letter);
      case Phase::kZero:
        return std::nullopt;
      case Phase::kWhole:
        return with_digit(to, letter);
      case Phase::kDot:
      case Phase::kFraction:
        to.phase = Phase::kFraction;
        return settled(with_digit(to, letter));
    }
    return std::nullopt;
  }

  Place with_digit(Place place, uint32_t digit) const {
    const bool whole = place.phase == Phase::kWhole;
    size_t longest = 0;
    const auto compare = [&](const std::optional<Digits>& limit, int so_far) {
      if (!limit) return so_far;
      const std::string& theirs = whole ? limit->whole : limit->fraction;
      longest = std::max(longest, theirs.size());
      if (so_far != 0) return so_far;
      // Past the end of a whole part it is the count that decides; of a fraction, zeros follow.
      if (place.digits >= theirs.size()) return !whole && digit > 0 ? 1 : 0;
      const uint32_t their_digit = static_cast<uint32_t>(theirs[place.digits] - '0');
      return digit < their_digit ? -1 : digit > their_digit ? 1 : 0;
    };
    place.low = compare(interval(place).low, place.low);
    place.high = compare(interval(place).high, place.high);
    place.digits = std::min(place.digits + 1, static_cast<uint32_t>(longest) + 1);
    return place;
  }

  // The whole part has ended: its length decides first.
  Place at_point(Place place) const {
    const auto compare = [&](const std::optional<Digits>& limit, int so_far) {
      if (!limit) return 0;
      if (place.digits != limit->whole.size()) return place.digits < limit->whole.size() ? -1 : 1;
      return so_far;
    };
    place.low = compare(interval(place).low, place.low);
    place.high = compare(interval(place).high, place.high);
    place.digits = 0;
    return place;
  }

  // In a fraction: no more counting where both limits are decided, no way on where one is missed.
  std::optional<Place> settled(Place place) const {
    const Interval& limits = interval(place);
    if ((limits.low && place.low < 0) || (limits.high && place.high > 0)) return std::nullopt;
    const bool open = (limits.low && place.low == 0) || (limits.high && place.high == 0);
    if (!open) place.digits = 0;
    return place;
  }

  bool accepts(const Place& from) const {
    if (from.phase != Phase::kZero && from.phase != Phase::kWhole &&
        from.phase != Phase::kFraction) {
      return false;
    }
    const Place place = from.phase == Phase::kFraction ? from : at_point(from);
    const auto compared = [&](const std::optional<Digits>& limit, int so_far) {
      // What the limit has behind our last digit is not zero.
      return so_far == 0 && place.digits < limit->fraction.size() ? -1 : so_far;
    };
    const Interval& limits = interval(place);
    return (!limits.low || compared(limits.low, place.low) >= 0) &&
           (!limits.high || compared(limits.high, place.high) <= 0);
  }

  const Interval positive_, negative_;
  DfaTable table_;
  std::vector<Place> places_;  // by state, from 1 on
  std::unordered_map<uint64_t, DfaState> numbers_;
};

// The magnitudes of numbers that are not below zero, from `least` to `most`.
Interval of_sign(const std::optional<Bound>& least, const std::optional<Bound>& most) {
  Interval out;
  if (most && most->negative) return out;
  out.possible = true;
  if (least && !least->negative && !least->digits.is_zero()) out.low = least->digits;
  if (most) out.high = most->digits;
  return out;
}

std::optional<Bound> mirrored(const std::optional<Bound>& bound) {
  if (!bound) return std::nullopt;
  return Bound{bound->digits, !bound->negative && !bound->digits.is_zero()};
}

}  // namespace

Result<ByteDfa> numbers_between(const NumericBounds& bounds) {
  std::optional<Bound> least, most;
  if (bounds.minimum) {
    TRY_ASSIGN(least, read_bound(*bounds.minimum));
    if (bounds.minimum_excluded) {
      TRY_ASSIGN(least, read_bound(next_double(*bounds.minimum, 1)));
    }
  }
  if (bounds.maximum) {
    TRY_ASSIGN(most, read_bound(*bounds.maximum));
    if (bounds.maximum_excluded) {
      TRY_ASSIGN(most, read_bound(next_double(*bounds.maximum, -1)));
    }
  }
  return Writer(of_sign(least, most), of_sign(mirrored(most), mirrored(least))).write();
}

}  // namespace pelton::grammar
