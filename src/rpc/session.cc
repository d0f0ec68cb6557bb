#include "rpc/session.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "api/error.h"
#include "net/json_response.h"
#include "net/loop_exchange.h"
#include "rpc/byte_buffer.h"
#include "rpc/grpc_frame.h"
#include "rpc/grpc_status.h"
#include "rpc/session_history.h"
#include "rpc/stream_writer.h"

namespace pelton::rpc {
namespace {

// Of chunks that a client has not taken yet: nothing more is read of it meanwhile.
constexpr size_t kUntakenBytesMax = 1 << 20;

net::HttpResponse refused(const Error& error) {
  const api::ApiError reply = api::api_error(error);
  return net::json_response(api::error_body(reply), reply.status);
}

Error shutting_down() {
  return {ErrorCode::kUnavailable, "the server is shutting down", {}};
}

// A chat's calls are numbered from 0; a worker that says otherwise is not believed.
bool is_sound(const v1::GenerateChunk& chunk) {
  constexpr uint32_t kCallsMax = 4096;
  return std::ranges::all_of(chunk.tool_calls(),
                             [](const auto& call) { return call.index() < kCallsMax; });
}

// One turn's way back: frames become chunks. Its session owns it until the turn is over.
class Turn final : public net::LoopResponder {
 public:
  struct Out {
    std::function<void(v1::SessionChunk)> chunk;
    std::function<void()> over;      // the last has been said; once
    std::function<size_t()> queued;  // bytes that the client has not taken yet
  };
  Turn(uint64_t number, Out out) : number_(number), out_(std::move(out)) {}
  ~Turn() override { let_go(); }

  std::shared_ptr<net::Exchange> open(const net::WorkLoop& loop) {
    const auto exchange = std::make_shared<net::LoopExchange>(loop, *this);
    exchange_ = exchange;
    return exchange;
  }
  uint64_t number() const { return number_; }
  bool over() const { return over_; }  // the last has been said
  void drained() {
    if (const auto exchange = exchange_.lock()) exchange->drain();
  }
  // Nobody wants the rest.
  void leave() {
    over_ = true;
    if (const auto exchange = exchange_.lock()) exchange->leave();
  }

  void send(net::HttpResponse response) override {
    say(call_error(response));
    end();
  }
  void write(std::string_view frames) override {
    for (;;) {
      const Result<std::optional<GrpcFrame>> frame = take_grpc_frame(frames);
      if (!frame.ok()) return fail(frame.error().message);
      if (!*frame) return;
      if ((*frame)->kind == GrpcFrame::Kind::kError) {
        say(call_error((*frame)->bytes));
        continue;
      }
      v1::SessionChunk chunk;
      chunk.set_turn(number_);
      v1::GenerateChunk& piece = *chunk.mutable_chunk();
      if (!piece.ParseFromArray((*frame)->bytes.data(), static_cast<int>((*frame)->bytes.size())) ||
          !is_sound(piece)) {
        return fail("an answer's piece is no message");
      }
      out_.chunk(std::move(chunk));
    }
  }
  void finish() override { end(); }
  void abandon() override { fail("the turn was dropped unanswered"); }
  size_t queued_bytes() const override { return out_.queued(); }

 private:
  void say(const CallError& error) {
    if (over_) return;
    v1::SessionChunk chunk;
    chunk.set_turn(number_);
    v1::TurnError& reply = *chunk.mutable_error();
    reply.set_code(error.code);
    reply.set_message(error.message);
    reply.set_object(error.object);
    out_.chunk(std::move(chunk));
  }
  void fail(std::string message) {
    say({.code = grpc::StatusCode::INTERNAL, .message = std::move(message)});
    end();
  }
  void end() {
    if (std::exchange(over_, true)) return;
    let_go();
    out_.over();
  }
  void let_go() {
    if (const auto exchange = exchange_.lock()) exchange->end();
  }

  const uint64_t number_;
  const Out out_;
  std::weak_ptr<net::LoopExchange> exchange_;  // which whoever answers holds
  bool over_ = false;
};

}  // namespace

class Session final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public StreamWriter::Stream,
                      public net::LoopResponder {
 public:
  Session(Sessions& all, grpc::CallbackServerContext& context, std::unique_ptr<SessionHost> host)
      : all_(all),
        context_(context),
        host_(std::move(host)),
        history_(all.options_.history_bytes_max),
        writer_(all.loop_, *this, all.options_.stall_time_max) {}

  ~Session() override { all_.kept_bytes_ -= kept_bytes_; }

  void start();
  void drain();
  void end_if_idle(std::chrono::steady_clock::time_point now);

  // gRPC's threads.
  void OnReadDone(bool ok) override {
    all_.loop_.post([this, ok] { read(ok); });
  }
  void OnWriteDone(bool ok) override {
    all_.loop_.post([this, ok] { written(ok); });
  }
  void OnCancel() override {
    all_.loop_.post([this] { client_left(); });
  }
  // Nothing is called after this, so what was posted before it is the last.
  void OnDone() override {
    all_.loop_.post([this] {
      all_.open_.erase(this);
      delete this;
    });
  }

  // StreamWriter's.
  void start_write(const std::string& message) override {
    writing_ = buffer_of(message);
    StartWrite(&writing_);
  }
  void finish_stream(const grpc::Status& status) override {
    let_go();
    Finish(status);
  }
  void cancel_stream() override { context_.TryCancel(); }

  // Of the opening: what is said over it refuses the session.
  void send(net::HttpResponse response) override {
    writer_.end_now(grpc_status(context_, call_error(response)));
  }
  void write(std::string_view) override {}
  void finish() override {}
  void abandon() override {}
  size_t queued_bytes() const override { return 0; }

 private:
  struct Asked {
    uint64_t number = 0;
    v1::SessionRequest message;
  };

  void read_next();
  void read(bool ok);
  void written(bool ok);
  void generate(Asked asked);
  void begin(Asked asked);
  void cancel(uint64_t number);
  void turn_over();
  void say(v1::SessionChunk chunk);
  void keep_history();
  void say_cancelled(uint64_t number);
  void refuse(uint64_t number, const Error& error);
  void end_if_all_is_said();
  void client_left();
  void let_go();

  Sessions& all_;
  grpc::CallbackServerContext& context_;
  const std::unique_ptr<SessionHost> host_;
  SessionHistory history_;
  size_t kept_bytes_ = 0;                     // of the history, as all sessions count it
  std::weak_ptr<net::LoopExchange> opening_;  // which the host holds, if anybody
  StreamWriter writer_;
  const std::shared_ptr<char> life_ = std::make_shared<char>();
  grpc::ByteBuffer reading_;
  grpc::ByteBuffer writing_;
  bool read_runs_ = false;
  bool client_is_done_ = false;  // it will ask for nothing more
  bool draining_ = false;
  bool over_ = false;
  uint64_t turns_ = 0;          // that have been asked for
  std::unique_ptr<Turn> turn_;  // that is being made
  std::optional<Asked> waiting_;
  std::chrono::steady_clock::time_point quiet_since_;
};

void Session::start() {
  if (over_) return;  // cancelled before it was here
  const auto opening = std::make_shared<net::LoopExchange>(all_.loop_, *this);
  opening_ = opening;
  if (all_.draining_) return opening->send(refused(shutting_down()));
  if (!host_->admit(opening)) return;
  all_.open_.insert(this);
  StartSendInitialMetadata();  // clients may wait for it before they ask
  quiet_since_ = std::chrono::steady_clock::now();
  all_.begin_watch();
  read_next();
}

void Session::read_next() {
  if (writer_.ending() || read_runs_ || client_is_done_ ||
      writer_.queued_bytes() > kUntakenBytesMax)
    return;
  read_runs_ = true;
  StartRead(&reading_);
}

void Session::read(bool ok) {
  read_runs_ = false;
  if (writer_.ending()) return;
  if (!ok) {
    client_is_done_ = true;
    return end_if_all_is_said();
  }
  v1::SessionRequest message;
  const bool is_one = message.ParseFromString(bytes_of(reading_));
  reading_.Clear();
  if (!is_one) {
    refuse(0, {ErrorCode::kInvalidArgument, "the message is not one that this method takes", ""});
    return read_next();
  }
  switch (message.what_case()) {
    case v1::SessionRequest::kGenerate:
      generate({.number = ++turns_, .message = std::move(message)});
      break;
    case v1::SessionRequest::kCancel:
      cancel(message.cancel().turn());
      break;
    case v1::SessionRequest::WHAT_NOT_SET:
      refuse(0, {ErrorCode::kInvalidArgument, "'generate' or 'cancel' is missing", "what"});
      break;
  }
  read_next();
}

void Session::generate(Asked asked) {
  if (draining_) return refuse(asked.number, shutting_down());
  if (turn_ == nullptr) return begin(std::move(asked));
  if (waiting_) {
    return refuse(asked.number,
                  {ErrorCode::kOverloaded, "a turn of this session is made, and one waits", ""});
  }
  waiting_ = std::move(asked);
}

void Session::begin(Asked asked) {
  turn_ = std::make_unique<Turn>(
      asked.number, Turn::Out{.chunk = [this](v1::SessionChunk chunk) { say(std::move(chunk)); },
                              // Whoever ends it is still at work with it.
                              .over =
                                  [this, weak = std::weak_ptr<char>(life_)] {
                                    all_.loop_.post([this, weak] {
                                      if (!weak.expired()) turn_over();
                                    });
                                  },
                              .queued = [this] { return writer_.queued_bytes(); }});
  const std::shared_ptr<net::Exchange> exchange = turn_->open(all_.loop_);
  Result<v1::GenerateRequest> request = history_.begin(std::move(asked.message));
  if (!request.ok()) return exchange->send(refused(request.error()));
  host_->start_turn(*std::move(request), exchange);
}

void Session::cancel(uint64_t number) {
  if (number > turns_) {
    return refuse(0,
                  {ErrorCode::kInvalidArgument, "no such turn has been asked for", "cancel.turn"});
  }
  if (waiting_ && number == waiting_->number) {
    waiting_.reset();
    return say_cancelled(number);
  }
  if (turn_ == nullptr || turn_->over()) return;
  if (number != 0 && number != turn_->number()) return;
  const std::unique_ptr<Turn> turn = std::move(turn_);
  turn->leave();
  say_cancelled(turn->number());
  turn_over();
}

void Session::turn_over() {
  turn_.reset();
  history_.drop();
  if (over_) return;
  quiet_since_ = std::chrono::steady_clock::now();
  if (waiting_) {
    Asked next = std::move(*waiting_);
    waiting_.reset();
    return begin(std::move(next));
  }
  end_if_all_is_said();
}

void Session::say(v1::SessionChunk chunk) {
  if (over_) return;
  if (chunk.has_chunk()) {
    history_.add(chunk.chunk());
    if (!chunk.chunk().finish_reason().empty()) keep_history();
  }
  writer_.push(chunk.SerializeAsString());
}

// All open sessions share what may be kept.
void Session::keep_history() {
  history_.finish();
  const size_t others = all_.kept_bytes_ - kept_bytes_;
  if (others + history_.bytes() > all_.options_.histories_bytes_max) history_.forget();
  kept_bytes_ = history_.bytes();
  all_.kept_bytes_ = others + kept_bytes_;
}

// The conversation is as if it had not been asked for.
void Session::say_cancelled(uint64_t number) {
  v1::SessionChunk chunk;
  chunk.set_turn(number);
  chunk.mutable_chunk()->set_finish_reason("cancelled");
  writer_.push(chunk.SerializeAsString());
}

// 0: what was asked is no turn.
void Session::refuse(uint64_t number, const Error& error) {
  v1::SessionChunk chunk;
  chunk.set_turn(number);
  const CallError reply = call_error(refused(error));
  chunk.mutable_error()->set_code(reply.code);
  chunk.mutable_error()->set_message(reply.message);
  chunk.mutable_error()->set_object(reply.object);
  writer_.push(chunk.SerializeAsString());
}

// Behind the end gRPC's library may have let go of the context.
void Session::end_if_all_is_said() {
  if (turn_ != nullptr || waiting_ || writer_.ending()) return;
  if (client_is_done_) return writer_.end(grpc::Status::OK);
  if (draining_) writer_.end(grpc_status(context_, call_error(refused(shutting_down()))));
}

void Session::drain() {
  draining_ = true;
  if (waiting_) refuse(waiting_->number, shutting_down());
  waiting_.reset();
  end_if_all_is_said();
}

void Session::end_if_idle(std::chrono::steady_clock::time_point now) {
  if (turn_ != nullptr || writer_.ending()) return;
  if (now - quiet_since_ < all_.options_.idle_time_max) return;
  writer_.end(grpc::Status(grpc::StatusCode::ABORTED, "the session has had no turn for too long"));
}

void Session::written(bool ok) {
  if (!ok && !over_) return client_left();
  writer_.written();
  read_next();
  if (writer_.idle() && turn_ != nullptr) turn_->drained();
}

void Session::client_left() {
  if (over_) return;
  if (turn_ != nullptr) turn_->leave();
  if (const auto opening = opening_.lock()) opening->leave();
  writer_.end_now(grpc::Status::CANCELLED);
}

void Session::let_go() {
  over_ = true;
  waiting_.reset();
  turn_.reset();
  if (const auto opening = opening_.lock()) opening->end();
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Sessions::start(
    grpc::CallbackServerContext& context, std::unique_ptr<SessionHost> host) {
  auto* const session = new Session(*this, context, std::move(host));
  loop_.post([session] { session->start(); });
  return session;
}

void Sessions::begin_watch() {
  if (std::exchange(watched_, true)) return;
  const auto pause = std::min(options_.idle_time_max / 4, std::chrono::milliseconds(60'000));
  loop_.post_after(pause, [this] {
    watched_ = false;
    const std::unordered_set<Session*> open = open_;
    for (Session* session : open) session->end_if_idle(std::chrono::steady_clock::now());
    if (!open_.empty()) begin_watch();
  });
}

void Sessions::drain() {
  loop_.post([this] {
    draining_ = true;
    const std::unordered_set<Session*> open = open_;
    for (Session* session : open) session->drain();
  });
}

}  // namespace pelton::rpc
