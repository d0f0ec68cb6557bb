#include "telemetry/prometheus_text.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

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
  name_ = name;
  out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, word_of(type));
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
  out_.append(name_).append(suffix);
  bool first = true;
  labels(common_, first);
  labels(own, first);
  if (last != nullptr) label(*last, first);
  if (!first) out_ += '}';
  out_.append(" ").append(number(value)).append("\n");
}

void PrometheusText::labels(const Labels& labels, bool& first) {
  for (const Label& one : labels) label(one, first);
}

void PrometheusText::label(const Label& label, bool& first) {
  out_ += first ? '{' : ',';
  first = false;
  out_.append(label.name).append("=\"");
  append_escaped(out_, label.value);
  out_ += '"';
}

}  // namespace pelton::telemetry
