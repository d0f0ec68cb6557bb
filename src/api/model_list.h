// GET /v1/models, /v1/models/{id} and /v1/model_cards/{id}. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pelton::api {

// What the model's makers say of it; empty is what they do not.
struct ModelDescription {
  std::string license;  // "apache-2.0"
  std::string license_name;
  std::string license_link;
  std::string license_text;
  std::string text;  // the model card, Markdown
};

struct ModelCard {
  std::string id;
  std::string root;  // the model that an alias stands for; of an adapter the folder of its files
  std::string parent = {};  // of an adapter: its model; empty: it is none
  int64_t created = 0;
  int64_t context_max = 0;
  bool asleep = false;                      // a request wakes it
  std::optional<double> cold_start_s = {};  // how long that took the last time
  std::string_view state = {};              // of its replicas: "cold", "starting", "ready"
  std::optional<double> eta_s = {};         // until a request that comes now would be served
};

std::string model_list_body(std::span<const ModelCard> models);
std::string model_body(const ModelCard& model);
std::string model_card_body(const ModelCard& model, const ModelDescription& description);

}  // namespace pelton::api
