// GET /v1/models and /v1/models/{id}. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace pelton::api {

struct ModelCard {
  std::string id;
  std::string root;  // the model that an alias stands for
  int64_t created = 0;
  int64_t context_max = 0;
  bool asleep = false;                      // a request wakes it
  std::optional<double> cold_start_s = {};  // how long that took the last time
};

std::string model_list_body(std::span<const ModelCard> models);
std::string model_body(const ModelCard& model);

}  // namespace pelton::api
