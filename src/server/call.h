// One HTTP request being answered: the way back and the headers that every answer to it carries.
// Passed along on the exchange's net thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "access/access_control.h"
#include "access/request_record.h"
#include "access/request_statistics.h"
#include "api/error.h"
#include "base/result.h"
#include "engine/token_stream.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "request/prefix_peer.h"
#include "server/answer_observer.h"
#include "server/request_identity.h"
#include "server/served_model.h"

namespace pelton::server {

// Whose clients an error is answered to.
enum class Dialect { kOpenAi, kAnthropic, kOllama };

struct Endpoint;
struct ResumedAnswers;

struct Call {
  net::HttpRequest request;
  std::shared_ptr<net::Exchange> exchange;
  net::HttpHeaders headers;  // x-request-id, CORS, warnings
  std::string tenant;        // by its key; empty: all who have no name of their own
  access::Principal caller;  // the same, and what its key may ask for
  int64_t arrived_ns = 0;
  int64_t body_bytes = 0;  // also of a message that it came as
  // Until when its transport says that it is wanted, on the server's clock.
  std::optional<int64_t> transport_deadline_ns = {};
  Dialect dialect = Dialect::kOpenAi;
  const Endpoint* endpoint = nullptr;  // that it came to; null: it is none of HTTP's own
  // The model that it asks for, where that has been read; its body is looked at otherwise.
  std::optional<std::string> model_asked;
  std::unique_ptr<access::TrackedRequest> entry;  // null in tests of parts
  // That it asks, once it is chosen: held for all that hangs on the call.
  std::shared_ptr<const ServedModel> model;
  // The adapter that it asks for, where it had to be waited for.
  std::shared_ptr<const AdapterHold> adapter = {};
  std::unique_ptr<access::AdmissionTicket> ticket;  // of one that makes the model work

  std::shared_ptr<RequestIdentity> identity;  // from its request's first stage on
  // Of one that a gateway has sent: what of its answers was said elsewhere (null: nothing), and who
  // keeps what is said here (null: nobody).
  std::shared_ptr<const ResumedAnswers> resumed;
  std::shared_ptr<AnswerObserver> observer;
  // Of such a one: where its prompt's beginning may be fetched.
  std::optional<request::PrefixPeer> peer = {};

  // What is recorded of it; null: nobody wants to know.
  access::RequestRecord* record() const { return entry == nullptr ? nullptr : entry->record(); }

  void send(net::HttpResponse response) const;
  void send(const api::ApiError& error) const;
  // When the client no longer wants an answer, on the server's clock: as long after its arrival as
  // the header x-request-timeout-ms (or -deadline-ms) or the body says, whichever is sooner; of a
  // whole answer also as OpenAI's and Anthropic's clients say how long they will wait. None if
  // nobody says.
  enum class Whole { kYes, kNo };
  Result<std::optional<int64_t>> deadline_ns(std::optional<double> timeout_s, Whole whole) const;
  // Whether `name` is the URL that this request was sent to, its path aside: what Hugging Face's
  // clients call the model of a server that they know by its URL only.
  bool is_own_url(std::string_view name) const;
  // What was ignored in the request, each in a header of the answer.
  void add_warnings(const std::vector<std::string>& warnings);
  // An error of the engine's as it is answered.
  api::ApiError reported(const Error& error) const;
  // So many tokens have come of one of its answers; one of them is over.
  void note_output(size_t tokens) const;
  void note_end(const engine::StreamEnd& end) const;
  // What it asks of its sampling, for the trace.
  void note_asked(const access::SamplingAsked& asked) const;
  // For whoever streams: what has been written of its answer, and when all is said.
  void note_written(size_t bytes) const;
  void note_answered(int status) const;
};

}  // namespace pelton::server
