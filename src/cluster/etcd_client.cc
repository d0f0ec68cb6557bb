#include "cluster/etcd_client.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <etcd/rpc.grpc.pb.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

namespace pelton::cluster {
namespace {

namespace pb = etcdserverpb;

constexpr int64_t kEntriesMax = 8192;
constexpr int kMessageBytesMax = 64 << 20;

// The first key behind all that begin so.
std::string end_of(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xFF') end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(end.back() + 1);
  return end.empty() ? std::string(1, '\0') : end;
}

Error error_of(const grpc::Status& status, const std::string& endpoint) {
  const std::string message = fmt::format("etcd at {}: {}", endpoint, status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
      return {ErrorCode::kCancelled, message, {}};
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::OUT_OF_RANGE:
      return {ErrorCode::kNotFound, message, {}};
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {ErrorCode::kUnavailable, message, {}};
    default:
      return {ErrorCode::kIo, message, {}};
  }
}

EtcdClient::Entry entry_of(const pb::KeyValue& one) {
  return {.key = one.key(), .value = one.value(), .mod_revision = one.mod_revision()};
}

}  // namespace

class EtcdClient::Connection {
 public:
  explicit Connection(const Options& options) : options_(options) {
    if (options.tls) {
      credentials_ = grpc::SslCredentials({.pem_root_certs = options.ca,
                                           .pem_private_key = options.key,
                                           .pem_cert_chain = options.certificate});
    }
    for (const std::string& endpoint : options.endpoints) channels_.push_back(make(endpoint));
  }

  // The endpoint of the next call.
  size_t at() const { return at_.load() % channels_.size(); }
  std::shared_ptr<grpc::Channel> channel(size_t at) const {
    std::lock_guard lock(mutex_);
    return channels_[at];
  }
  const std::string& endpoint(size_t at) const { return options_.endpoints[at]; }

  void cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : running_) context->TryCancel();
  }

  // One call, as the user that is named: a token that has grown old is asked for anew.
  template <typename Call>
  Result<void> run(std::chrono::milliseconds time_max, const Call& call) {
    if (options_.user.empty()) return run_once(time_max, {}, call);
    for (bool is_second = false;; is_second = true) {
      TRY_ASSIGN(const std::string token, token_of(is_second));
      const Result<void> result = run_once(time_max, token, call);
      if (result.ok() || is_second || !is_stale_) return result;
    }
  }

  template <typename Call>
  Result<void> run(const Call& call) {
    return run(options_.call_time_max, call);
  }

 private:
  std::shared_ptr<grpc::Channel> make(const std::string& endpoint) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new one is one
    return grpc::CreateCustomChannel(endpoint, credentials_, arguments);
  }

  // With a context of its own, which cancel() reaches.
  template <typename Call>
  Result<void> run_once(std::chrono::milliseconds time_max, const std::string& token,
                        const Call& call) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("token", token);
    context.set_deadline(std::chrono::system_clock::now() + time_max);
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return Error{ErrorCode::kCancelled, "etcd: it is over", {}};
      running_.insert(&context);
    }
    const size_t used = at();
    const grpc::Status status = call(context, used);
    {
      std::lock_guard lock(mutex_);
      running_.erase(&context);
    }
    is_stale_ = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    if (status.ok()) return {};
    Error error = error_of(status, endpoint(used));
    if (error.code != ErrorCode::kUnavailable) return error;
    at_ = used + 1;
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return error;
    // One whose server had a certificate that is not believed makes no further connection (gRPC
    // 1.51): it starts handshakes and does not end them.
    std::shared_ptr<grpc::Channel> fresh = make(endpoint(used));
    std::lock_guard lock(mutex_);
    channels_[used].swap(fresh);
    return error;
  }

  Result<std::string> token_of(bool renew) {
    {
      std::lock_guard lock(mutex_);
      if (!renew && !token_.empty()) return token_;
    }
    pb::AuthenticateRequest request;
    request.set_name(options_.user);
    request.set_password(options_.password);
    pb::AuthenticateResponse response;
    TRY(run_once(options_.call_time_max, {}, [&](grpc::ClientContext& context, size_t at) {
      return pb::Auth::NewStub(channel(at))->Authenticate(&context, request, &response);
    }));
    std::lock_guard lock(mutex_);
    token_ = response.token();
    return token_;
  }

  const Options options_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_ = grpc::InsecureChannelCredentials();
  std::vector<std::shared_ptr<grpc::Channel>> channels_;  // guarded by mutex_; their number is not
  std::atomic<size_t> at_ = 0;
  mutable std::mutex mutex_;
  std::atomic<bool> is_stale_ = false;  // the last call's token
  std::string token_;                   // of the user; guarded by mutex_, as the next
  bool cancelled_ = false;
  std::set<grpc::ClientContext*> running_;
};

EtcdClient::EtcdClient(const Options& options)
    : connection_(std::make_unique<Connection>(options)) {}

EtcdClient::~EtcdClient() = default;

void EtcdClient::cancel() {
  connection_->cancel();
}

Result<EtcdClient::Snapshot> EtcdClient::range(std::string_view prefix) {
  pb::RangeRequest request;
  request.set_key(std::string(prefix));
  request.set_range_end(end_of(prefix));
  request.set_limit(kEntriesMax);
  pb::RangeResponse response;
  TRY(connection_->run([&](grpc::ClientContext& context, size_t at) {
    return pb::KV::NewStub(connection_->channel(at))->Range(&context, request, &response);
  }));
  Snapshot snapshot{.cluster_id = response.header().cluster_id(),
                    .revision = response.header().revision(),
                    .entries = {}};
  for (const pb::KeyValue& one : response.kvs()) snapshot.entries.push_back(entry_of(one));
  return snapshot;
}

Result<int64_t> EtcdClient::grant(std::chrono::seconds ttl) {
  pb::LeaseGrantRequest request;
  request.set_ttl(ttl.count());
  pb::LeaseGrantResponse response;
  TRY(connection_->run([&](grpc::ClientContext& context, size_t at) {
    return pb::Lease::NewStub(connection_->channel(at))->LeaseGrant(&context, request, &response);
  }));
  if (!response.error().empty()) return Error{ErrorCode::kIo, "etcd: " + response.error(), {}};
  return response.id();
}

Result<std::chrono::seconds> EtcdClient::renew(int64_t lease) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  TRY(connection_->run([&](grpc::ClientContext& context, size_t at) {
    const auto stub = pb::Lease::NewStub(connection_->channel(at));
    const auto stream = stub->LeaseKeepAlive(&context);
    if (stream->Write(request)) stream->Read(&response);
    stream->WritesDone();
    return stream->Finish();
  }));
  if (response.ttl() > 0) return std::chrono::seconds(response.ttl());
  return Error{ErrorCode::kNotFound, "etcd: the lease is over", {}};
}

Result<void> EtcdClient::revoke(int64_t lease) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return connection_->run([&](grpc::ClientContext& context, size_t at) {
    return pb::Lease::NewStub(connection_->channel(at))->LeaseRevoke(&context, request, &response);
  });
}

Result<void> EtcdClient::put(std::string_view key, std::string_view value, int64_t lease) {
  pb::PutRequest request;
  request.set_key(std::string(key));
  request.set_value(std::string(value));
  request.set_lease(lease);
  pb::PutResponse response;
  return connection_->run([&](grpc::ClientContext& context, size_t at) {
    return pb::KV::NewStub(connection_->channel(at))->Put(&context, request, &response);
  });
}

Result<bool> EtcdClient::create(std::string_view key, std::string_view value, int64_t lease) {
  const auto put_if = [&](const auto& condition) -> Result<bool> {
    pb::TxnRequest request;
    pb::Compare& compare = *request.add_compare();
    compare.set_key(std::string(key));
    compare.set_result(pb::Compare::EQUAL);
    condition(compare);
    pb::PutRequest& put = *request.add_success()->mutable_request_put();
    put.set_key(std::string(key));
    put.set_value(std::string(value));
    put.set_lease(lease);
    pb::TxnResponse response;
    TRY(connection_->run([&](grpc::ClientContext& context, size_t at) {
      return pb::KV::NewStub(connection_->channel(at))->Txn(&context, request, &response);
    }));
    return response.succeeded();
  };
  TRY_ASSIGN(const bool created, put_if([](pb::Compare& compare) {
               compare.set_target(pb::Compare::CREATE);
               compare.set_create_revision(0);
             }));
  if (created) return true;
  return put_if([&](pb::Compare& compare) {
    compare.set_target(pb::Compare::VALUE);
    compare.set_value(std::string(value));
  });
}

Result<bool> EtcdClient::put_while(std::string_view other_key, int64_t other_revision,
                                   std::string_view key, std::string_view value) {
  pb::TxnRequest request;
  pb::Compare& compare = *request.add_compare();
  compare.set_key(std::string(other_key));
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::MOD);
  compare.set_mod_revision(other_revision);
  pb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(std::string(key));
  put.set_value(std::string(value));
  pb::TxnResponse response;
  TRY(connection_->run([&](grpc::ClientContext& context, size_t at) {
    return pb::KV::NewStub(connection_->channel(at))->Txn(&context, request, &response);
  }));
  return response.succeeded();
}

Result<void> EtcdClient::watch(std::string_view prefix, int64_t revision, std::chrono::seconds time,
                               const std::function<void(const std::vector<Change>&)>& changed) {
  pb::WatchRequest request;
  pb::WatchCreateRequest& create = *request.mutable_create_request();
  create.set_key(std::string(prefix));
  create.set_range_end(end_of(prefix));
  create.set_start_revision(revision);
  std::optional<Error> ended;
  const auto deadline = std::chrono::steady_clock::now() + time;
  const Result<void> result = connection_->run(time, [&](grpc::ClientContext& context, size_t at) {
    context.AddMetadata("hasleader", "true");  // else a minority's member is silent
    const auto stub = pb::Watch::NewStub(connection_->channel(at));
    const auto stream = stub->Watch(&context);
    pb::WatchResponse response;
    for (bool alive = stream->Write(request); alive && stream->Read(&response);) {
      if (response.canceled()) {
        const bool is_compacted = response.compact_revision() > 0;
        ended = Error{is_compacted ? ErrorCode::kNotFound : ErrorCode::kIo,
                      "etcd ended the watch: " + response.cancel_reason(),
                      {}};
        context.TryCancel();
        break;
      }
      std::vector<Change> changes;
      for (const pb::Event& event : response.events()) {
        changes.push_back(
            {.deleted = event.type() == pb::Event::DELETE, .entry = entry_of(event.kv())});
      }
      if (!changes.empty()) changed(changes);
    }
    return stream->Finish();
  });
  if (ended) return *ended;
  if (!result.ok() && std::chrono::steady_clock::now() >= deadline) return {};
  return result;
}

}  // namespace pelton::cluster
