#include "server/grpc_unary.h"

#include <utility>

#include "base/check.h"
#include "net/loop_exchange.h"
#include "rpc/grpc_status.h"

namespace pelton::server {
namespace {

class UnaryReactor final : public grpc::ServerUnaryReactor, public net::LoopResponder {
 public:
  UnaryReactor(GrpcServices& shared, grpc::CallbackServerContext& context, UnaryCall unary)
      : shared_(shared),
        context_(context),
        reply_(unary.reply),
        place_(shared),
        model_(unary.model),
        request_(std::move(unary.request)),
        work_(unary.work) {
    const auto exchange = std::make_shared<net::LoopExchange>(shared.loop, *this);
    exchange_ = exchange;
    call_ =
        std::make_unique<Call>(grpc_call(shared, unary.route, context, unary.message, exchange));
  }

  void start() {  // on the loop, as is all but what gRPC calls
    const std::unique_ptr<Call> call = std::move(call_);
    if (finished_) return;  // cancelled before its turn came
    if (!admit(shared_, place_, context_, model_, *call)) return;
    run_request(std::move(*call), shared_.services, std::move(request_), work_);
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
    CHECK(reply_.ParseFromString(response.body), "an answer wrote what is no reply");
    end_with(grpc::Status::OK);
  }
  void write(std::string_view) override {}
  void finish() override {}
  void abandon() override {
    end_with(grpc::Status(grpc::StatusCode::INTERNAL, "the call was dropped unanswered"));
  }
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

  GrpcServices& shared_;
  grpc::CallbackServerContext& context_;
  google::protobuf::Message& reply_;
  GrpcPlace place_;
  const std::string_view model_;
  std::unique_ptr<ModelRequest> request_;  // until it is under way, as is the call
  const std::optional<Work> work_;
  std::weak_ptr<net::LoopExchange> exchange_;  // which the call holds
  std::unique_ptr<Call> call_;
  bool finished_ = false;
};

}  // namespace

grpc::ServerUnaryReactor* start_unary(GrpcServices& shared, grpc::CallbackServerContext& context,
                                      UnaryCall call) {
  auto* reactor = new UnaryReactor(shared, context, std::move(call));
  shared.loop.post([reactor] { reactor->start(); });
  return reactor;
}

}  // namespace pelton::server
