// POST /v1/load_lora_adapter and /v1/unload_lora_adapter: vLLM's.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "api/lora_request.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "server/waiting_call.h"

namespace pelton::server {
namespace {

using Entry = ModelCatalogue::Entry;

constexpr std::string_view kStarting = "The model is still being loaded";

api::ApiError not_allowed_here() {
  return {.status = 403,
          .message =
              "Callers may not load adapters here; the server is started with "
              "--allow-runtime-lora-updating where they may",
          .type = "invalid_request_error",
          .param = {},
          .code = "lora_updating_disabled"};
}

net::HttpResponse done_reply(std::string_view name, std::string_view what) {
  return text_reply("text/plain; charset=utf-8",
                    fmt::format("Success: LoRA adapter '{}' {} successfully.", name, what));
}

// vLLM's: 404 for what is not there, 400 for all else that is wrong with a name or a folder.
api::ApiError lora_error(const Error& error) {
  api::ApiError shown = api::api_error(error);
  switch (error.code) {
    case ErrorCode::kNotFound:
      shown.status = 404;
      break;
    case ErrorCode::kOverloaded:
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      return shown;
    default:
      shown.status = 400;
      break;
  }
  shown.message = error.message;
  shown.type = shown.status == 404 ? "not_found_error" : "invalid_request_error";
  shown.param = error.field.empty() ? "lora_path" : error.field;
  shown.code = shown.status == 404 ? "not_found" : "bad_adapter";
  return shown;
}

// The model that an adapter is for: that of this name, or the only one that has adapters.
Result<const Entry*> base_of(const ModelCatalogue::Table& table, const std::string& name) {
  const Entry* found = nullptr;
  for (const Entry& entry : table.entries) {
    if (entry.adapters == nullptr || (!name.empty() && !entry.answers_to(name))) continue;
    if (found != nullptr) {
      return Error{ErrorCode::kInvalidArgument,
                   "several models have adapters: 'base_model_name' says which one is meant",
                   "base_model_name"};
    }
    found = &entry;
  }
  if (found != nullptr) return found;
  if (name.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "no model has adapters here; the server is started with --enable-lora where one "
                 "has",
                 "lora_name"};
  }
  return Error{ErrorCode::kNotFound, fmt::format("there is no model '{}' that has adapters", name),
               "base_model_name"};
}

// It counts against the key's requests per minute as any other that makes the server work.
bool admit(Call& call, Services& services, const ModelCatalogue::Table& table) {
  const auto with_adapters =
      std::ranges::find_if(table.entries, [](const Entry& one) { return one.adapters != nullptr; });
  if (with_adapters == table.entries.end()) return true;  // it is refused anyway
  auto admitted = services.access_control.admit(call.caller, *with_adapters->refusals);
  services.access_control.add_limits(call.caller, call.headers);
  if (const auto* refused = std::get_if<api::ApiError>(&admitted)) {
    call.send(*refused);
    return false;
  }
  call.ticket = std::make_unique<access::AdmissionTicket>(
      std::get<access::AdmissionTicket>(std::move(admitted)));
  return true;
}

// Whose adapters are not known yet, as it is still being loaded; and no other has any.
bool is_starting(const ModelCatalogue::Table& table, const std::string& name) {
  const auto is_meant = [&](const Entry& one) { return name.empty() || one.answers_to(name); };
  const bool has_one = std::ranges::any_of(
      table.entries, [&](const Entry& one) { return one.adapters != nullptr && is_meant(one); });
  const bool loads_one = std::ranges::any_of(table.entries, [&](const Entry& one) {
    return one.state == ModelCatalogue::State::kLoading && is_meant(one);
  });
  return !has_one && (loads_one || table.named_at_start == 0);
}

// What is to be loaded, and into whose adapters.
struct Order {
  std::shared_ptr<AdapterRegistry> adapters;
  AdapterRegistry::Source source;
  AdapterRegistry::InPlace in_place = AdapterRegistry::InPlace::kNo;
};

Result<Order> order_of(const api::LoadLoraRequest& asked, const ModelCatalogue::Table& table) {
  TRY_ASSIGN(const Entry* const base, base_of(table, asked.base));
  if (table.find(asked.name) != nullptr) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is a model's name", asked.name),
                 "lora_name"};
  }
  const std::vector<const Entry*> all = table.all_adapters_of(asked.name);
  if (!all.empty() && std::ranges::find(all, base) == all.end()) {
    const Entry* const taken = all.front();
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is an adapter of '{}'", asked.name, taken->names.id),
                 "lora_name"};
  }
  TRY_ASSIGN(std::string path, base->adapters->folders().resolve(asked.path));
  return Order{
      .adapters = base->adapters,
      .source = {.name = asked.name,
                 .path = std::move(path),
                 .pinned = asked.pinned,
                 .is_confined = true,
                 .is_3d = asked.is_3d},
      .in_place = asked.in_place ? AdapterRegistry::InPlace::kYes : AdapterRegistry::InPlace::kNo};
}

// The model that has the adapter: that of the name given, or the only one.
Result<const Entry*> owner_of(const api::UnloadLoraRequest& asked,
                              const ModelCatalogue::Table& table) {
  std::vector<const Entry*> all = table.all_adapters_of(asked.name);
  if (!asked.base.empty()) {
    TRY_ASSIGN(const Entry* const base, base_of(table, asked.base));
    std::erase_if(all, [&](const Entry* entry) { return entry != base; });
  }
  if (all.empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("there is no adapter named '{}'", asked.name),
                 std::string(kUnknownAdapter)};
  }
  if (all.size() == 1) return all.front();
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' and '{}' both have an adapter named '{}': 'base_model_name' says "
                           "which one is meant",
                           all[0]->names.id, all[1]->names.id, asked.name),
               "base_model_name"};
}

}  // namespace

void load_lora_adapter(Call call, Services& services) {
  if (!services.options.lora_updating) return call.send(not_allowed_here());
  const Result<api::LoadLoraRequest> asked = api::parse_load_lora_request(call.request.body, {});
  if (!asked.ok()) return call.send(api::api_error(asked.error()));
  const auto table = services.catalogue.table();
  if (is_starting(*table, asked->base)) return call.send(not_ready(kStarting));
  if (!admit(call, services, *table)) return;
  Result<Order> order = order_of(*asked, *table);
  if (!order.ok()) return call.send(lora_error(order.error()));
  const auto submit = [&](const WorkDone& done) -> Result<CancelWork> {
    TRY(order->adapters->load(std::move(order->source), order->in_place,
                              [done](const Result<void>& outcome) {
                                done(outcome.ok() ? std::nullopt : std::optional(outcome.error()));
                              }));
    return CancelWork([] {});  // it is loaded, though nobody waits for it
  };
  wait_for_work(std::move(call), submit,
                [name = asked->name](Call one, const std::optional<Error>& error) {
                  if (error) return one.send(lora_error(*error));
                  one.send(done_reply(name, "added"));
                });
}

void unload_lora_adapter(Call call, Services& services) {
  if (!services.options.lora_updating) return call.send(not_allowed_here());
  const Result<api::UnloadLoraRequest> asked =
      api::parse_unload_lora_request(call.request.body, {});
  if (!asked.ok()) return call.send(api::api_error(asked.error()));
  const auto table = services.catalogue.table();
  if (is_starting(*table, asked->base)) return call.send(not_ready(kStarting));
  if (!admit(call, services, *table)) return;
  const Result<const Entry*> base = owner_of(*asked, *table);
  const Result<void> unloaded =
      base.ok() ? (*base)->adapters->unload(asked->name) : Result<void>(base.error());
  if (!unloaded.ok()) return call.send(lora_error(unloaded.error()));
  call.send(done_reply(asked->name, "removed"));
}

}  // namespace pelton::server
