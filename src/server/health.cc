// What platforms and operators ask about the server itself.
#include "server/health.h"

#include <algorithm>

#include "base/json_writer.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "server/watchdog.h"

namespace pelton::server {

std::string_view state_name(const Services& services) {
  const bool serves = !services.catalogue.serving().empty();
  const auto table = services.catalogue.table();
  if (!table->answering() && table->starting()) return "loading";
  if (services.leaving) return "draining";
  return serves ? "serving" : table->answering() ? "asleep" : "empty";
}

bool ready(const Services& services) {
  const auto models = services.catalogue.serving();
  return services.catalogue.table()->answering() && !services.draining &&
         std::ranges::none_of(models, [](const auto& model) {
           return model->state->model_health == ModelHealth::kDamaged;
         });
}

// A draining or idle server is well; one whose step never ends should be started anew.
net::HttpResponse live_reply(const Services& services) {
  for (const std::shared_ptr<const ServedModel>& model : services.catalogue.serving()) {
    if (const auto unfit = model->unfit()) return error_reply(*unfit);
  }
  return json_reply("{\"status\":\"ok\"}");
}

net::HttpResponse health_reply(const Services& services) {
  const auto table = services.catalogue.table();
  if (!table->answering() && table->starting()) {
    return error_reply(not_ready("The model is still being loaded"));
  }
  return live_reply(services);
}

// A balancer sends requests to any of the models: all that the server begins with have to be there,
// or to have failed. One that is loaded later keeps nobody waiting.
net::HttpResponse ready_reply(const Services& services) {
  if (services.leaving) return error_reply(not_ready("The server is shutting down"));
  if (services.catalogue.table()->starting()) {
    return error_reply(not_ready("Models are still being loaded"));
  }
  const auto models = services.catalogue.serving();
  if (!services.catalogue.table()->answering()) {
    return error_reply(not_ready("No model is served; POST /admin/models loads one"));
  }
  for (const std::shared_ptr<const ServedModel>& model : models) {
    if (model->state->model_health == ModelHealth::kDoubted) {
      return error_reply(numbers_in_doubt(model->id));
    }
  }
  return health_reply(services);
}

void health(Call call, Services& services) {
  call.send(health_reply(services));
}

void live(Call call, Services& services) {
  call.send(live_reply(services));
}

void ready(Call call, Services& services) {
  call.send(ready_reply(services));
}

// As SageMaker asks: the status says it all.
void ping(Call call, Services& services) {
  net::HttpResponse reply = ready_reply(services);
  if (reply.status == 200) reply.body.clear();
  call.send(std::move(reply));
}

namespace {

using base::JsonWriter;

void write_model(JsonWriter& writer, const ServedModel& model) {
  writer.begin_object().key("id").string(model.id).key("aliases").begin_array();
  for (const std::string& alias : model.aliases) writer.string(alias);
  writer.end_array().key("created").integer(model.created);
  writer.key("context_max").integer(model.context_limit());
  writer.key("vocab_size").integer(model.vocab_size);
  writer.key("reasoning_field").string(model.reasoning_field).end_object();
}

void write_engine(JsonWriter& writer, const engine::ExecutorCapacity& capacity) {
  writer.begin_object().key("sequences_max").integer(capacity.sequences_max);
  writer.key("batch_tokens_max").integer(capacity.batch_tokens_max);
  writer.key("context_tokens_max").integer(capacity.context_tokens_max);
  writer.key("block_tokens").integer(capacity.block_tokens);
  for (const kv::GroupCapacity& group : capacity.groups) {
    if (group.spec.slides()) {
      writer.key(group.spec.name + "_tokens").integer(group.spec.sliding_window);
    }
  }
  for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
    for (int group = 0; group < capacity.groups.size(); ++group) {
      const std::string pool = kv::pool_name(capacity.groups[group].spec, tier);
      writer.key(pool + "_blocks").integer(capacity.blocks(group, tier));
    }
  }
  writer.end_object();
}

void write_sampling(JsonWriter& writer, const SamplingDefaults& sampling) {
  writer.begin_object().key("temperature").number(sampling.temperature);
  writer.key("top_p").number(sampling.top_p).key("top_k").integer(sampling.top_k);
  writer.key("min_p").number(sampling.min_p);
  writer.key("repetition_penalty").number(sampling.repetition_penalty).end_object();
}

// The same of every model.
void write_served(JsonWriter& writer, const ServedModel& model, int64_t sampled_turn_tokens_max) {
  const int64_t watchdog_ns = model.watchdog == nullptr ? 0 : model.watchdog->limit_ns();
  writer.key("watchdog_seconds").integer(watchdog_ns / 1'000'000'000);
  writer.key("model");
  write_model(writer, model);
  writer.key("runtime").begin_object();
  if (model.runtime) {
    for (const auto& [key, value] : model.runtime()) writer.key(key).string(value);
  }
  writer.end_object().key("engine");
  write_engine(writer, model.engine.capacity());
  writer.key("limits").begin_object();
  writer.key("answers_max").integer(engine::Engine::kAnswersMax);
  writer.key("sampled_turn_tokens_max").integer(sampled_turn_tokens_max);
  for (const auto& [key, value] : model.limits) writer.key(key).integer(value);
  writer.end_object();
  writer.key("sampling_defaults");
  write_sampling(writer, model.sampling);
}

}  // namespace

// vLLM's: for balancers that ask each server how much it has to do.
void load(Call call, Services& services) {
  std::string body;
  JsonWriter(body)
      .begin_object()
      .key("server_load")
      .integer(services.access_control.inside())
      .end_object();
  call.send(json_reply(std::move(body)));
}

// What is in effect, whichever flag, file or default it came from.
void server_info(Call call, Services& services) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("version").string(services.options.version);
  writer.key("state").string(state_name(services));
  writer.key("uptime_seconds")
      .integer((services.clock.now_ns() - services.started_ns) / 1'000'000'000);
  const auto models = services.catalogue.serving();
  const int64_t turn_tokens_max = services.options.sampled_turn_tokens_max;
  if (models.size() == 1) {
    write_served(writer, *models.front(), turn_tokens_max);
  } else if (!models.empty()) {
    writer.key("models").begin_array();
    for (const std::shared_ptr<const ServedModel>& model : models) {
      writer.begin_object();
      write_served(writer, *model, turn_tokens_max);
      writer.end_object();
    }
    writer.end_array();
  }
  writer.end_object();
  call.send(json_reply(std::move(body)));
}

}  // namespace pelton::server
