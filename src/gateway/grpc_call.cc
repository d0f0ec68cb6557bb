#include "gateway/grpc_call.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <grpc/support/time.h>

#include "api/error.h"
#include "cluster/grpc_frame.h"
#include "cluster/grpc_status.h"
#include "gateway/interruption.h"
#include "net/loop_exchange.h"

namespace pelton::gateway {
namespace {

constexpr size_t kMetadataBytesMax = 64 * 1024;  // as HTTP's headers

std::string bytes_of(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!message.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer buffer_of(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

// "127.0.0.1:51234" of "ipv4:127.0.0.1:51234", or of "ipv6:%5B::1%5D:51234".
std::string remote_of(const std::string& peer) {
  std::string remote = peer.substr(peer.find(':') + 1);
  for (const auto& [coded, plain] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    const size_t at = remote.find(coded);
    if (at != std::string::npos) remote.replace(at, 3, plain);
  }
  const size_t zone = remote.find('%');
  if (zone != std::string::npos) remote.erase(zone, remote.find(']') - zone);
  return remote;
}

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

// What both kinds of calls have in common: their place, and the request that they are.
class CallPlace {
 public:
  CallPlace(GrpcShared& shared, grpc::CallbackServerContext& context, std::string_view method,
            const grpc::ByteBuffer& message)
      : shared_(shared),
        number_(++shared.calls),
        remote_(remote_of(context.peer())),
        request_({.method = "POST",
                  .path = std::string(method),
                  .query = {},
                  .headers = headers_of(context),
                  .body = bytes_of(message),
                  .remote = remote_}) {}
  ~CallPlace() {
    --shared_.calls;
    if (entered_) shared_.connections.end_call(remote_, connection_);
  }
  CallPlace(const CallPlace&) = delete;
  CallPlace& operator=(const CallPlace&) = delete;

  // On the loop, once.
  void begin(const grpc::CallbackServerContext& context,
             const std::shared_ptr<net::Exchange>& exchange) {
    const auto refuse = [&](const api::ApiError& error) {
      exchange->send(error_answer(request_.path, error, ""));
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
    shared_.handler(std::move(request_), exchange);
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

// Writes one message at a time.
class StreamCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public net::LoopResponder {
 public:
  StreamCall(GrpcShared& shared, grpc::CallbackServerContext& context, std::string_view method,
             const grpc::ByteBuffer& message)
      : shared_(shared), context_(context), place_(shared, context, method, message) {}

  void start() {
    if (finished_) return;  // cancelled before its turn came
    const auto exchange = std::make_shared<net::LoopExchange>(shared_.loop, *this);
    exchange_ = exchange;
    place_.begin(context_, exchange);
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

  void send(net::HttpResponse response) override {
    end_with(cluster::grpc_status(context_, response));
  }
  void write(std::string_view frames) override {
    for (;;) {
      const Result<std::optional<cluster::GrpcFrame>> frame = cluster::take_grpc_frame(frames);
      if (!frame.ok()) {
        status_ = grpc::Status(grpc::StatusCode::INTERNAL, frame.error().message);
        finish_asked_ = true;
        break;
      }
      if (!*frame) break;
      if ((*frame)->kind == cluster::GrpcFrame::Kind::kError) {
        status_ = cluster::grpc_status(context_, (*frame)->bytes);
        continue;
      }
      queued_bytes_ += (*frame)->bytes.size() + 1;  // an empty one is one, too
      queue_.emplace_back((*frame)->bytes);
    }
    go_on();
  }
  void finish() override {
    finish_asked_ = true;
    go_on();
  }
  void abandon() override { end_with(dropped()); }
  size_t queued_bytes() const override { return queued_bytes_; }

 private:
  void go_on() {
    if (write_runs_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = buffer_of(queue_.front());
      write_runs_ = true;
      begin_watch();
      StartWrite(&writing_);
    } else if (finish_asked_) {
      end_with(status_);
    }
  }

  // One timer for many writes and the goodbye: it looks at the one that runs when its time comes.
  void begin_watch() {
    write_began_ = std::chrono::steady_clock::now();
    if (!std::exchange(write_watched_, true)) watch_write(shared_.stall_time_max);
  }
  void watch_write(std::chrono::milliseconds after) {
    shared_.loop.post_after(after, [this, weak = std::weak_ptr<char>(life_)] {
      if (weak.expired()) return;
      write_watched_ = false;
      if (!write_runs_ && !finished_) return;
      const auto ran = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - write_began_);
      if (ran >= shared_.stall_time_max) return context_.TryCancel();
      write_watched_ = true;
      watch_write(shared_.stall_time_max - ran);
    });
  }

  void written(bool ok) {
    write_runs_ = false;
    if (!ok && !finished_) return client_left();
    if (!queue_.empty()) {
      queued_bytes_ -= queue_.front().size() + 1;
      queue_.pop_front();
    }
    go_on();
    if (write_runs_ || finished_) return;
    if (const auto exchange = exchange_.lock()) exchange->drain();
  }

  void client_left() {
    if (finished_) return;
    if (const auto exchange = exchange_.lock()) exchange->leave();
    end_with(grpc::Status::CANCELLED);
  }

  // Once, also while a write runs: gRPC sees to the order.
  void end_with(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    queue_.clear();
    if (const auto exchange = exchange_.lock()) exchange->end();
    begin_watch();
    Finish(status);
  }

  GrpcShared& shared_;
  grpc::CallbackServerContext& context_;
  CallPlace place_;
  std::weak_ptr<net::LoopExchange> exchange_;  // which its relay holds
  const std::shared_ptr<char> life_ = std::make_shared<char>();
  std::deque<std::string> queue_;  // messages, the first of them being written
  size_t queued_bytes_ = 0;
  grpc::ByteBuffer writing_;
  grpc::Status status_;  // that the stream ends with
  bool write_runs_ = false;
  bool write_watched_ = false;
  std::chrono::steady_clock::time_point write_began_;
  bool finish_asked_ = false;
  bool finished_ = false;
};

class UnaryCall final : public grpc::ServerUnaryReactor, public net::LoopResponder {
 public:
  UnaryCall(GrpcShared& shared, grpc::CallbackServerContext& context, std::string_view method,
            const grpc::ByteBuffer& message, grpc::ByteBuffer& reply)
      : shared_(shared),
        context_(context),
        reply_(reply),
        place_(shared, context, method, message) {}

  void start() {
    if (finished_) return;  // cancelled before its turn came
    const auto exchange = std::make_shared<net::LoopExchange>(shared_.loop, *this);
    exchange_ = exchange;
    place_.begin(context_, exchange);
  }

  // gRPC's threads.
  void OnCancel() override {
    shared_.loop.post([this] { client_left(); });
  }
  void OnDone() override {
    shared_.loop.post([this] { delete this; });
  }

  void send(net::HttpResponse response) override {
    if (response.status != 200) return end_with(cluster::grpc_status(context_, response));
    if (finished_) return;
    reply_ = buffer_of(response.body);
    end_with(grpc::Status::OK);
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
};

}  // namespace

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
