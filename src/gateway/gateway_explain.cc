// The part of gateway::Gateway that names what a request will find at workers, and says why it goes
// where it goes.
#include <algorithm>
#include <array>
#include <utility>

#include "api/error.h"
#include "base/digest.h"
#include "gateway/asked.h"
#include "gateway/explanation.h"
#include "gateway/gateway.h"
#include "gateway/interruption.h"
#include "gateway/route_table.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::gateway {
Gateway::NamedFor Gateway::named_for(const Relay::Request& request) {
  return {.created_ms = request.created_ms,
          .adapter = request.names_adapter ? std::string_view(request.model) : "",
          .tenant = request.principal.tenant};
}

PromptNamer::Naming Gateway::naming_of(const Settings& settings, const PoolConfig& pool,
                                       const NamedFor& named) const {
  // Whose blocks are salted by a secret of its worker's own has no names here; a worker of another
  // kind keeps tenants' blocks together.
  const bool is_salted = !named.tenant.empty() && !pool.is_foreign();
  const auto text = settings.texts.find(pool.name);
  if (text == settings.texts.end() || (is_salted && !knows_salts_)) return {};
  Fleet::Naming known = fleet_.naming(pool.name);
  PromptNamer::Naming naming{
      .text = text->second,
      .block_tokens = known.block_tokens,
      .date = known.date.empty() ? base::local_date(named.created_ms) : std::move(known.date)};
  if (knows_salts_ && !pool.is_foreign()) {
    naming.salt_of = [this, tenant = std::string(named.tenant)](std::string_view of_request) {
      return access_control_.cache_salt(tenant, of_request);
    };
  }
  if (named.adapter.empty()) return naming;
  // What is computed with it has other names than what is computed without. Of one that is in no
  // worker's memory nobody holds anything.
  const std::string digest = fleet_.adapter_digest(pool.name, named.adapter);
  naming.adapter = digest.empty() ? 0 : base::digest_identity(digest);
  if (naming.adapter == 0) naming.block_tokens = 0;
  return naming;
}

net::HttpResponse Gateway::explain(const net::HttpRequest& request) {
  const Config settings = config();
  const std::optional<std::string> path = net::query_value(request.query, "path");
  const net::HttpRequest asked{.method = "POST",
                               .path = path.value_or("/v1/chat/completions"),
                               .query = {},
                               .headers = {},
                               .body = request.body,
                               .remote = {}};
  if (!is_explained_path(asked.path)) {
    return error_answer("/", api::not_found(asked.method, asked.path), "");
  }
  const Result<std::string> readable = asked_model(asked);
  if (!readable.ok()) return error_answer("/", api::api_error(readable.error()), "");
  const std::string& model = *readable;
  RouteKey key{.model = model, .draw = draw()};
  key.rollout = draw_rollout(find_route(settings->config, model, {}), key).share;
  const auto choice = choose_route(settings->config, key);
  const auto adapter = choice ? std::nullopt : route_adapter(settings->config, model, {});
  const PoolConfig* pool = choice ? choice->pool : adapter ? adapter->pool : nullptr;
  if (pool == nullptr) return error_answer("/", api::model_not_found(model), "");
  const RoutedPrompt prompt =
      namer_.name(asked, naming_of(*settings, *pool,
                                   {.created_ms = clock_.unix_ms(),
                                    .adapter = adapter ? std::string_view(model) : "",
                                    .tenant = {}}));
  return explanation({.pool = *pool,
                      .model = model,
                      .region = {},
                      .prompt = prompt,
                      .body_bytes = std::ssize(request.body)});
}

net::HttpResponse Gateway::explanation(const Explained& explained) {
  const Fleet::Decision decision = fleet_.explain({.pool = explained.pool.name,
                                                   .model = explained.model,
                                                   .excluded = {},
                                                   .prompt = explained.prompt,
                                                   .draw = draw(),
                                                   .region = explained.region,
                                                   .may_split = true,
                                                   .body_bytes = explained.body_bytes});
  return net::json_response(
      explanation_body({.pool = explained.pool.name,
                        .prompt = explained.prompt,
                        .output_tokens = fleet_.expected_output(explained.pool.name),
                        .decision = decision}));
}

void Gateway::explain_beside(const std::shared_ptr<Relay::Request>& request,
                             const std::shared_ptr<net::Exchange>& exchange, const Config& settings,
                             const PoolConfig& pool) {
  namer_.name_beside(request->http, naming_of(*settings, pool, named_for(*request)), exchange,
                     [this, request, exchange, settings, &pool](const RoutedPrompt& prompt) {
                       exchange->send(explanation({.pool = pool,  // of the settings, which are held
                                                   .model = request->model,
                                                   .region = request->region,
                                                   .prompt = prompt,
                                                   .body_bytes = std::ssize(request->http.body)}));
                     });
}

}  // namespace pelton::gateway
