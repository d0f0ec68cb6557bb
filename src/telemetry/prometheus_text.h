// Metrics as Prometheus reads them (exposition format 0.0.4): each family once, with all its
// samples, whoever adds them. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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

  // From now on these come with every sample, before its own; they view the caller's strings.
  void set_common(Labels common) { common_ = std::move(common); }

  // Begins a family, or goes on with the one of that name, which has that type.
  void family(std::string_view name, Type type, std::string_view help);
  // Of the family begun or gone on with last.
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

  // The page: families in the order in which they began.
  std::string text() const;

 private:
  struct Family {
    std::string name;
    Type type;
    std::string text;  // its HELP and TYPE, then its samples
  };

  void line(std::string_view suffix, const Labels& labels, const Label* last, double value);

  Labels common_;
  std::vector<Family> families_;
  std::unordered_map<std::string, size_t> index_;  // by name, into families_
  size_t current_ = 0;
};

}  // namespace pelton::telemetry
