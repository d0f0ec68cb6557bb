// The way of a request to a model, whatever its endpoint and protocol: body -> fields -> the model
// by its name and what it can do -> deadline -> output formats compiled -> prompts as the engine's
// requests -> the engine -> answer. An endpoint supplies what differs: how its body is read, what
// prompts it means, how its answer is written (ModelRequest); all else is here, once, for HTTP, a
// WebSocket's turns and gRPC.
//
// A request lives on its connection's net thread. Of one with a large body the two stages that read
// all of it (read, prepare) run beside the net threads (server/waiting_call.h), and where a model's
// prompts are what its template prints, prepare always does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "access/request_record.h"
#include "api/error.h"
#include "api/generation_fields.h"
#include "base/function_ref.h"
#include "grammar/grammar_state.h"
#include "server/call.h"
#include "server/engine_work.h"
#include "server/format_compiler.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/model_admission.h"
#include "server/services.h"

namespace pelton::server {

class ModelRequest {
 public:
  virtual ~ModelRequest() = default;

  struct Scope {
    Services& services;
    const ServedModel& model;
    const std::string& tenant;
    RequestIdentity& identity;
    // Where the request began at another server, whose past turns this one has not sampled: its
    // prompt as that one wrote it. Empty: this one writes its own.
    std::span<const TokenId> known_prompt = {};

    void use_known_prompt(std::vector<TokenId>& prompt) const;
  };

  // The body is understood, so far as that needs no tokens: what it asks for is in fields() from
  // then on. Any thread.
  virtual std::optional<api::ApiError> read(const std::string& body, const Scope& scope) = 0;

  // Of what has been read; views into it.
  struct Fields {
    std::string_view model;  // empty: none is named
    std::vector<std::string> warnings = {};
    std::optional<double> timeout_s = {};
    Call::Whole whole = Call::Whole::kYes;  // the answer comes at once, when all of it is there
    std::string_view user = {};             // billing account, if there is no tenant
    // How long the model stays in memory behind it, where models sleep; none: as before.
    std::optional<int64_t> keep_alive_ns = {};
    access::SamplingAsked asked = {};
  };
  virtual Fields fields(const ServedModel& model) const = 0;

  // What this model, or this connection, cannot do of it. On the net thread.
  virtual std::optional<api::ApiError> refusal(const Call& /*call*/, const Scope& /*scope*/) const {
    return std::nullopt;
  }

  // Of its output formats and tools; empty: it has none.
  virtual FormatCompiler::MakeGuide guide(const ServedModel& /*model*/) const { return {}; }

  // Renders and tokenises its prompts and makes the engine's requests of them. Any thread.
  struct Prepared {
    std::optional<grammar::GrammarState> guide;
    std::optional<int64_t> deadline_ns;
    const access::Principal& principal;
  };
  virtual std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) = 0;

  // On the net thread: hands them to the engine and sees to the answer, or answers.
  virtual void start(Call call, Services& services) = 0;
};

// `work`: what it makes the model do, for which it is admitted; none: tokens are counted only.
void run_request(Call call, Services& services, std::unique_ptr<ModelRequest> request,
                 std::optional<Work> work);

// Keeps what was made, or gives the error.
template <typename T>
std::optional<api::ApiError> keep(Result<T> made, T& kept) {
  if (!made.ok()) return api::api_error(made.error());
  kept = *std::move(made);
  return std::nullopt;
}
template <typename T>
std::optional<api::ApiError> keep(Result<T> made, std::shared_ptr<const T>& kept) {
  if (!made.ok()) return api::api_error(made.error());
  kept = std::make_shared<const T>(*std::move(made));
  return std::nullopt;
}
template <typename T>
std::optional<api::ApiError> keep(std::variant<T, api::ApiError> made, T& kept) {
  if (auto* error = std::get_if<api::ApiError>(&made)) return std::move(*error);
  kept = std::get<T>(std::move(made));
  return std::nullopt;
}

// The work of one prompt; the answer if it does not fit the model.
std::variant<EngineWork, api::ApiError> engine_work(const ModelRequest::Scope& scope,
                                                    const api::GenerationFields& fields,
                                                    GenerationSource source);

std::weak_ptr<Generation> run_generation(Services& services, Generation::Parts parts);
// Submits it and lets the answer run: `make_answer` is called once the engine has taken it.
using MakeAnswer = base::FunctionRef<std::unique_ptr<Answer>()>;
void start_generation(Call call, Services& services, EngineWork work, MakeAnswer make_answer);

// What all requests for tokens say.
ModelRequest::Fields fields_of(const api::GenerationFields& generation, std::string_view model,
                               std::vector<std::string> warnings);

}  // namespace pelton::server
