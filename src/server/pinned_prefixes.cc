#include "server/pinned_prefixes.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "net/query_check.h"
#include "net/url.h"
#include "server/pinned_prefix.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

using engine::PinnedPrefix;
using Model = std::shared_ptr<const ServedModel>;

constexpr size_t kTenantBytesMax = 256;

void write_prefix(base::JsonWriter& w, const std::string& model, const PinnedPrefix& one) {
  w.begin_object().key("id").string(one.id).key("model").string(model);
  w.key("tenant").string(one.tenant).key("tokens").integer(one.tokens).end_object();
}

net::HttpResponse refusal(int status, std::string message, std::string param, std::string code) {
  return error_reply(api::ApiError{.status = status,
                                   .message = std::move(message),
                                   .type = "invalid_request_error",
                                   .param = std::move(param),
                                   .code = std::move(code)});
}

net::HttpResponse too_many() {
  return refusal(409,
                 fmt::format("{} prefixes are pinned, the most there may be", kPinnedPrefixesMax),
                 {}, "too_many_prefixes");
}

std::vector<PinnedPrefix> pinned_of(const ServedModel& model) {
  const engine::Ledger ledger = model.engine.ledger();
  return ledger.prefixes == nullptr ? std::vector<PinnedPrefix>() : *ledger.prefixes;
}

Result<Model> model_named(const Services& services, const std::optional<std::string>& name) {
  const auto serving = services.catalogue.serving();
  Model found;
  for (const Model& model : serving) {
    const bool is_meant = !name || model->id == *name ||
                          std::ranges::find(model->aliases, *name) != model->aliases.end();
    if (!is_meant) continue;
    if (found != nullptr) {
      return Error{ErrorCode::kInvalidArgument,
                   "several models are served: 'model' says which one is meant", "model"};
    }
    found = model;
  }
  if (found != nullptr) return found;
  return Error{ErrorCode::kNotFound,
               name ? fmt::format("no model '{}' is served", name->substr(0, 256))
                    : std::string("no model is served"),
               "model"};
}

// Of one body. The file's name says what it holds.
Result<std::vector<TokenId>> tokens_of(const Services& services, const net::HttpRequest& request,
                                       const ServedModel& model) {
  const std::string_view type = request.headers.get("Content-Type");
  const std::string_view kind = type.substr(0, type.find(';'));
  const bool is_json = net::equals_without_case(kind, "application/json");
  if (!is_json && !net::equals_without_case(kind, "text/plain")) {
    return Error{ErrorCode::kInvalidArgument,
                 "send a chat request's messages as application/json, or text as text/plain"};
  }
  TRY_ASSIGN(
      std::vector<TokenId> tokens,
      pinned_prefix({.name = is_json ? "body.json" : "body", .text = request.body}, model,
                    model.current_date.value_or(base::local_date(services.clock.unix_ms()))));
  const int block_tokens = model.engine.capacity().block_tokens;
  if (std::ssize(tokens) >= block_tokens) return tokens;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} tokens are less than a block of {}", tokens.size(), block_tokens)};
}

// It is computed; kept by its exchange until that is over.
class Pinning : public std::enable_shared_from_this<Pinning> {
 public:
  Pinning(Model model, PinnedPrefix what, engine::TokenStream stream,
          std::shared_ptr<net::Exchange> exchange)
      : model_(std::move(model)),
        what_(std::move(what)),
        stream_(std::move(stream)),
        exchange_(std::move(exchange)) {}

  void begin() {
    exchange_->on_closed([self = shared_from_this()] { self->leave(); });
    stream_.on_ready([weak = weak_from_this(), exchange = exchange_] {
      exchange->post([weak] {
        if (const auto self = weak.lock()) self->look();
      });
    });
  }

 private:
  void leave() {
    if (std::exchange(over_, true)) return;
    stream_.cancel();
    // It may have been pinned in the step that has just ended.
    model_->engine.unpin(what_.id);
  }

  void look() {
    if (over_) return;
    engine::TokenStream::Batch batch = stream_.take();
    if (!batch.end) return;
    over_ = true;
    if (batch.end->error) {
      return exchange_->send(error_reply(api::api_error(*batch.end->error)));
    }
    if (batch.end->pinned_tokens == 0) {
      // Others may have come meanwhile.
      if (pinned_of(*model_).size() >= kPinnedPrefixesMax) return exchange_->send(too_many());
      return exchange_->send(refusal(507,
                                     "pinned, it would leave less room than the longest request "
                                     "needs; it is merely cached",
                                     {}, "insufficient_memory"));
    }
    what_.tokens = batch.end->pinned_tokens;
    std::string body;
    base::JsonWriter w(body);
    write_prefix(w, model_->id, what_);
    exchange_->send(json_reply(std::move(body)));
  }

  const Model model_;
  PinnedPrefix what_;
  engine::TokenStream stream_;
  const std::shared_ptr<net::Exchange> exchange_;
  bool over_ = false;
};

std::string next_id() {
  static std::atomic<int64_t> number{0};
  return fmt::format("prefix-{}", ++number);
}

}  // namespace

net::HttpResponse list_prefixes(const Services& services) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("prefixes").begin_array();
  for (const Model& model : services.catalogue.serving()) {
    for (const PinnedPrefix& one : pinned_of(*model)) write_prefix(w, model->id, one);
  }
  w.end_array().end_object();
  return json_reply(std::move(body));
}

void add_prefix(const Services& services, const net::HttpRequest& request,
                const std::shared_ptr<net::Exchange>& exchange) {
  const auto refuse = [&](const Error& error) {
    api::ApiError shown = api::api_error(error);
    shown.message = error.message;  // to the operator
    if (error.code == ErrorCode::kBadConfig) shown.status = 400;
    exchange->send(error_reply(shown));
  };
  const Result<void> known = net::check_query(request.query, {"tenant", "model"});
  if (!known.ok()) return refuse(known.error());
  const std::string tenant = net::query_value(request.query, "tenant").value_or("");
  if (tenant.size() > kTenantBytesMax) {
    return refuse({ErrorCode::kInvalidArgument, "a tenant's name is shorter", "tenant"});
  }
  const Result<Model> model = model_named(services, net::query_value(request.query, "model"));
  if (!model.ok()) return refuse(model.error());
  if (pinned_of(**model).size() >= kPinnedPrefixesMax) return exchange->send(too_many());
  Result<std::vector<TokenId>> tokens = tokens_of(services, request, **model);
  if (!tokens.ok()) return refuse(tokens.error());
  request::GenerationRequest work{.id = next_id(), .prompt = *std::move(tokens)};
  work.tenant = tenant;
  work.cache_salt = services.access_control.cache_salt(tenant, {});
  work.sampling.temperature = 0.0f;
  work.stop.max_new_tokens = 1;
  work.pin_prefix = true;
  work.pin_room_tokens = (*model)->context_max;
  const std::string id = work.id;
  Result<engine::TokenStream> stream = (*model)->engine.submit(std::move(work));
  if (!stream.ok()) return refuse(stream.error());
  std::make_shared<Pinning>(*model, PinnedPrefix{.id = id, .tenant = tenant},
                            std::move(stream).value(), exchange)
      ->begin();
}

// Of every model that has it: the one of the start has the same name in each.
net::HttpResponse remove_prefix(const Services& services, std::string_view id) {
  bool is_pinned = false;
  for (const Model& model : services.catalogue.serving()) {
    const std::vector<PinnedPrefix> pinned = pinned_of(*model);
    if (std::ranges::find(pinned, id, &PinnedPrefix::id) == pinned.end()) continue;
    model->engine.unpin(std::string(id));
    is_pinned = true;
  }
  if (is_pinned) return json_reply("{\"success\":true}");
  return refusal(404, fmt::format("no prefix '{}' is pinned", id.substr(0, 64)), "id", "not_found");
}

}  // namespace pelton::server
