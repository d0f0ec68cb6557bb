// What gateways of regions say to each other about their models, in numbers: no text, no tenants.
// One side keeps a RegionBook and answers with what has changed since a version; the other one
// keeps a RegionView of it. Pure; each by one thread at a time.
//
//   GET /v1/regions/summary?nonce=N&book=B&since=V
//   {"region":"us","book":"B","version":7,"whole":false,
//    "models":[["gpt-oss-20b",3,64,12,1,2048,40960,0.0,0.31,0.011,5e-5,4e-4,1e-8]],"gone":[]}
//   x-pelton-region-mac: HMAC-SHA256(secret, label, N, body) in hexadecimal
//
// A row is of an average worker: model, workers that are ready, their slots, requests that run and
// wait, tokens that wait and that run, seconds until a slot is free, share of the KV cache in use,
// and its step's costs. `book` is drawn at each start: of another one nothing that was said holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/result.h"
#include "cluster/step_fit.h"

namespace pelton::gateway {

struct RegionModel {
  int ready = 0;  // workers; 0: none takes requests
  // Of one of them.
  int slots = 0;
  int running = 0;
  int waiting = 0;
  int64_t waiting_tokens = 0;
  int64_t context_tokens = 0;
  double wait_s = 0;
  double kv_used = 0;
  cluster::StepCosts costs;

  friend bool operator==(const RegionModel& one, const RegionModel& other) {
    const auto all = [](const RegionModel& of) {
      return std::tuple(of.ready, of.slots, of.running, of.waiting, of.waiting_tokens,
                        of.context_tokens, of.wait_s, of.kv_used, of.costs.fixed_s,
                        of.costs.prefill_token_s, of.costs.row_s, of.costs.context_token_s);
    };
    return all(one) == all(other);
  }
};
using RegionModels = std::map<std::string, RegionModel, std::less<>>;

class RegionBook {
 public:
  static constexpr size_t kModelsMax = 10'000;

  RegionBook(std::string region, std::string name)
      : region_(std::move(region)), name_(std::move(name)) {}

  // What holds now.
  void set(const RegionModels& models);
  // What has changed since `version` of `book`; all of it where that is no version of this one.
  std::string summary(std::string_view book, int64_t since) const;

 private:
  struct Row {
    RegionModel model;
    int64_t version = 0;
  };
  const std::string region_;
  const std::string name_;
  int64_t version_ = 0;
  std::map<std::string, Row, std::less<>> rows_;
  std::map<std::string, int64_t, std::less<>> gone_;  // and since which version
  int64_t forgotten_ = 0;  // of earlier versions it is not known who has gone
};

class RegionView {
 public:
  // Errors: kInvalidArgument: it is no summary of `region`, or none of what is held; nothing has
  // changed then.
  Result<void> apply(std::string_view summary, std::string_view region);
  const RegionModels& models() const { return models_; }
  const std::string& book() const { return book_; }
  int64_t version() const { return version_; }

 private:
  std::string book_;  // empty: nothing has been said
  int64_t version_ = 0;
  RegionModels models_;
};

// Of a summary that answers `nonce`; hexadecimal.
std::string region_mac(std::string_view secret, std::string_view nonce, std::string_view summary);
inline constexpr std::string_view kRegionMacHeader = "x-pelton-region-mac";
inline constexpr std::string_view kRegionSummaryPath = "/v1/regions/summary";

}  // namespace pelton::gateway
