#include "parallel/member.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parallel/mpi_library.h"
#include "parallel/mpi_transport.h"
#include "parallel/rendezvous.h"
#include "parallel/shm_transport.h"
#include "parallel/silence.h"
#include "parallel/tcp_transport.h"

namespace pelton::parallel {
namespace {

constexpr int kBeatMs = 500;
constexpr std::chrono::seconds kLastLook{5};
constexpr std::chrono::milliseconds kDeeperCause{1500};

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

Error no_job() {
  return Error{ErrorCode::kBadConfig,
               "pelton rank: no job came: serve --tensor-parallel-size starts its ranks itself"};
}

}  // namespace

Result<std::unique_ptr<Member>> Member::join(const Options& options) {
  std::unique_ptr<Member> member(new Member(options, Channel(options.descriptors.steps)));
  const bool is_own = options.secret.empty();
  member->begin_watching();  // a leader that waits for others beats, too (rendezvous.h)
  TRY_ASSIGN(const std::optional<std::string> text, member->steps_.receive(options.job_limit_ms));
  if (!text && is_own) return no_job();
  if (!text) {
    member->ending_.store(true);  // it is said here, and once
    const Loss loss{.why = "the leader has gone before the group began"};
    options.on_lost(loss);
    return Error{ErrorCode::kUnavailable, loss.why};
  }
  member->has_job_.store(true);
  TRY(member->take_job(*text));
  return member;
}

Member::Member(const Options& options, Channel steps)
    : options_(options), control_(options.descriptors.control), steps_(std::move(steps)) {}

Member::~Member() {
  ending_.store(true);
  control_.shut();
  if (thread_.joinable()) thread_.join();
}

Result<void> Member::take_job(std::string_view text) {
  TRY_ASSIGN(const Json whole, Json::parse(text));
  if (const auto why = whole.string("refused")) {
    return Error{ErrorCode::kUnavailable, fmt::format("the group does not begin: {}", *why)};
  }
  const Json* const job = whole.find("job");
  const Json* const processors = whole.find("processors");
  if (job == nullptr || processors == nullptr || !processors->is_array()) return no_job();
  job_ = *job;
  for (const Json& processor : processors->as_array()) {
    if (!processor.is_integer()) return no_job();
    processors_.push_back(static_cast<int>(processor.as_integer()));
  }
  const Result<void> joined = join_exchange(whole);
  if (!joined.ok() && joined.error().code == ErrorCode::kUnavailable) {
    // Where the leader has gone meanwhile that is the cause, which the watching thread says.
    std::this_thread::sleep_for(kDeeperCause);
    options_.on_lost({.why = joined.error().message});
  }
  ::close(options_.descriptors.data);
  joined_.store(joined.ok());
  return joined;
}

Result<void> Member::join_exchange(const Json& job) {
  const auto rank = job.integer("rank");
  const auto ranks = job.integer("ranks");
  const auto part_bytes = job.integer("part_bytes");
  const auto spin_ns = job.integer("spin_ns");
  if (!rank || !ranks || !part_bytes || !spin_ns) return no_job();
  if (job.find("mpi") != nullptr) {
    TRY_ASSIGN(const MpiTable* const library, open_mpi());
    auto transport = std::make_unique<MpiTransport>(
        *library, MpiTransport::Options{.ranks = static_cast<int>(*ranks),
                                        .rank = static_cast<int>(*rank),
                                        .part_bytes = static_cast<size_t>(*part_bytes),
                                        .spin_ns = *spin_ns});
    TRY(transport->connect());
    transport_ = std::move(transport);
    exchange_ = std::make_unique<Exchange>(*transport_);
    return {};
  }
  const Json* const ports = job.find("ports");
  if (ports == nullptr) {
    TRY_ASSIGN(transport_, ShmTransport::map(options_.descriptors.data,
                                             {.ranks = static_cast<int>(*ranks),
                                              .rank = static_cast<int>(*rank),
                                              .part_bytes = static_cast<size_t>(*part_bytes),
                                              .spin_ns = *spin_ns}));
    exchange_ = std::make_unique<Exchange>(*transport_);
    return {};
  }
  TcpTransport::Options options{.ranks = static_cast<int>(*ranks),
                                .rank = static_cast<int>(*rank),
                                .part_bytes = static_cast<size_t>(*part_bytes),
                                .token = std::string(job.string("token").value_or("")),
                                .spin_ns = *spin_ns};
  if (!ports->is_array() || ports->as_array().size() != static_cast<size_t>(*ranks)) {
    return no_job();
  }
  if (const Json* const hosts = job.find("hosts")) {
    if (!hosts->is_array() || hosts->as_array().size() != static_cast<size_t>(*ranks)) {
      return no_job();
    }
    for (const Json& host : hosts->as_array()) {
      if (!host.is_string()) return no_job();
      options.hosts.push_back(host.as_string());
    }
    options.token = data_token(options_.secret, job.string("session").value_or(""));
  }
  for (const Json& port : ports->as_array()) {
    if (!port.is_integer()) return no_job();
    options.ports.push_back(static_cast<int>(port.as_integer()));
  }
  auto transport = std::make_unique<TcpTransport>(options);
  TRY(transport->connect(options_.descriptors.data));
  transport_ = std::move(transport);
  exchange_ = std::make_unique<Exchange>(*transport_);
  return {};
}

Result<void> Member::check_exchange() const {
  if (!exchange_->failed()) return {};
  std::this_thread::sleep_for(kDeeperCause);
  const std::string loss = exchange_->loss();
  return Error{ErrorCode::kUnavailable, loss.empty() ? "an exchange broke off" : loss};
}

Result<std::optional<std::string>> Member::next() {
  TRY_ASSIGN(std::optional<std::string> message, steps_.receive(-1));
  if (message && message->empty()) {
    ending_.store(true);  // giving memory back may take longer than the leader stays
    return std::optional<std::string>();
  }
  if (message) return message;
  // The watching thread finds out why, and ends the process.
  std::this_thread::sleep_for(kLastLook);
  return Error{ErrorCode::kUnavailable, "the leader has gone"};
}

void Member::begin_watching() {
  thread_ = std::thread([this] { watch(); });
}

void Member::lose(const Loss& loss) {
  if (!has_job_.load() && !loss.is_silent) {
    // It may have said why, to the thread that waits for the job.
    std::this_thread::sleep_for(kDeeperCause);
    if (ending_.load()) return;
  }
  if (joined_.load()) transport_->abort();
  options_.on_lost(loss);
}

void Member::watch() {
  pthread_setname_np(pthread_self(), "pelton-group");
  Silence silence(now_ns());
  int64_t beat_ns = 0;
  while (!ending_.load()) {
    if (now_ns() - beat_ns >= int64_t{kBeatMs} * 1'000'000) {
      const Exchange::Counts counts = joined_.load() ? exchange_->counts() : Exchange::Counts();
      const Heartbeat beat{counts.exchanges, counts.bytes, counts.wait_ns, counts.copy_ns,
                           counts.rows};
      ::send(control_.descriptor(), &beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (joined_.load()) transport_->look_after();
      beat_ns = now_ns();
    }
    pollfd wanted{.fd = control_.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&wanted, 1, kBeatMs);
    if (ending_.load()) return;
    char bytes[4096];
    const ssize_t got = ::recv(control_.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
    const bool closed = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (closed) return lose({.why = "the leader has gone"});
    silence.look(now_ns(), got > 0);
    if (silence.ns() < options_.silence_max_ns) continue;
    return lose({.why = fmt::format("the leader has been silent for {:.1f} s",
                                    static_cast<double>(silence.ns()) * 1e-9),
                 .is_silent = true});
  }
}

}  // namespace pelton::parallel
