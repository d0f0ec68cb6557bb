// What endpoints share: who is let in, what is recorded, the models, what is kept between requests,
// ids, clock and log; and the steps that the request pipeline takes with it. Owned by the Server,
// which outlives all calls. Any thread, but what takes a Call: that is for the call's net thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "access/access_control.h"
#include "access/cors.h"
#include "access/request_reporter.h"
#include "access/request_statistics.h"
#include "api/chat_request.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/background_response.h"
#include "server/call.h"
#include "server/chat_prompt.h"
#include "server/encrypted_reasoning.h"
#include "server/engine_work.h"
#include "server/format_compiler.h"
#include "server/model_admission.h"
#include "server/model_catalogue.h"
#include "server/model_sleep.h"
#include "server/outboxes.h"
#include "server/reload_statistics.h"
#include "server/request_identity.h"
#include "server/running_answers.h"
#include "server/running_responses.h"
#include "server/turn_cache.h"
#include "server/waiting_call.h"
#include "server/work_pool.h"
#include "store/response_store.h"

namespace pelton::access {
class AuditLog;
}
namespace pelton::chain_http {
class ChainService;
}

namespace pelton::server {

class Batches;
class ToolServers;

struct Services {
  struct Options {
    std::string version;   // of the program, for /version
    access::ApiKeys keys;  // empty: none is asked for
    access::CorsOrigins cors;
    std::string reasoning_key;  // of "encrypted_content"; empty: made now, for this server's life
    // Of the salts by which tenants share nothing in the prefix cache: one for all processes that
    // find each other's blocks; empty: made now.
    std::string salt_secret = {};
    uint64_t seed = 0;  // of ids and of requests that give none; 0: from the system
    std::optional<uint64_t> sampling_seed = {};  // of requests that give none; none: as above
    std::string root_path = {};                  // may stand before every path; empty: none
    int64_t sampled_turn_tokens_max = int64_t{1} << 22;  // 0: past turns are always written anew
    store::ResponseStore* response_store = nullptr;      // outlives it; null: none is kept
    ToolServers* tools = nullptr;  // of models themselves; outlives it; null: there are none
    const access::AuditLog* audit = nullptr;  // for the metrics; outlives it; null: none is kept
    access::RequestReporter::Options reports;
    WorkPool::Options compile_pool = {};
    WorkPool::Options preparation_pool = preparation_pool_options();
    // Bodies from this size on are read and tokenised beside the net threads.
    int64_t beside_bytes_min = int64_t{64} << 10;
    bool sleep_mode = false;     // whether callers may put models to sleep
    bool lora_updating = false;  // whether they may load and unload adapters
    bool keeps_blocks = false;   // a model of the start keeps what it computes on a disk
    bool console = true;         // whether /console is answered
    // A prompt is on its way to its model's engine; on net threads. Empty: nobody asks.
    std::function<void(const ServedModel& model, const request::GenerationRequest& request)>
        on_prompt = {};
  };

  // `clock` and `log` outlive it.
  Services(const Options& options, const base::Clock& clock, base::Log& log);

  uint64_t draw();  // the next of the server's random numbers
  // For a request that gives no seed, if seeds are drawn from --seed; none: from `draw()`.
  std::optional<uint64_t> draw_sampling_seed();
  // By which a request is known in logs and answers: what its caller calls it, if that may stand
  // there, or a name of ours.
  std::string request_id(std::string_view asked);
  // When the request ends, those who want to know of requests are given its record.
  void report(access::TrackedRequest& request, const access::RequestReporter::Arrival& arrival);

  // Why nobody is answered; nothing if anybody may be.
  std::optional<api::ApiError> refusal() const;
  // The model that answers a request for one of this name; empty: for the only one there is. Or why
  // nobody does just now.
  using ModelOrError = std::variant<std::shared_ptr<const ServedModel>, api::ApiError>;
  ModelOrError model_now(std::string_view name) const;
  // Why no model answers to a name, which is empty where none is named.
  api::ApiError no_model(std::string_view name) const;

  // The tokens that a chat request of that identity means to its tenant, its model's turn begun
  // with `opening` (chat_prompt.h: begin_turn). Errors: kInvalidArgument.
  Result<ChatPrompt> chat_prompt_of(const api::ChatRequest& request, const ServedModel& model,
                                    std::string_view tenant, const RequestIdentity& identity,
                                    std::vector<TokenId>& opening);

  // Steps of a request. False, nothing or kAnswered: the call has been answered.

  // The model that the call asks for, if it may generate now, which the call holds from then on.
  // Where there is only one, whether it is the one that was asked for is looked at when the body
  // has been read (check_model_name).
  // One that sleeps has to be waited for: then by its id, and chosen anew. So has an adapter that
  // is not in memory: by its name.
  enum class Chosen : uint8_t { kYes, kAnswered, kAsleep, kAdapterAway };
  Chosen choose_model(Call& call, std::string& awaited) const;
  // Gives `then` the call back when the model has been woken. One that cannot be has been answered;
  // one whose client has left is dropped.
  void wait_for_model(Call call, std::string id, std::function<void(Call call)> then);
  // The same of an adapter.
  void wait_for_adapter(Call call, std::string name, std::function<void(Call call)> then);
  bool check_model_name(const Call& call, std::string_view name) const;
  bool admit(Call& call, Work work);
  std::optional<std::vector<engine::TokenStream>> submit(Call& call, std::vector<EngineWork> all);

  // How long work takes: as long as its body is large, or nobody knows.
  enum class Length : uint8_t { kByBody, kUnknown };
  // Gives `then` the call back when `work` has been done: at once, or, where the call's body is
  // large or the length unknown, on its net thread when another has done it. A call whose client
  // has left is dropped; what `work` uses it holds.
  void prepare_beside(Call call, Length length, std::function<void()> work,
                      std::function<void(Call call)> then);
  // Gives `then` the call back with the guide that `make` makes of its request's formats: at once
  // where they are known, otherwise when they have been compiled. A call whose formats are refused
  // has been answered; one whose client has left is dropped.
  struct GuideOrder {
    std::string user;  // billing account, if the call has no tenant
    std::optional<int64_t> deadline_ns;
    FormatCompiler::MakeGuide make;
  };
  using GuideThen = std::function<void(Call call, std::optional<grammar::GrammarState> guide)>;
  void with_guide(Call call, GuideOrder order, GuideThen then);

  // Before what requests use (models and their tokenizers) goes away: afterwards nothing runs
  // beside the net threads.
  void stop_pools() {
    formats.stop();
    preparation.stop();
  }

  const Options options;
  const uint64_t seed;
  const base::Clock& clock;
  base::Log& log;
  const int64_t started_ns;

  ModelCatalogue catalogue;
  ModelSleep model_sleep;
  // Of files and batches; null: there are none here. Set before the first request comes.
  Batches* batches = nullptr;
  // Of chains; null: there are none here. Set before the first request comes.
  chain_http::ChainService* chains = nullptr;
  std::atomic<bool> leaving = false;   // not ready any more; what still comes is answered
  std::atomic<bool> draining = false;  // nothing new is generated

  access::AccessControl access_control;
  access::RequestStatistics statistics;
  access::RequestReporter reporter;
  ReloadStatistics reload_statistics;

  const EncryptedReasoning encrypted_reasoning;
  TurnCache turn_cache;
  RunningResponses running_responses;
  RunningAnswers running_answers;
  Outboxes outboxes;
  BackgroundResponses background;  // what still runs reports to those above
  FormatCompiler formats;          // last, as is the next: so do the calls that wait for them
  WorkPool preparation;            // of large bodies

 private:
  // The id of the model of this name, if it sleeps.
  std::optional<std::string> dormant_model(std::string_view name) const;
  static bool use_adapter(Call& call, const std::string& name,
                          std::shared_ptr<const ServedModel>& model);

  std::atomic<uint64_t> draws_ = 0;
  std::atomic<uint64_t> seeds_ = 0;
};

}  // namespace pelton::server
