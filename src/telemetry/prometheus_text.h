// Metrics as Prometheus reads them (text format 0.0.4): a family, then its samples. Writes into a
// string of the caller's; one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/histogram.h"

namespace pelton::telemetry {

inline constexpr std::string_view kPrometheusContentType =
    "text/plain; version=0.0.4; charset=utf-8";

class PrometheusText {
 public:
  enum class Type { kCounter, kGauge, kHistogram, kSummary };

  struct Label {
    std::string_view name;
    std::string_view value;
  };
  using Labels = std::vector<Label>;

  // `common` labels come with every sample, before its own; what they view outlives this.
  PrometheusText(std::string& out, Labels common) : out_(out), common_(std::move(common)) {}

  void family(std::string_view name, Type type, std::string_view help);
  // Of the family begun last.
  void sample(const Labels& labels, double value);
  void histogram(const Labels& labels, const Histogram& histogram);
  // Counted elsewhere: `reading` by `bounds`.
  void histogram(const Labels& labels, const std::vector<double>& bounds,
                 const Histogram::Reading& reading);
  // Without quantiles: how many there were, and what they come to.
  struct Summary {
    int64_t count = 0;
    double sum = 0;
  };
  void summary(const Labels& labels, const Summary& summary);

  // A family of one sample.
  void counter(std::string_view name, std::string_view help, double value);
  void gauge(std::string_view name, std::string_view help, double value);

 private:
  void line(std::string_view suffix, const Labels& labels, const Label* last, double value);
  void labels(const Labels& labels, bool& first);
  void label(const Label& label, bool& first);

  std::string& out_;
  const Labels common_;
  std::string name_;
};

}  // namespace pelton::telemetry
