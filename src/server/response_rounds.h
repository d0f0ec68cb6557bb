// The rounds of one response whose model calls tools that this server runs: call -> result -> the
// prompt with both -> the engine, until the model calls no more. Bounded in calls, and in tokens by
// what the request asks for.
//
// Owned by its ResponseAnswer, on its net thread; results come from elsewhere and are posted there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "grammar/grammar_state.h"
#include "server/request_identity.h"
#include "server/response_plan.h"
#include "server/services.h"
#include "server/tool_servers.h"

namespace pelton::server {

class ResponseAnswer;

class ResponseRounds : public std::enable_shared_from_this<ResponseRounds> {
 public:
  struct Parts {
    Services& services;
    std::shared_ptr<const ServedModel> model;
    std::string tenant;
    std::shared_ptr<RequestIdentity> identity;
    std::string id;  // of the response
    ResponsePlan plan;
    std::optional<grammar::GrammarState> guide;
    std::optional<int64_t> deadline_ns;
  };

  explicit ResponseRounds(Parts parts);

  // Whether one more of the model's calls is answered: when there have been too many, the model
  // hears so once.
  bool may_go_on() const { return calls_ <= calls_max_; }
  // Runs the last call of `answer`, and lets `generation`, whose answer it is, go on with what
  // comes of it.
  void run(ResponseAnswer& answer, std::weak_ptr<Generation> generation);

 private:
  struct Waiting {
    ResponseAnswer* answer;  // the generation's, which is alive if that is
    std::weak_ptr<Generation> generation;
    std::shared_ptr<net::Exchange> exchange;
    std::string call_id;
  };

  void add_items(const ResponseAnswer& answer);
  void on_result(const std::shared_ptr<Waiting>& waiting, ToolServers::Session::Outcome outcome);
  void prepare(const std::shared_ptr<Waiting>& waiting);
  // On a thread of the preparation pool; nobody else touches what it changes meanwhile.
  std::optional<api::ApiError> write_next();
  void submit(const std::shared_ptr<Waiting>& waiting, const std::optional<Error>& error);

  // At the request's deadline, if it still waits for that call.
  void give_up(const std::shared_ptr<Waiting>& waiting);

  Parts parts_;  // but its plan
  ResponsePlan plan_;
  std::weak_ptr<Waiting> waiting_;  // the last one
  const int64_t calls_max_;
  int64_t calls_ = 0;
  std::optional<int64_t> tokens_left_;  // none: as many as fit
  ToolServers::Session session_;
  EngineWork work_;
  std::optional<api::ApiError> refused_;
  std::shared_ptr<WorkPool::Ticket> preparing_;
};

}  // namespace pelton::server
