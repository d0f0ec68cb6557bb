#include "report/condition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "report/metric.h"

namespace pelton::report {
namespace {

constexpr std::array<std::string_view, 10> kPlainKeys = {"duration",
                                                         "completed",
                                                         "failed",
                                                         "request_throughput",
                                                         "request_goodput",
                                                         "output_throughput",
                                                         "total_token_throughput",
                                                         "max_output_tokens_per_s",
                                                         "max_concurrent_requests",
                                                         "total_output_tokens"};

// "p99.9_ttft_ms", "mean_itl_ms".
bool is_metric_key(std::string_view key) {
  const size_t underscore = key.find('_');
  if (underscore == std::string_view::npos || !key.ends_with("_ms")) return false;
  const std::string_view word = key.substr(0, underscore);
  const std::string_view name = key.substr(underscore + 1, key.size() - underscore - 4);
  double percent = 0;
  const bool percentile =
      word.starts_with('p') &&
      std::from_chars(word.data() + 1, word.data() + word.size(), percent).ptr ==
          word.data() + word.size() &&
      word.size() > 1;
  return (percentile || word == "mean" || word == "median" || word == "std") &&
         find_metric(name).has_value();
}

bool is_load_key(std::string_view key) {
  return std::find(kPlainKeys.begin(), kPlainKeys.end(), key) != kPlainKeys.end() ||
         is_metric_key(key);
}

}  // namespace

Result<Condition> parse_condition(std::string_view text) {
  return parse_condition(
      text, [](std::string_view key) { return is_load_key(key); }, "p99_ttft_ms>500");
}

Result<Condition> parse_condition(std::string_view text,
                                  base::FunctionRef<bool(std::string_view)> is_key,
                                  std::string_view example) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'--fail-if' wants KEY>NUMBER (or >=, <, <=), as {}; '{}' {}", example,
                             text, why),
                 "fail_if"};
  };
  Condition condition{.text = std::string(text), .key = {}};
  const size_t at = text.find_first_of("<>");
  if (at == std::string_view::npos) return bad("has no relation");
  const bool equal = at + 1 < text.size() && text[at + 1] == '=';
  condition.key = text.substr(0, at);
  using Relation = Condition::Relation;
  condition.relation = text[at] == '>' ? (equal ? Relation::kAtLeast : Relation::kAbove)
                                       : (equal ? Relation::kAtMost : Relation::kBelow);
  const std::string_view number = text.substr(at + (equal ? 2 : 1));
  const char* const end_wanted = number.data() + number.size();
  const auto [end, failure] = std::from_chars(number.data(), end_wanted, condition.bound);
  if (failure != std::errc{} || end != end_wanted || !std::isfinite(condition.bound)) {
    return bad("has no number");
  }
  if (!is_key(condition.key)) return bad("names nothing that is measured");
  return condition;
}

Result<bool> holds(const Condition& condition, const Json& result) {
  const std::optional<double> value = result.number(condition.key);
  if (!value) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the result has no '{}' for '--fail-if {}'", condition.key, condition.text),
        "fail_if"};
  }
  switch (condition.relation) {
    case Condition::Relation::kAbove:
      return *value > condition.bound;
    case Condition::Relation::kAtLeast:
      return *value >= condition.bound;
    case Condition::Relation::kBelow:
      return *value < condition.bound;
    case Condition::Relation::kAtMost:
      return *value <= condition.bound;
  }
  return false;
}

}  // namespace pelton::report
