// How likely a modelled draft token is accepted whose predecessor was: one share, one for each
// place behind a row, or one drawn for each request from a mixture of shares and beta
// distributions. Texts are not alike: one mean plays every request as the mean one. A value; pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cost_model {

class DraftAcceptance {
 public:
  // Of every token alike, 0 to 1.
  explicit DraftAcceptance(double share) : parts_{Part{.by_place = {share}}} {}
  // "0.7"; "0.9,0.7,0.5", of the first, the second, the third and all further places;
  // "beta:5:2", a request's own, drawn from the beta distribution with these two parameters;
  // "0.3*0.95+0.7*beta:2:5", of so many of the requests each. Errors: kInvalidArgument.
  static Result<DraftAcceptance> parse(std::string_view text);

  // Of a request, whose seed decides what is drawn, at a place from 0 on.
  double at(uint64_t seed, int place) const;
  // That so many draft tokens are accepted one after the other, over all requests.
  double survival(int tokens) const;
  double mean() const { return survival(1); }
  // Every token alike.
  bool is_plain() const { return parts_.size() == 1 && parts_.front().by_place.size() == 1; }

 private:
  struct Part {
    double weight = 1;             // of all parts together 1
    std::vector<double> by_place;  // empty: a beta distribution
    double alpha = 0;
    double beta = 0;
  };
  DraftAcceptance() = default;
  static Result<Part> parse_part(std::string_view text);

  std::vector<Part> parts_;
};

}  // namespace pelton::cost_model
