// The OpenAI-compatible server: gives each HTTP request its route and answers it. Owned by the
// program's entry, which hands handle() to net::HttpServer and stops that before this goes away.
//
// handle() runs on the request's net thread; drain() and the rest may be called from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "access/access_control.h"
#include "access/api_keys.h"
#include "access/cors.h"
#include "access/request_reporter.h"
#include "access/request_statistics.h"
#include "api/chat_request.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "server/background_response.h"
#include "server/call.h"
#include "server/chat_prompt.h"
#include "server/couriers.h"
#include "server/encrypted_reasoning.h"
#include "server/format_compiler.h"
#include "server/model_admission.h"
#include "server/model_catalogue.h"
#include "server/response_answer.h"
#include "server/response_conversation.h"
#include "server/response_link.h"
#include "server/running_answers.h"
#include "server/running_responses.h"
#include "server/sampled_turns.h"
#include "server/served_model.h"
#include "server/upkeep.h"
#include "store/response_store.h"

namespace pelton::server {

class Server {
 public:
  struct Options {
    std::string version;   // of the program, for /version
    access::ApiKeys keys;  // empty: none is asked for
    access::CorsOrigins cors;
    std::string reasoning_key;  // of "encrypted_content"; empty: made now, for this server's life
    uint64_t seed = 0;          // of ids and of requests that give none; 0: from the system
    int64_t sampled_turn_tokens_max = int64_t{1} << 22;  // 0: past turns are always written anew
    store::ResponseStore* response_store = nullptr;      // outlives it; null: none is kept
    access::RequestReporter::Options reports;
    CompilePool::Options compile_pool;
  };

  // `clock` and `log` outlive it.
  Server(const Options& options, const base::Clock& clock, base::Log& log);

  // From now on it answers; until there is one /health says 503.
  void serve(std::shared_ptr<ServedModel> model);

  // Says not ready, so that balancers turn away, and answers what still comes.
  void announce_drain();
  // Refuses new generations too; running ones go on.
  void drain();

  // From the next request on; any thread. What keys have used of their limits stays used.
  void set_keys(access::ApiKeys keys) { access_.replace_keys(std::move(keys)); }

  void handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange);

  // For those who report; any thread.
  ModelCatalogue& catalogue() { return catalogue_; }
  const ModelCatalogue& catalogue() const { return catalogue_; }
  // New requests are taken, of every model that is served.
  bool ready() const;
  Upkeep& upkeep() { return upkeep_; }
  const Upkeep& upkeep() const { return upkeep_; }
  std::string_view state_name() const;  // "loading", "serving", "draining"
  const access::RequestStatistics& book() const { return book_; }
  const SampledTurns& sampled_turns() const { return sampled_turns_; }
  const access::RequestReporter& reporter() const { return reporter_; }
  const store::ResponseStore* response_store() const { return options_.response_store; }
  // Of all models; an error names the one that cannot answer.
  net::HttpResponse live_reply() const;    // 503 while a step is stuck, and with damaged weights
  net::HttpResponse health_reply() const;  // 503 also while there is no model
  net::HttpResponse ready_reply() const;   // 503 also while draining, and when in doubt

  // For doors of other protocols; any thread.
  access::AccessControl& access() { return access_; }
  const access::AccessControl& access() const { return access_; }
  const base::Clock& clock() const { return clock_; }
  access::RequestStatistics& book() { return book_; }
  SampledTurns& sampled_turns() { return sampled_turns_; }
  FormatCompiler& formats() { return formats_; }
  const FormatCompiler& formats() const { return formats_; }
  uint64_t draw();  // the next of the server's random numbers
  // By which a request is known in logs and answers: what its caller calls it, if that may stand
  // there, or a name of ours.
  std::string request_id(std::string_view asked);
  // When the entry ends, those who want to know of requests are told of this one.
  void report(access::TrackedRequest& entry, const access::RequestReporter::Arrival& arrival);
  // The model that answers a request for one of this name; empty: for the only one there is. Or why
  // nobody does just now.
  using ModelOrError = std::variant<std::shared_ptr<const ServedModel>, api::ApiError>;
  ModelOrError model_now(std::string_view name) const;
  // The tokens that a chat request means to its tenant now.
  ChatPrompt chat_prompt_of(const api::ChatRequest& request, const ServedModel& model,
                            std::string_view tenant);

 private:
  friend struct Routes;
  friend class ResponseSocket;

  // A request to /v1/responses, understood.
  struct ResponsePlan {
    Json body;  // as it was asked, with the items that it names
    api::ResponseRequest request;
    std::vector<PastResponse> history;
    std::optional<ChatPrompt> prompt;  // there once it is planned
    std::vector<TokenId> opening;
    std::optional<int64_t> deadline_ns;
  };

  net::HttpHeaders common_headers(const net::HttpRequest& request);

  // Why nobody is answered; nothing if anybody may be.
  std::optional<api::ApiError> refusal() const;
  // The model that the call asks for, if it may generate now, which the call holds from then on;
  // otherwise the call has been answered. Where there is only one, whether that is the one that was
  // asked for is looked at when its body has been read (model_named).
  const ServedModel* model_for(Call& call) const;
  // The same for a call that will make it work, which gets its pass.
  const ServedModel* model_at_work_for(Call& call, Work work);
  // The engine's streams; none: the call has been answered.
  std::optional<std::vector<engine::TokenStream>> submit(Call& call,
                                                         request::GenerationRequest request,
                                                         int answers);
  // The call's model if that is its name; otherwise the call has been answered.
  const ServedModel* model_named(const Call& call, std::string_view name) const;

  // Gives `then` the call back with the guide that `make` makes of its request's formats: at once
  // where they are known, otherwise when they have been compiled, on its net thread. A call whose
  // formats are refused has been answered; one whose client has left is dropped.
  struct GuideOrder {
    std::string user;  // who pays, if the call has no tenant
    std::optional<int64_t> deadline_ns;
    FormatCompiler::MakeGuide make;
  };
  using GuideThen = std::function<void(Call call, std::optional<grammar::TokenGuide> guide)>;
  void with_guide(Call call, GuideOrder order, GuideThen then);  // guided_call.cc

  void answer_index(Call call);
  void answer_health(Call call);  // health.cc, also the next five
  void answer_live(Call call);
  void answer_ready(Call call);
  void answer_ping(Call call);
  void answer_server_info(Call call);
  void answer_load(Call call);
  void answer_invocation(Call call);  // invocations.cc
  void answer_metrics(Call call);
  void answer_version(Call call);
  void answer_models(Call call);
  void answer_model(Call call);
  void answer_chat_completion(Call call);  // chat_completions.cc
  void answer_chat_control(Call call);     // chat_control.cc
  void answer_chat_tokens(Call call);      // tokenize.cc
  void answer_completion(Call call);       // completions.cc
  void answer_response(Call call);         // responses.cc
  void answer_response_tokens(Call call);  // responses.cc
  void answer_response_socket(Call call);  // response_socket_route.cc
  void answer_get_response(Call call);     // stored_responses.cc
  void answer_background(Call call, const std::shared_ptr<BackgroundResponse>& response);
  void answer_delete_response(Call call);    // stored_responses.cc
  void answer_cancel_response(Call call);    // stored_responses.cc
  void answer_message(Call call);            // messages.cc
  void answer_message_tokens(Call call);     // messages.cc
  void answer_chat_render(Call call);        // render.cc
  void answer_completion_render(Call call);  // render.cc
  void answer_generate(Call call);           // generate.cc
  void answer_embeddings(Call call);         // embeddings.cc
  void answer_embed(Call call);              // embeddings.cc
  void answer_rerank(Call call);             // embeddings.cc
  void answer_score(Call call);              // embeddings.cc
  void answer_tokenize(Call call);           // tokenize.cc
  void answer_detokenize(Call call);         // tokenize.cc

  struct ChatWork;        // chat_completions.cc
  struct CompletionWork;  // completions.cc
  struct MessageWork;     // messages.cc
  void begin_chat(Call call, const ChatWork& work, std::optional<grammar::TokenGuide> guide);
  void begin_completion(Call call, const CompletionWork& work,
                        std::optional<grammar::TokenGuide> guide);
  void begin_message(Call call, const MessageWork& work, std::optional<grammar::TokenGuide> guide);

  void create_response(Call call, Json asked, const std::shared_ptr<ResponseLink>& link);
  void begin_response(Call call, const ServedModel& model, ResponsePlan plan,
                      const std::shared_ptr<ResponseLink>& link,
                      std::optional<grammar::TokenGuide> guide);
  Result<ResponsePlan> plan_response(const Call& call, Json body, const ServedModel& model,
                                     const ResponseLink& link);
  Result<void> read_encrypted_reasoning(api::ResponseRequest& request,
                                        std::string_view tenant) const;
  Result<void> drop_oldest_items(ResponsePlan& plan, const ServedModel& model,
                                 const std::string& date, const std::string& salt);
  Result<std::vector<PastResponse>> response_history(const Call& call, const std::string& id,
                                                     const ResponseLink& link);
  Call call_in_background(Call& asking, const api::ResponseHead& head, bool streamed);
  std::function<void(ResponseAnswer::Ended)> keep_response(const Call& call,
                                                           std::shared_ptr<ResponseLink> link,
                                                           ResponsePlan plan,
                                                           const api::ResponseHead& head);
  api::ApiError no_response(std::string_view id) const;
  Result<store::StoredResponse> stored_response(const Call& call, const std::string& id);

  const Options options_;
  const uint64_t seed_;
  const base::Clock& clock_;
  base::Log& log_;
  access::AccessControl access_;
  const EncryptedReasoning encrypted_reasoning_;
  Upkeep upkeep_;
  SampledTurns sampled_turns_;
  RunningResponses running_responses_;
  access::RequestStatistics book_{clock_};
  access::RequestReporter reporter_;
  RunningAnswers running_;
  Couriers couriers_;
  const int64_t started_ns_;
  ModelCatalogue catalogue_;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> draws_{0};
  BackgroundResponses background_;  // what still runs reports to those above
  FormatCompiler formats_;          // last: so do the calls that wait for it
};

}  // namespace pelton::server
