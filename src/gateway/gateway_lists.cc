// The part of gateway::Gateway that lists models and slots as other APIs' clients read them: of all
// workers together, so that it does not matter which one is asked, or whether one is there.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "api/llama_slots.h"
#include "api/ollama_response.h"
#include "gateway/gateway.h"
#include "gateway/interruption.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

api::OllamaModel ollama_model(const api::ModelCard& card) {
  return {.name = card.id,
          .parent = card.parent,
          .modified_s = card.created,
          .digest = api::ollama_digest(card.id),
          .context_max = card.context_max,
          .can_chat = true};
}

bool is_resident(const Fleet::Row& row, const std::string& name) {
  const bool is_model = std::ranges::find(row.record.models, name) != row.record.models.end();
  return is_model || std::ranges::find(row.load.adapters, name, &cluster::ResidentAdapter::name) !=
                         row.load.adapters.end();
}

constexpr int64_t kSlotsMax = 16'384;  // of an answer

}  // namespace

std::optional<net::HttpResponse> Gateway::list_of_other_api(const net::HttpRequest& request,
                                                            const Asker& asker) const {
  if (request.path == "/slots") return llama_slots(request, asker);
  if (request.path == "/api/ps") return net::json_response(ollama_ps(asker));
  if (request.path != "/api/tags") return std::nullopt;
  std::vector<api::OllamaModel> listed;
  for (const api::ModelCard& card : models(asker)) listed.push_back(ollama_model(card));
  return net::json_response(api::ollama_tags_body(listed));
}

// Those that a worker has in its memory now.
std::string Gateway::ollama_ps(const Asker& asker) const {
  std::vector<Fleet::Row> rows = fleet_.rows();
  const Config settings = config();
  std::erase_if(rows,
                [](const Fleet::Row& row) { return row.state != cluster::WorkerState::kReady; });
  std::vector<api::OllamaModel> running;
  for (const api::ModelCard& card : models(asker)) {
    const bool is_there = std::ranges::any_of(rows, [&](const Fleet::Row& row) {
      const PoolConfig* const pool = pool_named(settings->config, row.pool);
      return pool != nullptr && may_use(settings->config, asker, *pool, card.id) &&
             is_resident(row, card.id);
    });
    if (is_there) running.push_back(ollama_model(card));
  }
  return api::ollama_ps_body(running, std::vector<int64_t>(running.size(), INT64_MAX));
}

// llama.cpp's servers have one model: here the first pool's that the asker may use.
net::HttpResponse Gateway::llama_slots(const net::HttpRequest& request, const Asker& asker) const {
  const Config settings = config();
  const auto pool = std::ranges::find_if(settings->config.pools, [&](const PoolConfig& one) {
    return std::ranges::any_of(one.models, [&](const std::string& model) {
      return may_use(settings->config, asker, one, model);
    });
  });
  std::vector<api::LlamaSlots> all;
  int64_t left = kSlotsMax;
  for (const Fleet::Row& row : fleet_.rows()) {
    const bool is_pools = pool != settings->config.pools.end() && row.pool == pool->name;
    // Of other servers nobody knows how many they have.
    if (!is_pools || row.kind != WorkerKind::kPelton) continue;
    if (row.state != cluster::WorkerState::kReady || row.record.slots > left) continue;
    left -= row.record.slots;
    all.push_back({.count = row.record.slots,
                   .running = row.load.running,
                   .context_tokens = row.record.context_tokens});
  }
  const bool must_be_free =
      !net::query_value(request.query, "fail_on_no_slot").value_or("").empty();
  if (must_be_free && !api::has_free_slot(all)) {
    return error_answer(request.path, api::no_free_slot(), "");
  }
  return net::json_response(api::llama_slots_body(all));
}

}  // namespace pelton::gateway
