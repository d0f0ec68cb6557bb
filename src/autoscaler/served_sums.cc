#include "autoscaler/served_sums.h"

#include <algorithm>
#include <cmath>

#include "autoscaler/state_json.h"

namespace pelton::autoscaler {
namespace {

constexpr int64_t kFirstClass = 64;  // tokens
constexpr int64_t kCountMax = int64_t{1} << 53;

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

}  // namespace

void ServedSums::add(const Request& request, int64_t count) {
  size_t at = 0;
  for (int64_t most = kFirstClass; at + 1 < kClasses && request.computed > most; most *= 4) ++at;
  classes[at].requests += count;
  classes[at].computed += count * request.computed;
  input += count * request.input;
  output += count * request.output;
  first_token_s += static_cast<double>(count) * request.first_token_s;
  further_s += static_cast<double>(count) * request.further_s;
}

void ServedSums::add(const ServedSums& gained) {
  for (size_t i = 0; i < kClasses; ++i) {
    classes[i].requests += gained.classes[i].requests;
    classes[i].computed += gained.classes[i].computed;
  }
  input += gained.input;
  output += gained.output;
  first_token_s += gained.first_token_s;
  further_s += gained.further_s;
}

ServedSums ServedSums::since(const ServedSums& before) const {
  ServedSums gained = *this;
  for (size_t i = 0; i < kClasses; ++i) {
    gained.classes[i].requests -= before.classes[i].requests;
    gained.classes[i].computed -= before.classes[i].computed;
  }
  gained.input -= before.input;
  gained.output -= before.output;
  gained.first_token_s -= before.first_token_s;
  gained.further_s -= before.further_s;
  return gained;
}

bool ServedSums::follows(const ServedSums& before) const {
  const ServedSums gained = since(before);
  const bool classes_rise = std::ranges::all_of(
      gained.classes, [](const Class& one) { return one.requests >= 0 && one.computed >= 0; });
  return classes_rise && gained.input >= 0 && gained.output >= 0 && is_time(gained.first_token_s) &&
         is_time(gained.further_s);
}

int64_t ServedSums::requests() const {
  int64_t sum = 0;
  for (const Class& one : classes) sum += one.requests;
  return sum;
}

int64_t ServedSums::computed() const {
  int64_t sum = 0;
  for (const Class& one : classes) sum += one.computed;
  return sum;
}

double ServedSums::computed_at(double share) const {
  const auto all = static_cast<double>(requests());
  const double half = (1 - share) / 2;
  const double from = (share - half) * all;
  const double to = (share + half) * all;
  double passed = 0;
  double taken = 0;
  double sum = 0;
  for (const Class& one : classes) {
    const auto count = static_cast<double>(one.requests);
    const double overlap = std::min(passed + count, to) - std::max(passed, from);
    passed += count;
    if (overlap <= 0) continue;
    taken += overlap;
    sum += overlap * static_cast<double>(one.computed) / count;
  }
  return taken > 0 ? sum / taken : 0;
}

void ServedSums::write(base::JsonWriter& w) const {
  w.begin_array();
  for (const Class& one : classes) w.integer(one.requests).integer(one.computed);
  w.integer(input).integer(output);
  write_exact(w, first_token_s);
  write_exact(w, further_s);
  w.end_array();
}

ServedSums ServedSums::read(const Json& json, bool& ok) {
  constexpr size_t kNumbers = 2 * kClasses + 4;
  ServedSums sums;
  if (!json.is_array() || json.as_array().size() != kNumbers) {
    ok = false;
    return sums;
  }
  size_t at = 0;
  const auto count = [&] {
    const Json& value = json.as_array()[at++];
    const bool fits = value.is_integer() && std::abs(value.as_integer()) <= kCountMax;
    ok = ok && fits;
    return fits ? value.as_integer() : 0;
  };
  for (Class& one : sums.classes) {
    one.requests = count();
    one.computed = count();
  }
  sums.input = count();
  sums.output = count();
  sums.first_token_s = read_exact(json.as_array()[at++], ok);
  sums.further_s = read_exact(json.as_array()[at++], ok);
  return sums;
}

}  // namespace pelton::autoscaler
