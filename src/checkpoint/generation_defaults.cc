#include "checkpoint/generation_defaults.h"

#include <string_view>

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::checkpoint {
namespace {

constexpr std::string_view kFileName = "generation_config.json";
constexpr size_t kFileBytesMax = size_t{1} << 20;

struct Range {
  double low;
  double high;
  bool low_open = false;
};

std::optional<double> number(const Json& json, const char* key, const Range& range,
                             std::vector<std::string>& warnings) {
  const Json* value = json.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_number()) {
    const double x = value->as_number();
    const bool low_enough = range.low_open ? x > range.low : x >= range.low;
    if (low_enough && x <= range.high) return x;
  }
  warnings.push_back(fmt::format("{}: '{}' is not a number {} {} to {}; it is ignored", kFileName,
                                 key, range.low_open ? "above" : "from", range.low, range.high));
  return std::nullopt;
}

}  // namespace

GenerationDefaults parse_generation_defaults(const Json& generation) {
  GenerationDefaults defaults;
  std::vector<std::string>& warnings = defaults.warnings;
  defaults.temperature = number(generation, "temperature", {.low = 0, .high = 2}, warnings);
  defaults.top_p = number(generation, "top_p", {.low = 0, .high = 1, .low_open = true}, warnings);
  defaults.min_p = number(generation, "min_p", {.low = 0, .high = 1}, warnings);
  defaults.repetition_penalty =
      number(generation, "repetition_penalty", {.low = 0, .high = 100, .low_open = true}, warnings);
  constexpr double kTopKMax = 1 << 30;
  if (const auto top_k = number(generation, "top_k", {.low = -1, .high = kTopKMax}, warnings)) {
    defaults.top_k = *top_k < 0 ? 0 : static_cast<int>(*top_k);
  }
  return defaults;
}

GenerationDefaults read_generation_defaults(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const Result<std::string> text =
        base::read_file(folder + "/" + std::string(kFileName), kFileBytesMax);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) continue;
    GenerationDefaults unread;
    if (!text.ok()) {
      unread.warnings.push_back(text.error().message);
      return unread;
    }
    const Result<Json> json = Json::parse(*text);
    if (json.ok()) return parse_generation_defaults(*json);
    unread.warnings.push_back(fmt::format("{}/{}: {}", folder, kFileName, json.error().message));
    return unread;
  }
  return {};
}

}  // namespace pelton::checkpoint
