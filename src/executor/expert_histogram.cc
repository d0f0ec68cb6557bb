#include "executor/expert_histogram.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::executor {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;

// {"chosen": [[3, 0, 12], []]}: of a layer with three experts, and one without.
std::optional<layers::ExpertLoads> loads_of(const Json& json) {
  const Json* const chosen = json.find("chosen");
  if (chosen == nullptr || !chosen->is_array()) return std::nullopt;
  layers::ExpertLoads loads;
  for (const Json& layer : chosen->as_array()) {
    if (!layer.is_array()) return std::nullopt;
    loads.emplace_back();
    for (const Json& count : layer.as_array()) {
      if (!count.is_integer() || count.as_integer() < 0) return std::nullopt;
      loads.back().push_back(count.as_integer());
    }
  }
  return loads;
}

}  // namespace

Result<ExpertHistogram> ExpertHistogram::open(const std::string& file) {
  ExpertHistogram histogram(file);
  const Result<std::string> text = base::read_file(file, kBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return histogram;
  TRY(text);
  const Result<Json> json = Json::parse(*text);
  std::optional<layers::ExpertLoads> loads;
  if (json.ok()) loads = loads_of(*json);
  if (!loads) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("--expert-histogram: {} holds no such histogram", file),
                 "expert-histogram"};
  }
  histogram.before_ = *std::move(loads);
  return histogram;
}

Result<void> ExpertHistogram::keep(const layers::ExpertLoads& since) const {
  Json::Array layers;
  for (size_t layer = 0; layer < since.size(); ++layer) {
    Json::Array counts;
    for (size_t e = 0; e < since[layer].size(); ++e) {
      const int64_t before = before_.empty() ? 0 : before_[layer][e];
      counts.emplace_back(before + since[layer][e]);
    }
    layers.emplace_back(std::move(counts));
  }
  Json json;
  json.set("chosen", std::move(layers));
  return base::write_file(file_, json.dump() + "\n");
}

}  // namespace pelton::executor
