// What is said of the server and its models: the index, versions, metrics, /v1/models.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/model_list.h"
#include "base/json_writer.h"
#include "server/endpoints.h"
#include "server/metrics_page.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/routes.h"
#include "server/waiting_call.h"
#include "telemetry/prometheus_text.h"

namespace pelton::server {
namespace {

// Of each of its names; none while it neither serves nor sleeps.
std::vector<api::ModelCard> cards_of(const ModelCatalogue::Entry& entry) {
  std::vector<api::ModelCard> cards;
  const bool serves = entry.state == ModelCatalogue::State::kServing;
  if (!serves && !entry.is_dormant()) return cards;
  api::ModelCard card{.root = entry.names.id,
                      .created = serves ? entry.model->created : entry.created,
                      .context_max = serves ? entry.model->context_limit() : entry.context_max,
                      .asleep = !serves};
  if (entry.wakes > 0) card.cold_start_s = static_cast<double>(entry.last_wake_ns) * 1e-9;
  const auto add = [&](const std::string& id) {
    card.id = id;
    cards.push_back(card);
  };
  add(entry.names.id);
  for (const std::string& alias : entry.names.aliases) add(alias);
  if (entry.adapters == nullptr) return cards;
  card.parent = entry.names.id;
  for (const AdapterRegistry::Info& adapter : entry.adapters->list()) {
    card.root = adapter.path;
    card.created = adapter.created;
    add(adapter.name);
  }
  return cards;
}

}  // namespace

void index(Call call, Services& services) {
  const std::string_view host = call.request.headers.get("Host");
  call.send(text_reply(
      "text/plain; charset=utf-8",
      fmt::format("Pelton {}: an OpenAI-compatible server.\n\n"
                  "curl -s http://{}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
                  "  -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}]}}'\n\n"
                  "All routes (* stands for an id or a name):\n{}",
                  services.options.version, is_plain_id(host) ? host : "HOST",
                  endpoint_listing())));
}

void metrics(Call call, Services& services) {
  call.send(text_reply(telemetry::kPrometheusContentType, metrics_page(services)));
}

void version(Call call, Services& services) {
  std::string body;
  base::JsonWriter(body)
      .begin_object()
      .key("version")
      .string(services.options.version)
      .end_object();
  call.send(json_reply(std::move(body)));
}

void list_models(Call call, Services& services) {
  std::vector<api::ModelCard> cards;
  const auto table = services.catalogue.table();
  std::unordered_set<std::string> names;  // of two adapters of one name the first answers
  for (const ModelCatalogue::Entry& entry : table->entries) {
    for (api::ModelCard& card : cards_of(entry)) {
      if (names.insert(card.id).second) cards.push_back(std::move(card));
    }
  }
  call.send(json_reply(api::model_list_body(cards)));
}

void get_model(Call call, Services& services) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string name = call.request.path.substr(kPrefix.size());
  const auto table = services.catalogue.table();
  const ModelCatalogue::Entry* entry = table->find(name);
  if (entry == nullptr) entry = table->find_adapters_of(name);
  if (entry != nullptr) {
    for (const api::ModelCard& card : cards_of(*entry)) {
      if (card.id == name) return call.send(json_reply(api::model_body(card)));
    }
  }
  call.send(services.no_model(name));
}

namespace {

// Of an adapter: what its own folder says, or nothing. Its model's card says nothing of it.
void send_adapter_card(Call call, Services& services, api::ModelCard card,
                       std::shared_ptr<AdapterRegistry> adapters) {
  const auto found = std::make_shared<std::shared_ptr<const api::ModelDescription>>();
  WorkPool::Job job{.tenant = access::billing_account(call.tenant, ""),
                    .weight = call.caller.weight,
                    .bytes = call.body_bytes};
  job.run = [found, adapters = std::move(adapters), id = card.id](const WorkPool::Attempt&) {
    *found = adapters->description(id);
    return WorkPool::Outcome::kDone;
  };
  const auto submit = [&](WorkDone done) -> Result<CancelWork> {
    job.done = std::move(done);
    TRY_ASSIGN(std::shared_ptr<WorkPool::Ticket> ticket,
               services.preparation.submit(std::move(job)));
    return cancel_of(std::move(ticket));
  };
  wait_for_work(
      std::move(call), submit,
      [&services, found, card = std::move(card)](Call one, const std::optional<Error>& error) {
        if (error) {
          return one.send(
              services.access_control.with_retry(*error, services.preparation.retry_after_ns()));
        }
        if (*found != nullptr) return one.send(json_reply(api::model_card_body(card, **found)));
        one.send(api::ApiError{
            .status = 404,
            .message =
                fmt::format("The folder of the adapter '{}' holds no card: neither README.md "
                            "nor LICENSE",
                            card.id),
            .type = "not_found_error",
            .param = {},
            .code = "not_found"});
      });
}

}  // namespace

void get_model_card(Call call, Services& services) {
  constexpr std::string_view kPrefix = "/v1/model_cards/";
  const std::string name = call.request.path.substr(kPrefix.size());
  const auto table = services.catalogue.table();
  const ModelCatalogue::Entry* entry = table->find(name);
  if (entry == nullptr) entry = table->find_adapters_of(name);
  const std::vector<api::ModelCard> cards =
      entry == nullptr ? std::vector<api::ModelCard>() : cards_of(*entry);
  const auto named = std::ranges::find(cards, name, &api::ModelCard::id);
  if (named == cards.end()) return call.send(services.no_model(name));
  if (!named->parent.empty()) {
    return send_adapter_card(std::move(call), services, *named, entry->adapters);
  }
  const auto description = entry->model == nullptr ? entry->description : entry->model->description;
  call.send(json_reply(api::model_card_body(
      *named, description == nullptr ? api::ModelDescription() : *description)));
}

}  // namespace pelton::server
