// What requests that were served were like, as sums: tokens by how much of a prompt was computed
// (one mean of short and long prompts would be neither's), and how long their tokens took. Sums
// since a gateway began, or what they gained in a while. A value.
#pragma once

#include <array>
#include <cstdint>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

struct ServedSums {
  // Prompts of which at most 64 tokens were computed, at most 256, and so on, each four times the
  // one before; the last class is the rest.
  static constexpr int kClasses = 8;
  struct Class {
    int64_t requests = 0;
    int64_t computed = 0;  // tokens

    friend bool operator==(const Class&, const Class&) = default;
  };
  std::array<Class, kClasses> classes;
  int64_t input = 0;  // tokens of prompts, computed or found in a cache
  int64_t output = 0;
  double first_token_s = 0;  // from being sent to a replica
  double further_s = 0;      // from the first token to the last

  // A request, or several alike; `output`: 1 or more.
  struct Request {
    int64_t input = 0;
    int64_t computed = 0;
    int64_t output = 1;
    double first_token_s = 0;
    double further_s = 0;
  };
  void add(const Request& request, int64_t count = 1);
  void add(const ServedSums& gained);
  ServedSums since(const ServedSums& before) const;
  // Counts and times that can be, and none less than `before`'s.
  bool follows(const ServedSums& before) const;
  bool is_empty() const { return *this == ServedSums{}; }

  int64_t requests() const;
  int64_t computed() const;
  // What is computed of the prompts around this share of the requests, the shortest first: of as
  // many before it as lie halfway behind it, by their classes' means. So a class that grows over
  // the share changes it little by little. Example: at 0.95 of 1 000 requests those from 925 to
  // 975.
  double computed_at(double share) const;

  // A list of numbers; what read() does not take makes `ok` false.
  void write(base::JsonWriter& w) const;
  static ServedSums read(const Json& json, bool& ok);

  friend bool operator==(const ServedSums&, const ServedSums&) = default;
};

}  // namespace pelton::autoscaler
