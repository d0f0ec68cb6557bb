#include "cost_model/slices.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::cost_model {

std::vector<double> slices_of(std::vector<double> measured) {
  std::vector<double> slices;
  if (measured.empty()) return slices;
  std::sort(measured.begin(), measured.end());
  for (size_t i = 0; i < kSlices; ++i) {
    // Fewer than slices: some slices have the same one.
    const size_t from = std::min(i * measured.size() / kSlices, measured.size() - 1);
    const size_t to = std::max((i + 1) * measured.size() / kSlices, from + 1);
    double sum = 0;
    for (size_t k = from; k < to; ++k) sum += measured[k];
    slices.push_back(sum / static_cast<double>(to - from));
  }
  return slices;
}

std::vector<double> weighted_slices_of(std::vector<Weighted> measured) {
  std::vector<double> slices;
  if (measured.empty()) return slices;
  std::ranges::sort(measured, {}, &Weighted::value);
  double whole = 0;
  for (const Weighted& one : measured) whole += one.weight;
  const double each = whole / kSlices;
  size_t at = 0;
  double left = measured.front().weight;  // of the one at `at`
  for (size_t i = 0; i < kSlices; ++i) {
    double sum = 0;
    double missing = each;
    while (missing > left && at + 1 < measured.size()) {
      sum += measured[at].value * left;
      missing -= left;
      left = measured[++at].weight;
    }
    sum += measured[at].value * missing;
    left -= missing;
    slices.push_back(sum / each);
  }
  return slices;
}

Json slices_json(const std::vector<double>& slices) {
  Json::Array list;
  for (const double slice : slices) list.emplace_back(slice);
  return list;
}

Result<std::vector<double>> read_slices(const Json& json, const std::string& name,
                                        const std::string& origin) {
  std::vector<double> slices;
  const Json* const list = json.find(name);
  if (list == nullptr) return slices;
  const Error bad{ErrorCode::kBadConfig,
                  fmt::format("{}: {} must be {} numbers above 0, or none", origin, name, kSlices),
                  name};
  if (!list->is_array()) return bad;
  if (list->as_array().size() != kSlices && !list->as_array().empty()) return bad;
  for (const Json& slice : list->as_array()) {
    const double value = slice.is_number() ? slice.as_number() : -1;
    if (!(value > 0 && value < 1e6)) return bad;
    slices.push_back(value);
  }
  return slices;
}

}  // namespace pelton::cost_model
