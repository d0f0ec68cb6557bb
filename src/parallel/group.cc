#include "parallel/group.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "parallel/member.h"
#include "parallel/mpi_library.h"
#include "parallel/mpi_transport.h"
#include "parallel/shm_transport.h"
#include "parallel/silence.h"
#include "parallel/tcp_frames.h"
#include "parallel/tcp_transport.h"

namespace pelton::parallel {
namespace {

constexpr int kBeatMs = 500;
constexpr int kFirstFree = 10;  // beyond those where followers look for their ends
constexpr std::chrono::milliseconds kEndGrace{2000};
constexpr std::chrono::milliseconds kLook{5};

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

std::string how_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

}  // namespace

struct Group::Follower {
  Follower(int rank, Channel control, Channel steps)
      : rank(rank), control(std::move(control)), steps(std::move(steps)), silence(now_ns()) {}

  const int rank;
  Channel control;
  Channel steps;
  Channel their_control{-1};  // until the process has them
  Channel their_steps{-1};
  std::atomic<pid_t> process{0};  // 0: it is somebody else's
  std::string host;               // of such a one

  // The group's thread only.
  Silence silence;
  std::string heard;       // the beginning of a heartbeat
  bool has_begun = false;  // its first heartbeat is there
  bool reaped = false;

  std::mutex mutex;
  Exchange::Counts counts;  // guarded by mutex

  std::string name() const {
    if (!host.empty()) return fmt::format("rank {} (at {})", rank, host);
    return fmt::format("rank {} (process {})", rank, process.load());
  }
};

Result<std::unique_ptr<Group>> Group::start(const Options& options, const Json& job) {
  std::unique_ptr<Group> group(new Group(options));
  TRY(group->open());
  TRY(group->begin(job));
  return group;
}

Group::Group(const Options& options) : options_(options) {}

Group::~Group() {
  ending_.store(true);
  if (wake_ >= 0) ::eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
  for (const int data : data_) ::close(data);
  if (wake_ >= 0) ::close(wake_);
}

Result<void> Group::open() {
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return Error{ErrorCode::kIo, fmt::format("eventfd: {}", std::strerror(errno))};
  if (options_.meeting) {
    TRY(open_hosts());
  } else if (options_.transport == TransportKind::kTcp) {
    TRY(open_tcp());
  } else {
    TRY_ASSIGN(const int memory, ShmTransport::make_file(options_.ranks, options_.part_bytes));
    data_.push_back(memory);
    TRY_ASSIGN(transport_, ShmTransport::map(memory, {.ranks = options_.ranks,
                                                      .rank = 0,
                                                      .part_bytes = options_.part_bytes,
                                                      .spin_ns = options_.spin_ns}));
  }
  exchange_ = std::make_unique<Exchange>(*transport_);
  return options_.meeting ? Result<void>() : open_processes();
}

Result<void> Group::open_processes() {
  for (int rank = 1; rank < options_.ranks; ++rank) {
    TRY_ASSIGN(auto control, Channel::make_pair());
    TRY_ASSIGN(auto steps, Channel::make_pair());
    followers_.push_back(
        std::make_unique<Follower>(rank, std::move(control.first), std::move(steps.first)));
    followers_.back()->their_control = std::move(control.second);
    followers_.back()->their_steps = std::move(steps.second);
  }
  return {};
}

// Every rank's socket listens before a process is started: nobody connects too early, and no port
// is looked for twice.
Result<void> Group::open_tcp() {
  TRY_ASSIGN(const std::string one, random_nonce());
  TRY_ASSIGN(const std::string other, random_nonce());
  token_ = base::sha256(one + other);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    TRY_ASSIGN(const auto listener, TcpTransport::listen());
    data_.push_back(listener.first);
    ports_.push_back(listener.second);
  }
  make_tcp();
  return {};
}

// Those who come listen already. Numbers travel under a token of this start, which is never sent: a
// rank of a group before knows another.
Result<void> Group::open_hosts() {
  const Meeting& meeting = *options_.meeting;
  TRY_ASSIGN(const auto listener, TcpTransport::listen(meeting.leader.host));
  data_.push_back(listener.first);
  ports_.push_back(listener.second);
  TRY_ASSIGN(const std::string nonce, random_nonce());
  session_ = base::sha256(nonce);
  token_ = data_token(meeting.secret, session_);
  TRY_ASSIGN(std::vector<Guest> guests, meet_followers(meeting));
  hosts_.push_back(own_host(guests.front().steps.descriptor()));
  for (Guest& guest : guests) {
    const int rank = static_cast<int>(ports_.size());
    ports_.push_back(guest.data.port);
    hosts_.push_back(guest.data.host);
    followers_.push_back(
        std::make_unique<Follower>(rank, std::move(guest.control), std::move(guest.steps)));
    followers_.back()->host = guest.data.host;
  }
  if (options_.transport == TransportKind::kMpi) return make_mpi();
  make_tcp();
  return {};
}

Result<void> Group::make_mpi() {
  TRY_ASSIGN(const MpiTable* const library, open_mpi());
  auto transport = std::make_unique<MpiTransport>(
      *library, MpiTransport::Options{.ranks = options_.ranks,
                                      .rank = 0,
                                      .part_bytes = options_.part_bytes,
                                      .spin_ns = options_.spin_ns});
  mpi_ = transport.get();
  transport_ = std::move(transport);
  return {};
}

void Group::make_tcp() {
  auto transport =
      std::make_unique<TcpTransport>(TcpTransport::Options{.ranks = options_.ranks,
                                                           .rank = 0,
                                                           .part_bytes = options_.part_bytes,
                                                           .token = token_,
                                                           .ports = ports_,
                                                           .hosts = hosts_,
                                                           .spin_ns = options_.spin_ns});
  tcp_ = transport.get();
  transport_ = std::move(transport);
}

// The thread that starts a process is the one whose end the process does not outlive
// (PR_SET_PDEATHSIG): so it is one that lives as long as the group.
Result<void> Group::begin(const Json& job) {
  const auto begun = std::make_shared<std::promise<Result<void>>>();
  thread_ = std::thread([this, begun] {
    pthread_setname_np(pthread_self(), "pelton-group");
    Result<void> spawned;
    for (const auto& follower : followers_) {
      if (spawned.ok() && follower->host.empty()) spawned = spawn(*follower);
    }
    const bool all = spawned.ok();
    begun->set_value(std::move(spawned));
    if (!all) return end_processes(false);
    watch();
  });
  TRY(begun->get_future().get());
  for (const auto& follower : followers_) {
    const auto rank = static_cast<size_t>(follower->rank);
    Json::Array processors;
    if (rank < options_.processors.size()) {
      for (const int processor : options_.processors[rank]) processors.emplace_back(processor);
    }
    Json message;
    if (mpi_ != nullptr) message.set("mpi", true);
    if (tcp_ != nullptr) message.set("ports", Json::Array(ports_.begin(), ports_.end()));
    if (!hosts_.empty()) {
      message.set("hosts", Json::Array(hosts_.begin(), hosts_.end())).set("session", session_);
    } else if (tcp_ != nullptr) {
      message.set("token", token_);
    }
    message.set("rank", follower->rank)
        .set("ranks", options_.ranks)
        .set("part_bytes", static_cast<int64_t>(options_.part_bytes))
        .set("spin_ns", options_.spin_ns)
        .set("processors", std::move(processors))
        .set("job", job);
    if (!follower->steps.send(message.dump()).ok()) return answer_of(follower->rank, 0).error();
  }
  Result<void> connected;
  if (tcp_ != nullptr) connected = tcp_->connect(data_.front());
  if (mpi_ != nullptr) connected = mpi_->connect();
  for (const int data : std::exchange(data_, {})) ::close(data);
  if (connected.ok()) return {};
  lose(connected.error());  // unless the group's thread knew better
  return *lost();
}

Result<void> Group::spawn(Follower& follower) {
  const MemberDescriptors places;
  const std::array<std::pair<int, int>, 3> given = {
      {{follower.their_control.descriptor(), places.control},
       {follower.their_steps.descriptor(), places.steps},
       {tcp_ == nullptr ? data_.front() : data_[static_cast<size_t>(follower.rank)], places.data}}};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::array<int, 3> moved{};
  for (size_t i = 0; i < given.size(); ++i) {
    moved[i] = ::fcntl(given[i].first, F_DUPFD_CLOEXEC, kFirstFree);
    ::posix_spawn_file_actions_adddup2(&actions, moved[i], given[i].second);
  }
  // Neither the leader's sockets nor its clients' are a follower's.
  ::posix_spawn_file_actions_addclosefrom_np(
      &actions, std::max({places.control, places.steps, places.data}) + 1);
  const std::string rank = std::to_string(follower.rank);
  const std::string ranks = std::to_string(options_.ranks);
  const std::string leader = std::to_string(::getpid());
  const std::array<const char*, 9> words = {"pelton",           "rank",         "--rank",
                                            rank.c_str(),       "--ranks",      ranks.c_str(),
                                            "--leader-process", leader.c_str(), nullptr};
  pid_t process = 0;
  const int failure = ::posix_spawn(&process, options_.program.c_str(), &actions, &attributes,
                                    const_cast<char* const*>(words.data()), environ);
  for (const int descriptor : moved) ::close(descriptor);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    return Error{ErrorCode::kIo, fmt::format("rank {} could not be started: {}", follower.rank,
                                             std::strerror(failure))};
  }
  follower.process.store(process);
  follower.their_control = Channel(-1);
  follower.their_steps = Channel(-1);
  return {};
}

Result<void> Group::send(std::string_view message) {
  for (const auto& follower : followers_) {
    if (follower->steps.send(message).ok()) continue;
    // The group's thread knows why in a moment.
    return answer_of(follower->rank, 0).error();
  }
  return {};
}

Result<std::string> Group::answer_of(int rank, int64_t timeout_ms) {
  Follower& follower = *followers_[static_cast<size_t>(rank - 1)];
  Result<std::optional<std::string>> got = follower.steps.receive(timeout_ms);
  if (got.ok() && got->has_value()) return std::move(**got);
  if (!got.ok() && got.error().code == ErrorCode::kDeadline && timeout_ms > 0) {
    lose(Error{ErrorCode::kUnavailable,
               fmt::format("{} has not answered within {} s", follower.name(), timeout_ms / 1000)});
  }
  // Its end has two signs, and this one may come first.
  for (int turn = 0; turn < 1000 && !lost(); ++turn) std::this_thread::sleep_for(kLook);
  lose(Error{ErrorCode::kUnavailable, follower.name() + " does not take part any more"});
  return *lost();
}

Error Group::loss_of_exchange() {
  constexpr std::chrono::milliseconds kDeeperCause{1200};
  for (auto waited = kLook; waited < kDeeperCause && !lost(); waited += kLook) {
    std::this_thread::sleep_for(kLook);
  }
  const std::string seen = transport_->loss();
  lose(Error{ErrorCode::kUnavailable,
             seen.empty() ? "a rank has not taken part in an exchange in time" : seen});
  return *lost();
}

std::optional<Error> Group::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

void Group::lose(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    if (lost_) return;
    lost_ = error;
  }
  transport_->abort();
  for (const auto& follower : followers_) follower->steps.shut();
  ::eventfd_write(wake_, 1);
}

std::string_view Group::transport_name() const {
  if (mpi_ != nullptr) return "mpi";
  return tcp_ != nullptr ? "tcp" : "shm";
}

std::vector<Group::RankState> Group::states() const {
  std::vector<RankState> states;
  states.push_back({.rank = 0,
                    .process = ::getpid(),
                    .transport = transport_name(),
                    .counts = exchange_->counts()});
  for (const auto& follower : followers_) {
    std::lock_guard lock(follower->mutex);
    states.push_back({.rank = follower->rank,
                      .process = follower->process.load(),
                      .host = follower->host,
                      .transport = transport_name(),
                      .counts = follower->counts});
  }
  return states;
}

void Group::watch() {
  std::vector<pollfd> wanted;
  for (const auto& follower : followers_) {
    wanted.push_back({.fd = follower->control.descriptor(), .events = POLLIN, .revents = 0});
  }
  wanted.push_back({.fd = wake_, .events = POLLIN, .revents = 0});
  int64_t beat_ns = 0;
  while (!ending_.load() && !lost()) {
    if (now_ns() - beat_ns >= int64_t{kBeatMs} * 1'000'000) {
      const Heartbeat beat;
      for (const auto& follower : followers_) {
        ::send(follower->control.descriptor(), &beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      transport_->look_after();
      beat_ns = now_ns();
    }
    ::poll(wanted.data(), wanted.size(), kBeatMs);
    if (ending_.load()) break;
    for (const auto& follower : followers_) {
      if (!hear(*follower)) {
        lose(Error{ErrorCode::kUnavailable, fate_of(*follower)});
        break;
      }
      if (follower->silence.ns() < silence_max_ns(*follower)) continue;
      lose(Error{ErrorCode::kUnavailable,
                 fmt::format("{} has been silent for {:.1f} s", follower->name(),
                             static_cast<double>(follower->silence.ns()) * 1e-9)});
      break;
    }
  }
  const std::optional<Error> why = lost();
  end_processes(!why);
  if (why && options_.on_lost) options_.on_lost(*why);
}

// A process that is being started has something else to do first.
int64_t Group::silence_max_ns(const Follower& follower) const {
  constexpr int64_t kAtStart = 5;
  return follower.has_begun ? options_.silence_max_ns : kAtStart * options_.silence_max_ns;
}

// False: it has closed its end.
bool Group::hear(Follower& follower) {
  char bytes[4096];
  const ssize_t got = ::recv(follower.control.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  follower.silence.look(now_ns(), got > 0);
  if (got <= 0) return true;
  follower.has_begun = true;
  follower.heard.append(bytes, static_cast<size_t>(got));
  const size_t whole = follower.heard.size() / sizeof(Heartbeat) * sizeof(Heartbeat);
  if (whole == 0) return true;
  Heartbeat beat;
  std::memcpy(&beat, follower.heard.data() + whole - sizeof beat, sizeof beat);
  follower.heard.erase(0, whole);
  std::lock_guard lock(follower.mutex);
  follower.counts = {beat.exchanges, beat.bytes, beat.wait_ns, beat.copy_ns, beat.rows};
  return true;
}

// Of one that has closed its connection: most have ended, and say so in a moment.
std::string Group::fate_of(Follower& follower) {
  if (!follower.host.empty()) return follower.name() + " has ended, or its connection has";
  const int64_t end_ns = now_ns() + 1'000'000'000;
  int status = 0;
  while (now_ns() < end_ns) {
    if (::waitpid(follower.process.load(), &status, WNOHANG) > 0) {
      follower.reaped = true;
      return fmt::format("{} {}", follower.name(), how_ended(status));
    }
    std::this_thread::sleep_for(kLook);
  }
  return follower.name() + " has closed its connection";
}

void Group::end_processes(bool kindly) {
  // Of one on another host it is seen by its connection.
  const auto has_ended = [this](Follower& follower) {
    if (follower.host.empty()) {
      return follower.process.load() == 0 ||
             ::waitpid(follower.process.load(), nullptr, WNOHANG) != 0;
    }
    return !hear(follower);
  };
  const auto left = [&] {
    return std::ranges::any_of(followers_, [&](const auto& follower) {
      if (!follower->reaped) follower->reaped = has_ended(*follower);
      return !follower->reaped;
    });
  };
  if (kindly) {
    for (const auto& follower : followers_) (void)follower->steps.send("");
    const int64_t end_ns = now_ns() + std::chrono::nanoseconds(kEndGrace).count();
    while (left() && now_ns() < end_ns) std::this_thread::sleep_for(kLook);
  }
  for (const auto& follower : followers_) {
    if (!follower->host.empty()) follower->control.shut();
    if (follower->process.load() == 0 || follower->reaped) continue;
    ::kill(follower->process.load(), SIGKILL);
    ::waitpid(follower->process.load(), nullptr, 0);
    follower->reaped = true;
  }
}

}  // namespace pelton::parallel
