#include "server/services.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/json_object.h"
#include "base/random.h"
#include "prompt/chat_conversation.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/resumed_answers.h"

namespace pelton::server {
namespace {

// Not among the draws of ids.
constexpr uint64_t kTurnSeedDraw = ~uint64_t{0} - 1;
constexpr uint64_t kReportSeedDraw = ~uint64_t{0} - 2;

// Of the salts: whoever knows the seed of ids must not know it.
std::string system_secret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < 8; ++i) secret += fmt::format("{:08x}", device());
  return secret;
}

uint64_t system_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Of a request that may have to go on elsewhere, where past turns have not been sampled. One that
// has come from there has its prompt with it (ModelRequest::Scope::known_prompt).
void note_prompt(const Call& call, size_t prompt, const EngineWork& work) {
  const bool is_known = call.resumed != nullptr && !call.resumed->prompts.empty();
  if (is_known || call.observer == nullptr || !work.has_sampled_turns) return;
  call.observer->note_prompt(prompt, work.request.prompt);
}

// What goes on here began under other weights than its name leads to here.
bool is_another_adapter(const Call& call, const ServedModel& model) {
  if (call.resumed == nullptr || call.resumed->adapter.empty()) return false;
  return model.adapter == nullptr || model.adapter->digest() != call.resumed->adapter;
}

api::ApiError adapter_changed(const std::string& name) {
  return {.status = 409,
          .message = fmt::format("the answer began with another version of the adapter '{}'", name),
          .type = "invalid_request_error",
          .param = "model",
          .code = "adapter_changed"};
}

// Why an entry answers nobody.
api::ApiError not_served(const ModelCatalogue::Entry& entry) {
  using State = ModelCatalogue::State;
  const std::string& id = entry.names.id;
  if (entry.state == State::kLoading) {
    return not_ready(fmt::format("The model '{}' is still being loaded", id));
  }
  if (entry.state == State::kFailed) {
    return not_ready(
        fmt::format("The model '{}' could not be loaded: {}", id, entry.error->message));
  }
  if (entry.is_dormant()) {
    return not_ready(fmt::format("The model '{}' sleeps; a request wakes it", id));
  }
  api::ApiError gone = api::model_not_found(id);
  gone.message = fmt::format("The model '{}' is being unloaded", id);
  return gone;
}

// "'a', 'b'": those that a request may name.
std::string names_of_served(const ModelCatalogue::Table& table) {
  constexpr size_t kShownMax = 20;
  std::vector<std::string> names;
  for (const ModelCatalogue::Entry& entry : table.entries) {
    if ((entry.model != nullptr || entry.is_dormant()) && names.size() < kShownMax) {
      names.push_back("'" + entry.names.id + "'");
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Services::Services(const Options& all_options, const base::Clock& the_clock, base::Log& the_log)
    : options(all_options),
      seed(options.seed != 0 ? options.seed : system_seed()),
      clock(the_clock),
      log(the_log),
      started_ns(clock.now_ns()),
      access_control(options.keys,
                     options.salt_secret.empty() ? system_secret() : options.salt_secret, clock),
      statistics(clock),
      reporter([&] {
        access::RequestReporter::Options reports = options.reports;
        reports.seed = base::random_bits(seed, kReportSeedDraw);
        return access::RequestReporter(reports, clock);
      }()),
      encrypted_reasoning(options.reasoning_key),
      turn_cache({.tokens_max = options.sampled_turn_tokens_max,
                  .seed = base::random_bits(seed, kTurnSeedDraw)}),
      formats(options.compile_pool, clock),
      preparation(options.preparation_pool, clock) {}

uint64_t Services::draw() {
  return base::random_bits(seed, draws_.fetch_add(1));
}

std::optional<uint64_t> Services::draw_sampling_seed() {
  if (!options.sampling_seed) return std::nullopt;
  return base::random_bits(*options.sampling_seed, seeds_.fetch_add(1));
}

std::string Services::request_id(std::string_view asked) {
  return is_plain_id(asked) ? std::string(asked)
                            : random_id("req_", {.seed = draw(), .counter = 0});
}

void Services::report(access::TrackedRequest& request,
                      const access::RequestReporter::Arrival& arrival) {
  std::unique_ptr<access::RequestRecord> record = reporter.begin(arrival);
  if (record != nullptr) request.report_to(reporter, std::move(record));
}

std::optional<api::ApiError> Services::refusal() const {
  if (draining) return not_ready("The server is shutting down");
  const auto table = catalogue.table();
  if (table->answering()) return std::nullopt;
  if (table->starting()) return not_ready("The model is still being loaded");
  if (table->entries.size() == 1) return not_served(table->entries.front());
  return not_ready("No model is served");
}

api::ApiError Services::no_model(std::string_view name) const {
  const auto table = catalogue.table();
  const std::string_view meant = name.empty() ? table->default_id : name;
  const ModelCatalogue::Entry* const entry = meant.empty() ? nullptr : table->find(meant);
  if (entry != nullptr && entry->model == nullptr) return not_served(*entry);
  // Why others do not answer is nothing to who asks for a model that there never was.
  const bool is_unknown = entry == nullptr && !name.empty() && !table->entries.empty();
  if (is_unknown && !draining && !table->starting()) return api::model_not_found(name);
  if (auto refused = refusal()) return *std::move(refused);
  return name.empty() ? api::model_missing(names_of_served(*table)) : api::model_not_found(name);
}

Services::ModelOrError Services::model_now(std::string_view name) const {
  if (draining) return *refusal();
  std::shared_ptr<const ServedModel> model =
      catalogue.find(name.empty() ? std::string_view(catalogue.table()->default_id) : name);
  if (model == nullptr) return no_model(name);
  if (auto unfit = model->unfit()) return *std::move(unfit);
  return model;
}

Services::Chosen Services::choose_model(Call& call, std::string& awaited) const {
  std::string name;
  if (catalogue.only() == nullptr) {
    if (!call.model_asked) {
      Result<std::string> asked = api::model_asked(call.request.body);
      if (!asked.ok()) {
        call.send(refusal().value_or(api::api_error(asked.error())));
        return Chosen::kAnswered;
      }
      call.model_asked = *std::move(asked);
    }
    if (!call.is_own_url(*call.model_asked)) name = *call.model_asked;
  }
  // An adapter's model is chosen first.
  const auto table = catalogue.table();
  const ModelCatalogue::Entry* const base =
      name.empty() || table->find(name) != nullptr ? nullptr : table->find_adapters_of(name);
  const std::string& model_name = base == nullptr ? name : base->names.id;
  if (const auto dormant = dormant_model(model_name)) {
    awaited = *dormant;
    return Chosen::kAsleep;
  }
  ModelOrError model = model_now(model_name);
  if (const auto* error = std::get_if<api::ApiError>(&model)) {
    call.send(*error);
    return Chosen::kAnswered;
  }
  auto chosen = std::get<0>(std::move(model));
  if (base != nullptr && !use_adapter(call, name, chosen)) {
    awaited = name;
    return Chosen::kAdapterAway;
  }
  if (is_another_adapter(call, *chosen)) {
    call.send(adapter_changed(name));
    return Chosen::kAnswered;
  }
  call.model = in_use(std::move(chosen), clock);
  if (call.observer != nullptr && call.model->adapter != nullptr) {
    call.observer->note_adapter(call.model->adapter->digest());
  }
  if (access::RequestRecord* const record = call.record()) {
    record->model = call.model->id;
    if (call.model->adapter != nullptr) record->adapter = call.model->adapter->digest();
  }
  return Chosen::kYes;
}

// `model` under the adapter of this name; false: it is not in memory.
bool Services::use_adapter(Call& call, const std::string& name,
                           std::shared_ptr<const ServedModel>& model) {
  std::shared_ptr<const AdapterHold> hold = std::exchange(call.adapter, nullptr);
  if (hold == nullptr || hold->name() != name) hold = model->adapters->hold(name);
  if (hold == nullptr) return false;
  model = with_adapter(std::move(model), std::move(hold));
  return true;
}

std::optional<std::string> Services::dormant_model(std::string_view name) const {
  if (draining) return std::nullopt;
  const auto table = catalogue.table();
  const ModelCatalogue::Entry* const entry = table->find(name.empty() ? table->default_id : name);
  if (entry == nullptr || !entry->is_dormant()) return std::nullopt;
  return entry->names.id;
}

bool Services::check_model_name(const Call& call, std::string_view name) const {
  if (call.model->answers_to(name) || call.is_own_url(name)) return true;
  call.send(no_model(name));
  return false;
}

bool Services::admit(Call& call, Work work) {
  auto admitted = server::admit(access_control, call.caller, *call.model, work);
  if (const auto* refused = std::get_if<api::ApiError>(&admitted)) {
    access_control.add_limits(call.caller, call.headers);
    call.send(*refused);
    return false;
  }
  call.ticket = std::make_unique<access::AdmissionTicket>(
      std::get<access::AdmissionTicket>(std::move(admitted)));
  return true;
}

std::optional<std::vector<engine::TokenStream>> Services::submit(Call& call,
                                                                 std::vector<EngineWork> all) {
  std::vector<engine::TokenStream> streams;
  std::optional<api::ApiError> refused;
  size_t prompt = 0;
  if (!std::ranges::all_of(all, can_resume)) call.resumed = nullptr;
  for (EngineWork& one : all) {
    const size_t first = streams.size();
    const int answers = one.answers;
    // The ticket is for one use, and for the prompt that the gateway has named.
    if (all.size() == 1) one.request.peer = std::move(call.peer);
    note_prompt(call, prompt++, one);
    one.request.tells_found = call.observer != nullptr;
    if (options.on_prompt) options.on_prompt(*call.model, one.request);
    std::vector<int> open;  // of them; those that are over have no stream to wait for
    if (call.resumed != nullptr) open = resume_work(*call.resumed, first, one);
    if (call.resumed != nullptr && open.empty()) {
      for (int i = 0; i < answers; ++i) streams.emplace_back(nullptr);
      continue;
    }
    auto submitted =
        server::submit(*call.ticket, *call.model, std::move(one.request),
                       {.answers = one.answers, .outbox = outboxes.of_thread(*call.exchange)});
    if (auto* error = std::get_if<api::ApiError>(&submitted)) {
      refused = std::move(*error);
      break;
    }
    std::vector<engine::TokenStream>& made = std::get<0>(submitted);
    if (call.resumed == nullptr) {
      std::ranges::move(made, std::back_inserter(streams));
      continue;
    }
    for (int i = 0; i < answers; ++i) streams.emplace_back(nullptr);
    for (size_t i = 0; i < open.size(); ++i) {
      streams[first + static_cast<size_t>(open[i])] = std::move(made[i]);
    }
  }
  access_control.add_limits(call.caller, call.headers);
  if (!refused) return streams;
  call.send(*refused);
  return std::nullopt;
}

Result<ChatPrompt> Services::chat_prompt_of(const api::ChatRequest& request,
                                            const ServedModel& model, std::string_view tenant,
                                            const RequestIdentity& identity,
                                            std::vector<TokenId>& opening) {
  if (std::optional<Error> error = not_in_prompts(request, *model.chat)) return *std::move(error);
  const std::string date = model.current_date.value_or(identity.prompt_date());
  TRY_ASSIGN(
      ChatPrompt prompt,
      chat_prompt(prompt::conversation_of(request, date), request.messages, model, turn_cache,
                  access_control.cache_salt(tenant, request.generation.cache_salt)));
  begin_turn(model, prompt, opening);
  return prompt;
}

}  // namespace pelton::server
