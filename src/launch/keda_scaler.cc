#include "launch/keda_scaler.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <keda/external_scaler.grpc.pb.h>

#include "net/url.h"

namespace pelton::launch {
namespace {

using grpc::ServerContext;
using grpc::Status;
using grpc::StatusCode;
namespace keda = externalscaler;

constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kSayAgain{30};
constexpr std::chrono::seconds kEndTime{1};
constexpr int kMessageBytesMax = 64 << 10;

const char* const kMetric = "pelton-desired-replicas";  // as Kubernetes takes names of metrics

}  // namespace

class KedaScaler::Service final : public keda::ExternalScaler::Service {
 public:
  Service(int streams_max, States states) : streams_max_(streams_max), states_(std::move(states)) {}

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    woken_.notify_all();
  }

  Status IsActive(ServerContext*, const keda::ScaledObjectRef* asked,
                  keda::IsActiveResponse* answer) override {
    int desired = 0;
    const Status found = find(*asked, desired);
    if (found.ok()) answer->set_result(desired > 0);
    return found;
  }

  Status StreamIsActive(ServerContext* context, const keda::ScaledObjectRef* asked,
                        grpc::ServerWriter<keda::IsActiveResponse>* writer) override {
    const Place place(streams_);
    if (place.number() > streams_max_) {
      return {StatusCode::RESOURCE_EXHAUSTED,
              fmt::format("{} streams are open, which is the most", streams_max_)};
    }
    std::optional<bool> said;
    auto said_at = std::chrono::steady_clock::now();
    while (!context->IsCancelled()) {
      int desired = 0;
      const Status found = find(*asked, desired);
      if (!found.ok()) return found;
      const auto now = std::chrono::steady_clock::now();
      // Again now and then: a client that has gone is noticed by it.
      if (said != (desired > 0) || now - said_at > kSayAgain) {
        said = desired > 0;
        said_at = now;
        keda::IsActiveResponse answer;
        answer.set_result(*said);
        if (!writer->Write(answer)) return Status::OK;
      }
      std::unique_lock lock(mutex_);
      if (woken_.wait_for(lock, kLook, [this] { return stopping_; })) break;
    }
    return Status::OK;
  }

  Status GetMetricSpec(ServerContext*, const keda::ScaledObjectRef* asked,
                       keda::GetMetricSpecResponse* answer) override {
    int desired = 0;
    const Status found = find(*asked, desired);
    if (!found.ok()) return found;
    keda::MetricSpec* spec = answer->add_metricspecs();
    spec->set_metricname(kMetric);
    spec->set_targetsize(1);
    spec->set_targetsizefloat(1);
    return Status::OK;
  }

  Status GetMetrics(ServerContext*, const keda::GetMetricsRequest* asked,
                    keda::GetMetricsResponse* answer) override {
    int desired = 0;
    const Status found = find(asked->scaledobjectref(), desired);
    if (!found.ok()) return found;
    keda::MetricValue* value = answer->add_metricvalues();
    value->set_metricname(asked->metricname().empty() ? kMetric : asked->metricname());
    value->set_metricvalue(desired);
    value->set_metricvaluefloat(desired);
    return Status::OK;
  }

 private:
  // Counts itself among those that are there at once.
  class Place {
   public:
    explicit Place(std::atomic<int>& all) : all_(all), number_(++all) {}
    ~Place() { --all_; }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    int number() const { return number_; }

   private:
    std::atomic<int>& all_;
    const int number_;
  };

  Status find(const keda::ScaledObjectRef& asked, int& desired) const {
    const auto named = asked.scalermetadata().find("pool");
    if (named == asked.scalermetadata().end()) {
      return {StatusCode::INVALID_ARGUMENT,
              "the trigger's metadata needs 'pool': a [[pool]]'s name"};
    }
    std::string known;
    for (const FleetScaler::PoolState& one : states_()) {
      known += fmt::format("{}'{}'", known.empty() ? "" : ", ", one.pool);
      if (one.pool != named->second) continue;
      if (one.acts) {
        return {StatusCode::FAILED_PRECONDITION,
                fmt::format("pool '{}' is scaled by the autoscaler itself; where KEDA does it, "
                            "[pool.scale] has mode = \"advise\"",
                            one.pool)};
      }
      desired = one.decision.desired;
      return Status::OK;
    }
    return {StatusCode::NOT_FOUND,
            fmt::format("there is no pool '{}' that is scaled; there are {}",
                        named->second.substr(0, 100), known.empty() ? "none" : known)};
  }

  const int streams_max_;
  const States states_;
  std::atomic<int> streams_ = 0;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_
};

struct KedaScaler::Server {
  std::unique_ptr<grpc::Server> grpc;
};

KedaScaler::KedaScaler() = default;

Result<std::unique_ptr<KedaScaler>> KedaScaler::open(const Options& options, States states) {
  auto scaler = std::unique_ptr<KedaScaler>(new KedaScaler());
  scaler->service_ = std::make_unique<Service>(options.streams_max, std::move(states));
  grpc::ResourceQuota quota("keda");
  quota.SetMaxThreads(options.streams_max + 8);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(net::format_host_port(options.host, options.port),
                           grpc::InsecureServerCredentials(), &scaler->port_);
  builder.RegisterService(scaler->service_.get());
  scaler->server_ = std::make_unique<Server>();
  scaler->server_->grpc = builder.BuildAndStart();
  if (scaler->server_->grpc == nullptr || scaler->port_ == 0) {
    return Error{ErrorCode::kAddressInUse,
                 fmt::format("cannot listen on {} for KEDA",
                             net::format_host_port(options.host, options.port)),
                 "keda_listen"};
  }
  return scaler;
}

KedaScaler::~KedaScaler() {
  if (service_ != nullptr) service_->stop();
  if (server_ == nullptr || server_->grpc == nullptr) return;
  server_->grpc->Shutdown(std::chrono::system_clock::now() + kEndTime);
  server_->grpc->Wait();
}

}  // namespace pelton::launch
