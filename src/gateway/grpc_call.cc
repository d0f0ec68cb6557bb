#include "gateway/grpc_call.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <grpc/support/time.h>

#include "api/error.h"
#include "gateway/interruption.h"
#include "net/loop_exchange.h"
#include "rpc/byte_buffer.h"
#include "rpc/grpc_frame.h"
#include "rpc/grpc_status.h"
#include "rpc/remote.h"
#include "rpc/stream_writer.h"

namespace pelton::gateway {
namespace {

constexpr size_t kMetadataBytesMax = 64 * 1024;  // as HTTP's headers

// None: it has no deadline, or one in a hundred years.
std::optional<int64_t> milliseconds_left(const grpc::CallbackServerContext& context) {
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC),
                   gpr_now(GPR_CLOCK_MONOTONIC));
  constexpr int64_t kDaySeconds = 86'400;
  if (left.tv_sec >= kDaySeconds) return std::nullopt;
  return std::max<int64_t>(left.tv_sec * 1000 + left.tv_nsec / 1'000'000, 1);
}

// Its deadline goes as HTTP's does; what gRPC's library itself means by its metadata does not.
net::HttpHeaders headers_of(const grpc::CallbackServerContext& context) {
  net::HttpHeaders headers;
  for (const auto& [name, value] : context.client_metadata()) {
    const std::string_view key(name.data(), name.size());
    const bool is_librarys = key.starts_with("grpc-") || key.ends_with("-bin") ||
                             key == "user-agent" || key == "x-request-timeout-ms" ||
                             key == "x-request-deadline-ms";
    if (!is_librarys) headers.add(std::string(key), std::string(value.data(), value.size()));
  }
  if (const auto left = milliseconds_left(context)) {
    headers.add("x-request-timeout-ms", std::to_string(*left));
  }
  return headers;
}

// What all kinds of calls have in common: their place, and the request that they are.
class CallPlace {
 public:
  CallPlace(GrpcShared& shared, grpc::CallbackServerContext& context, std::string_view method,
            std::string body)
      : shared_(shared),
        number_(++shared.calls),
        remote_(rpc::remote_of(context.peer())),
        request_({.method = "POST",
                  .path = std::string(method),
                  .query = {},
                  .headers = headers_of(context),
                  .body = std::move(body),
                  .remote = remote_}) {}
  ~CallPlace() {
    --shared_.calls;
    if (entered_) shared_.connections.end_call(remote_, connection_);
  }
  CallPlace(const CallPlace&) = delete;
  CallPlace& operator=(const CallPlace&) = delete;

  // On the loop, once. False: it has been answered.
  bool admit(const grpc::CallbackServerContext& context,
             const std::shared_ptr<net::Exchange>& exchange) {
    const auto refuse = [&](const api::ApiError& error) {
      exchange->send(error_answer(request_.path, error, ""));
      return false;
    };
    const grpc::string_ref authority = context.ExperimentalGetAuthority();
    if (!shared_.hosts.allow({authority.data(), authority.size()})) {
      return refuse(api::forbidden_host());
    }
    connection_ = shared_.connections.begin_call(remote_);
    entered_ = true;
    size_t bytes = 0;
    for (const auto& [name, value] : request_.headers.fields()) bytes += name.size() + value.size();
    if (bytes > kMetadataBytesMax) {
      return refuse(
          api::api_error({ErrorCode::kOverloaded, "the call's metadata are too large", ""}));
    }
    if (number_ > shared_.calls_max) {
      return refuse(api::api_error({ErrorCode::kOverloaded, "too many calls are open", ""}));
    }
    return true;
  }
  // Of a call that may stay open for long. False: it has been answered.
  bool has_key(const std::shared_ptr<net::Exchange>& exchange) const {
    if (shared_.knows(request_)) return true;
    exchange->send(error_answer(request_.path, api::bad_api_key(), ""));
    return false;
  }
  // Behind it, once: its request goes its way.
  void hand_over(const std::shared_ptr<net::Exchange>& exchange) {
    shared_.handler(std::move(request_), exchange);
  }
  // As often as one likes: one of its turns does, as a Generate.
  void hand_over_turn(std::string body, const std::shared_ptr<net::Exchange>& exchange) {
    net::HttpRequest turn = request_;
    turn.path = rpc::kGrpcGenerate;
    turn.body = std::move(body);
    shared_.handler(std::move(turn), exchange);
  }

 private:
  GrpcShared& shared_;
  const int number_;
  const std::string remote_;
  net::HttpRequest request_;
  bool entered_ = false;
  uint64_t connection_ = 0;
};

grpc::Status dropped() {
  return grpc::Status(grpc::StatusCode::INTERNAL, "the call was dropped unanswered");
}

class StreamCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public rpc::StreamWriter::Stream,
                         public net::LoopResponder {
 public:
  StreamCall(GrpcShared& shared, grpc::CallbackServerContext& context, std::string_view method,
             const grpc::ByteBuffer& message)
      : shared_(shared),
        context_(context),
        place_(shared, context, method, rpc::bytes_of(message)),
        writer_(shared.loop, *this, shared.stall_time_max) {}

  void start() {
    if (writer_.ended()) return;  // cancelled before its turn came
    const auto exchange = std::make_shared<net::LoopExchange>(shared_.loop, *this);
    exchange_ = exchange;
    if (place_.admit(context_, exchange)) place_.hand_over(exchange);
  }

  // gRPC's threads.
  void OnWriteDone(bool ok) override {
    shared_.loop.post([this, ok] { written(ok); });
  }
  void OnCancel() override {
    shared_.loop.post([this] { client_left(); });
  }
  // Nothing is called after this, so what was posted before it is the last.
  void OnDone() override {
    shared_.loop.post([this] { delete this; });
  }

  // StreamWriter's.
  void start_write(const std::string& message) override {
    writing_ = rpc::buffer_of(message);
    StartWrite(&writing_);
  }
  void finish_stream(const grpc::Status& status) override {
    if (const auto exchange = exchange_.lock()) exchange->end();
    Finish(status);
  }
  void cancel_stream() override { context_.TryCancel(); }

  void send(net::HttpResponse response) override {
    writer_.end_now(rpc::grpc_status(context_, rpc::call_error(response)));
  }
  void take_up() override {
    if (writer_.ending() || std::exchange(begun_, true)) return;
    StartSendInitialMetadata();
  }
  void write(std::string_view frames) override {
    for (;;) {
      const Result<std::optional<rpc::GrpcFrame>> frame = rpc::take_grpc_frame(frames);
      if (!frame.ok()) {
        return writer_.end(grpc::Status(grpc::StatusCode::INTERNAL, frame.error().message));
      }
      if (!*frame) return;
      if ((*frame)->kind == rpc::GrpcFrame::Kind::kError) {
        status_ = rpc::grpc_status(context_, rpc::call_error((*frame)->bytes));
      } else {
        writer_.push(std::string((*frame)->bytes));
      }
    }
  }
  void finish() override { writer_.end(status_); }
  void abandon() override {
    if (!writer_.ending()) writer_.end_now(dropped());
  }
  size_t queued_bytes() const override { return writer_.queued_bytes(); }

 private:
  void written(bool ok) {
    if (!ok && !writer_.ended()) return client_left();
    writer_.written();
    if (!writer_.idle() || writer_.ended()) return;
    if (const auto exchange = exchange_.lock()) exchange->drain();
  }
  void client_left() {
    if (writer_.ended()) return;
    if (const auto exchange = exchange_.lock()) exchange->leave();
    writer_.end_now(grpc::Status::CANCELLED);
  }

  GrpcShared& shared_;
  grpc::CallbackServerContext& context_;
  CallPlace place_;
  std::weak_ptr<net::LoopExchange> exchange_;  // which its relay holds
  rpc::StreamWriter writer_;
  grpc::ByteBuffer writing_;
  grpc::Status status_;  // that the stream ends with
  bool begun_ = false;   // its initial metadata have been sent
};

class UnaryCall final : public grpc::ServerUnaryReactor, public net::LoopResponder {
 public:
  UnaryCall(GrpcShared& shared, grpc::CallbackServerContext& context, std::string_view method,
            const grpc::ByteBuffer& message, grpc::ByteBuffer& reply)
      : shared_(shared),
        context_(context),
        reply_(reply),
        place_(shared, context, method, rpc::bytes_of(message)) {}

  void start() {
    if (finished_) return;  // cancelled before its turn came
    const auto exchange = std::make_shared<net::LoopExchange>(shared_.loop, *this);
    exchange_ = exchange;
    if (place_.admit(context_, exchange)) place_.hand_over(exchange);
  }

  // gRPC's threads.
  void OnCancel() override {
    shared_.loop.post([this] { client_left(); });
  }
  void OnDone() override {
    shared_.loop.post([this] { delete this; });
  }

  void send(net::HttpResponse response) override {
    if (response.status != 200)
      return end_with(rpc::grpc_status(context_, rpc::call_error(response)));
    if (finished_) return;
    reply_ = rpc::buffer_of(response.body);
    end_with(grpc::Status::OK);
  }
  void take_up() override {
    if (finished_ || std::exchange(begun_, true)) return;
    StartSendInitialMetadata();
  }
  void write(std::string_view) override {}
  void finish() override {}
  void abandon() override { end_with(dropped()); }
  size_t queued_bytes() const override { return 0; }

 private:
  void client_left() {
    if (finished_) return;
    if (const auto exchange = exchange_.lock()) exchange->leave();
    end_with(grpc::Status::CANCELLED);
  }
  void end_with(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    if (const auto exchange = exchange_.lock()) exchange->end();
    Finish(status);
  }

  GrpcShared& shared_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer& reply_;  // gRPC keeps it until the call is over
  CallPlace place_;
  std::weak_ptr<net::LoopExchange> exchange_;  // which its relay holds
  bool finished_ = false;
  bool begun_ = false;  // its initial metadata have been sent
};

// A session, each of whose turns is a Generate with the session's metadata: keys, limits and the
// way to a worker are those of any other.
class SessionCall final : public rpc::SessionHost {
 public:
  SessionCall(GrpcShared& shared, grpc::CallbackServerContext& context)
      : context_(context), place_(shared, context, rpc::kGrpcSession, {}) {}

  bool admit(std::shared_ptr<net::Exchange> opening) override {
    return place_.has_key(opening) && place_.admit(context_, opening);
  }
  void start_turn(v1::GenerateRequest request,
                  const std::shared_ptr<net::Exchange>& exchange) override {
    place_.hand_over_turn(request.SerializeAsString(), exchange);
  }

 private:
  grpc::CallbackServerContext& context_;
  CallPlace place_;
};

}  // namespace

std::unique_ptr<rpc::SessionHost> session_host(GrpcShared& shared,
                                               grpc::CallbackServerContext& context) {
  return std::make_unique<SessionCall>(shared, context);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* start_stream(GrpcShared& shared,
                                                         grpc::CallbackServerContext& context,
                                                         std::string_view method,
                                                         const grpc::ByteBuffer& message) {
  auto* call = new StreamCall(shared, context, method, message);
  shared.loop.post([call] { call->start(); });
  return call;
}

grpc::ServerUnaryReactor* start_unary(GrpcShared& shared, grpc::CallbackServerContext& context,
                                      std::string_view method, const grpc::ByteBuffer& message,
                                      grpc::ByteBuffer& reply) {
  auto* call = new UnaryCall(shared, context, method, message, reply);
  shared.loop.post([call] { call->start(); });
  return call;
}

}  // namespace pelton::gateway
