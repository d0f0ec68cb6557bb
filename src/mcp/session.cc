#include "mcp/session.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "net/sse.h"

namespace pelton::mcp {
namespace {

constexpr std::string_view kRevision = "2025-06-18";
// Whose messages are, as far as we use them, the same.
constexpr std::array<std::string_view, 3> kRevisions = {kRevision, "2025-03-26", "2024-11-05"};
constexpr int kPagesMax = 16;
constexpr int kAskedMax = 16;  // of us, while one call is answered
constexpr size_t kSessionIdBytesMax = 1024;
constexpr size_t kWordsShown = 300;
constexpr int64_t kMethodNotFound = -32601;

Json object(std::initializer_list<std::pair<std::string_view, Json>> members) {
  Json made{Json::Object{}};
  for (const auto& [key, value] : members) made.set(key, value);
  return made;
}

// Visible ASCII, as the protocol has it: it goes back as a header.
bool is_session_id(std::string_view id) {
  return id.size() <= kSessionIdBytesMax &&
         std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

// What one message brings: the answer to its request, and whatever else the server says meanwhile.
// On the thread of the client or of the processes.
class Session::Reading {
 public:
  Reading(std::shared_ptr<Session> session, int64_t number, Answered done)
      : session_(std::move(session)),
        number_(number),
        done_(std::move(done)),
        events_({.event_bytes_max = session_->options_.answer_bytes_max}) {}

  void on_head(int status, const net::HttpHeaders& headers) {
    status_ = status;
    const std::string_view type = headers.get("content-type");
    is_stream_ = type.substr(0, type.find(';')) == "text/event-stream";
    const std::string_view id = headers.get("mcp-session-id");
    if (id.empty() || !is_session_id(id)) return;
    std::lock_guard lock(session_->mutex_);
    if (session_->id_.empty()) session_->id_ = id;
  }

  void on_body(std::string_view bytes) {
    if (number_ == 0 || is_finished()) return;
    if (status_ != 200 || !is_stream_) {
      body_ += bytes;  // bounded by the call
      return;
    }
    const auto fed =
        events_.feed(bytes, [this](const net::SseEvent& event) { on_message(event.data); });
    if (!fed.ok()) finish(no_answer(fed.error().message));
  }

  bool is_over() const { return is_over_; }  // under the session's lock

  void on_done(const Result<void>& ended) {
    {
      std::lock_guard lock(session_->mutex_);
      is_over_ = true;
      session_->running_.erase(number_);
    }
    if (is_finished()) return;
    if (!ended.ok()) return finish(ended.error());
    if (number_ == 0) return finish(Json());
    if (status_ != 200) {
      return finish(Error{
          ErrorCode::kIo,
          fmt::format("the tool server answered {}: {}", status_, body_.substr(0, kWordsShown)),
          ""});
    }
    if (!is_stream_) on_message(body_);
    finish(no_answer("it ended without one"));
  }

  void on_message(std::string_view text) {
    if (text.empty() || is_finished()) return;
    const Result<Json> message = Json::parse(text);
    if (!message.ok()) return finish(no_answer(message.error().message));
    if (message->find("method") != nullptr) {
      if (message->find("id") == nullptr) return;
      if (++asked_ > kAskedMax) return finish(no_answer("it asks its client without end"));
      session_->answer_server(*message);
      return;  // and what it only says is nobody's
    }
    if (message->integer("id") == number_) finish(result_of(*message));
  }

  // At most once; its request is then asked of a program no longer.
  void finish(Result<Json> result) {
    Answered done;
    {
      const std::lock_guard lock(session_->mutex_);
      done = std::exchange(done_, nullptr);
      session_->asked_.erase(number_);
    }
    if (done != nullptr) done(std::move(result));
  }

 private:
  bool is_finished() const {
    const std::lock_guard lock(session_->mutex_);
    return done_ == nullptr;
  }

  const std::shared_ptr<Session> session_;
  const int64_t number_;  // of the request; 0: no answer is expected
  Answered done_;         // under the session's lock
  int asked_ = 0;
  bool is_over_ = false;
  int status_ = 0;
  bool is_stream_ = false;
  std::string body_;
  net::SseParser events_;
};

std::shared_ptr<Session> Session::make(net::HttpClient& client, Processes& processes,
                                       Options options) {
  return std::shared_ptr<Session>(new Session(client, processes, std::move(options)));
}

Session::Session(net::HttpClient& client, Processes& processes, Options options)
    : client_(client), processes_(processes), options_(std::move(options)) {}

void Session::list_tools(Listed done) {
  list_page(std::make_shared<std::vector<Tool>>(), "", 0, std::move(done));
}

void Session::list_page(std::shared_ptr<std::vector<Tool>> tools, std::string cursor, int pages,
                        Listed done) {
  Json params{Json::Object{}};
  if (!cursor.empty()) params.set("cursor", Json(std::move(cursor)));
  request({.method = "tools/list",
           .params = std::move(params),
           .done = [self = shared_from_this(), tools, pages,
                    done = std::move(done)](const Result<Json>& result) {
             if (!result.ok()) return done(result.error());
             Result<std::string> next = add_tools(*result, *tools);
             if (!next.ok()) return done(next.error());
             if (next->empty()) return done(std::move(*tools));
             if (pages + 1 == kPagesMax) return done(no_answer("a list without an end"));
             self->list_page(tools, *std::move(next), pages + 1, done);
           }});
}

void Session::call_tool(std::string name, Json arguments, Called done) {
  request({.method = "tools/call",
           .params = object({{"name", Json(std::move(name))}, {"arguments", std::move(arguments)}}),
           .done = [done = std::move(done)](const Result<Json>& result) {
             done(result.ok() ? tool_result(*result) : Result<ToolResult>(result.error()));
           }});
}

void Session::request(Request request) {
  bool begins = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kReady && state_ != State::kClosed) {
      waiting_.push_back(std::move(request));
      begins = std::exchange(state_, State::kBeginning) == State::kNew;
      if (!begins) return;
    }
  }
  begins ? begin() : post(std::move(request));
}

void Session::begin() {
  post({.method = "initialize",
        .params = object({{"protocolVersion", Json(kRevision)},
                          {"capabilities", Json(Json::Object{})},
                          {"clientInfo", object({{"name", Json("pelton")},
                                                 {"version", Json(options_.client_version)}})}}),
        .done = [self = shared_from_this()](const Result<Json>& result) {
          self->on_begun(result);
        }});
}

// One that could not begin begins anew with its next use.
void Session::on_begun(const Result<Json>& result) {
  Result<Json> outcome = result;
  const std::string revision =
      result.ok() ? result->string("protocolVersion").value_or("") : std::string();
  if (result.ok() && std::ranges::find(kRevisions, revision) == kRevisions.end()) {
    outcome = no_answer(fmt::format("revision '{}' of the protocol, of which this client knows {}",
                                    revision.substr(0, 40), fmt::join(kRevisions, ", ")));
  }
  if (outcome.ok()) {
    std::lock_guard lock(mutex_);
    revision_ = revision;
  }
  if (!outcome.ok()) return on_ready(outcome);
  // A server may refuse what comes before this has.
  send(object({{"jsonrpc", Json("2.0")}, {"method", Json("notifications/initialized")}}),
       std::make_shared<Reading>(
           shared_from_this(), 0,
           [self = shared_from_this()](const Result<Json>& said) { self->on_ready(said); }));
}

void Session::on_ready(const Result<Json>& outcome) {
  std::vector<Request> waiting;
  bool is_closed = false;
  {
    std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    if (state_ == State::kBeginning) state_ = outcome.ok() ? State::kReady : State::kNew;
    is_closed = state_ == State::kClosed;
  }
  if (is_closed) end_at_server();
  for (Request& one : waiting) {
    outcome.ok() ? post(std::move(one)) : one.done(outcome.error());
  }
}

void Session::post(Request request) {
  int64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kClosed) number = ++last_number_;
  }
  if (number == 0) return request.done(Error{ErrorCode::kCancelled, "the session is closed", ""});
  Json message = object({{"jsonrpc", Json("2.0")},
                         {"id", Json(number)},
                         {"method", Json(std::move(request.method))},
                         {"params", std::move(request.params)}});
  send(std::move(message),
       std::make_shared<Reading>(shared_from_this(), number, std::move(request.done)));
}

// A server may ask its client, too: whether it is there, and for what this one does not offer.
void Session::answer_server(const Json& asked) {
  const bool is_ping = asked.string("method") == "ping";
  Json answer = object({{"jsonrpc", Json("2.0")}, {"id", *asked.find("id")}});
  if (is_ping) {
    answer.set("result", Json(Json::Object{}));
  } else {
    answer.set("error", object({{"code", Json(kMethodNotFound)},
                                {"message", Json("this client offers nothing")}}));
  }
  send(std::move(answer), nullptr);
}

net::HttpCall Session::http_call(std::string method) {
  net::HttpCall call = *net::make_http_call(std::move(method), options_.url);
  call.connect_time_max = options_.connect_time_max;
  call.head_time_max = call.quiet_time_max = call.whole_time_max = options_.time_max;
  call.body_bytes_max = options_.answer_bytes_max;
  call.headers.add("Accept", "application/json, text/event-stream");
  call.headers.add("Content-Type", "application/json");
  std::lock_guard lock(mutex_);
  if (!id_.empty()) call.headers.add("Mcp-Session-Id", id_);
  if (!revision_.empty()) call.headers.add("MCP-Protocol-Version", revision_);
  return call;
}

// Without `reading` nothing is expected of it.
void Session::send(Json message, std::shared_ptr<Reading> reading) {
  if (reading == nullptr) {
    reading = std::make_shared<Reading>(shared_from_this(), 0, [](const Result<Json>&) {});
  }
  options_.command.empty() ? send_by_http(message, reading) : send_by_line(message, reading);
}

void Session::send_by_http(const Json& message, const std::shared_ptr<Reading>& reading) {
  net::HttpCall call = http_call("POST");
  call.body = message.dump();
  net::HttpCallEvents events;
  events.on_head = [reading](int status, const net::HttpHeaders& headers) {
    reading->on_head(status, headers);
  };
  events.on_body = [reading](std::string_view bytes) { reading->on_body(bytes); };
  events.on_done = [reading](const Result<void>& ended) { reading->on_done(ended); };
  const std::optional<int64_t> number = message.integer("id");
  const net::HttpClient::CallId id = client_.start(std::move(call), std::move(events));
  std::lock_guard lock(mutex_);
  if (!number || message.find("method") == nullptr || reading->is_over()) return;
  if (state_ == State::kClosed) return client_.cancel(id);
  running_.emplace(*number, id);
}

// The program, begun if none runs. Under the lock.
Result<Processes::Id> Session::process() {
  if (state_ == State::kClosed) return Error{ErrorCode::kCancelled, "the session is closed", ""};
  if (process_ != 0) return process_;
  // What is still said by one that is no longer this session's is nobody's.
  const auto with = [weak = weak_from_this(), run = ++run_](auto work) {
    const std::shared_ptr<Session> session = weak.lock();
    if (session == nullptr) return;
    {
      const std::lock_guard lock(session->mutex_);
      if (session->run_ != run || session->process_ == 0) return;
    }
    work(*session);
  };
  Processes::Events events;
  events.on_line = [with](std::string_view line) {
    with([line](Session& session) { session.on_line(line); });
  };
  events.on_end = [with](const std::string& why) {
    with([&why](Session& session) { session.on_program_end(why); });
  };
  const Processes::Bounds bounds{.line_bytes_max = options_.answer_bytes_max};
  TRY_ASSIGN(process_, processes_.start(options_.command, bounds, std::move(events)));
  return process_;
}

void Session::send_by_line(const Json& message, const std::shared_ptr<Reading>& reading) {
  const std::optional<int64_t> number = message.integer("id");
  const bool is_request = number && message.find("method") != nullptr;
  const auto until = std::chrono::steady_clock::now() + options_.time_max;
  Result<Processes::Id> process = 0;
  {
    // In one: a program that ends meanwhile ends this request with the others.
    const std::lock_guard lock(mutex_);
    process = this->process();
    if (is_request && process.ok()) asked_[*number] = {reading, until};
  }
  if (!process.ok()) {
    return reading->finish(
        Error{ErrorCode::kUnavailable, "the tool server: " + process.error().message, ""});
  }
  if (is_request) {
    processes_.run_at(until, [weak = weak_from_this()] {
      if (const std::shared_ptr<Session> session = weak.lock()) session->end_late();
    });
  }
  processes_.send(*process, message.dump());
  if (!is_request) reading->finish(Json());
}

// An answer is its request's; what else is said goes to the oldest, which counts it.
void Session::on_line(std::string_view line) {
  const Result<Json> message = Json::parse(line);
  const int64_t number = message.ok() ? message->integer("id").value_or(0) : 0;
  std::shared_ptr<Reading> reading;
  {
    const std::lock_guard lock(mutex_);
    if (asked_.empty()) return;
    const bool is_answer = number > 0 && message->find("method") == nullptr;
    const auto found = is_answer ? asked_.find(number) : asked_.begin();
    if (found == asked_.end()) return;
    reading = found->second.reading;
  }
  reading->on_message(line);
}

void Session::end_late() {
  while (true) {
    std::shared_ptr<Reading> late;
    {
      const std::lock_guard lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      const auto found =
          std::ranges::find_if(asked_, [&](const auto& one) { return one.second.until <= now; });
      if (found == asked_.end()) return;
      late = found->second.reading;
      // It may hang: the next use begins anew.
      if (process_ != 0) processes_.end(std::exchange(process_, 0));
      if (state_ == State::kReady) state_ = State::kNew;
    }
    late->finish(Error{ErrorCode::kDeadline, "the tool server took too long", ""});
  }
}

std::vector<std::shared_ptr<Session::Reading>> Session::take_asked() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Reading>> taken;
  for (auto& [number, asked] : std::exchange(asked_, {})) taken.push_back(asked.reading);
  return taken;
}

// The next use begins a new one.
void Session::on_program_end(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    process_ = 0;
    if (state_ == State::kReady) state_ = State::kNew;
  }
  for (const std::shared_ptr<Reading>& reading : take_asked()) {
    reading->finish(Error{ErrorCode::kUnavailable, "the tool server: " + why, ""});
  }
}

void Session::close() {
  std::vector<Request> waiting;
  std::map<int64_t, net::HttpClient::CallId> running;
  State before = State::kNew;
  {
    std::lock_guard lock(mutex_);
    before = std::exchange(state_, State::kClosed);
    waiting.swap(waiting_);
    // What is just being begun is let begin, or it could not be ended there (on_ready).
    if (before != State::kBeginning) running.swap(running_);
  }
  for (const auto& [number, call] : running) client_.cancel(call);
  const Error closed{ErrorCode::kCancelled, "the session is closed", ""};
  if (!options_.command.empty()) {
    for (const std::shared_ptr<Reading>& reading : take_asked()) reading->finish(closed);
    const std::lock_guard lock(mutex_);
    if (process_ != 0) processes_.end(std::exchange(process_, 0));
  }
  for (Request& one : waiting) {
    one.done(Error{ErrorCode::kCancelled, "the session is closed", ""});
  }
  if (before == State::kReady) end_at_server();
}

void Session::end_at_server() {
  {
    std::lock_guard lock(mutex_);
    if (id_.empty()) return;
  }
  net::HttpCallEvents events;
  events.on_body = [](std::string_view) {};
  events.on_done = [self = shared_from_this()](const Result<void>&) {};
  client_.start(http_call("DELETE"), std::move(events));
}

}  // namespace pelton::mcp
