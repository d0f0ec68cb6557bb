#include "telemetry/prometheus_text.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::telemetry {
namespace {

std::string_view word_of(PrometheusText::Type type) {
  switch (type) {
    case PrometheusText::Type::kCounter:
      return "counter";
    case PrometheusText::Type::kGauge:
      return "gauge";
    case PrometheusText::Type::kHistogram:
      return "histogram";
    case PrometheusText::Type::kSummary:
      return "summary";
  }
  return "untyped";
}

std::string number(double value) {
  constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
  if (std::abs(value) < kExactIntegers && std::trunc(value) == value) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

}  // namespace

void PrometheusText::family(std::string_view name, Type type, std::string_view help) {
  const auto [place, is_new] = index_.try_emplace(std::string(name), families_.size());
  current_ = place->second;
  if (is_new) {
    families_.push_back(
        {std::string(name), type,
         fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, word_of(type))});
  }
  CHECK(families_[current_].type == type, "a family has one type");
}

std::string PrometheusText::text() const {
  std::string page;
  for (const Family& family : families_) page += family.text;
  return page;
}

void PrometheusText::sample(const Labels& labels, double value) {
  line("", labels, nullptr, value);
}

void PrometheusText::summary(const Labels& labels, const Summary& summary) {
  line("_sum", labels, nullptr, summary.sum);
  line("_count", labels, nullptr, static_cast<double>(summary.count));
}

void PrometheusText::histogram(const Labels& labels, const Histogram& histogram) {
  this->histogram(labels, histogram.bounds(), histogram.read());
}

void PrometheusText::histogram(const Labels& labels, const std::vector<double>& bounds,
                               const Histogram::Reading& reading) {
  for (size_t i = 0; i < reading.up_to.size(); ++i) {
    const bool all = i + 1 == reading.up_to.size();
    const std::string bound = all ? "+Inf" : number(bounds[i]);
    const Label last{.name = "le", .value = bound};
    line("_bucket", labels, &last, static_cast<double>(reading.up_to[i]));
  }
  line("_sum", labels, nullptr, reading.sum);
  line("_count", labels, nullptr, static_cast<double>(reading.count()));
}

void PrometheusText::counter(std::string_view name, std::string_view help, double value) {
  family(name, Type::kCounter, help);
  sample({}, value);
}

void PrometheusText::gauge(std::string_view name, std::string_view help, double value) {
  family(name, Type::kGauge, help);
  sample({}, value);
}

void PrometheusText::line(std::string_view suffix, const Labels& own, const Label* last,
                          double value) {
  CHECK(!families_.empty(), "a sample belongs to a family");
  Family& family = families_[current_];
  std::string& out = family.text;
  out.append(family.name).append(suffix);
  char before = '{';
  const auto append = [&](const Label& label) {
    out += before;
    before = ',';
    out.append(label.name).append("=\"");
    append_escaped(out, label.value);
    out += '"';
  };
  for (const Label& label : common_) append(label);
  for (const Label& label : own) append(label);
  if (last != nullptr) append(*last);
  if (before == ',') out += '}';
  out.append(" ").append(number(value)).append("\n");
}

}  // namespace pelton::telemetry
