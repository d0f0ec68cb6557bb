// pelton bench exchange: how long ranks take to make rows whole on all of them, over each
// transport, between processes of their own: of one host, or those that mpirun has started.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/launcher_session.h"
#include "apps/rank_flags.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/machine.h"
#include "cli/human_size.h"
#include "parallel/exchange.h"
#include "parallel/mpi_library.h"
#include "parallel/mpi_transport.h"
#include "parallel/processors.h"
#include "parallel/share.h"
#include "parallel/shm_transport.h"
#include "parallel/tcp_transport.h"

namespace pelton::apps {
namespace {

using parallel::TransportKind;

constexpr int64_t kBytesDefault[] = {1024, 4096, 16384, 65536, 262144, 1048576};
constexpr int64_t kPatienceNs = 10'000'000'000;
constexpr int64_t kWarmRounds = 100;
constexpr int64_t kPage = 4096;  // which a part of shared memory is a multiple of

struct Plan {
  TransportKind kind = TransportKind::kShm;
  int ranks = 2;
  int rounds = 2000;
  std::vector<int64_t> bytes;  // that are whole on each rank behind an exchange
  std::vector<std::vector<int>> processors;
  int64_t spin_ns = 0;
  size_t part_bytes = 0;
};

struct Figures {
  int64_t bytes = 0;
  int64_t median_ns = 0;
  int64_t p99_ns = 0;
};

// What the ranks have before they part ways.
struct Meeting {
  int memory = -1;
  std::vector<int> listeners;
  std::vector<int> ports;

  ~Meeting() {
    if (memory >= 0) ::close(memory);
    for (const int one : listeners) ::close(one);
  }
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
};

Result<void> open_meeting(const Plan& plan, Meeting& meeting) {
  if (plan.kind == TransportKind::kShm) {
    TRY_ASSIGN(meeting.memory, parallel::ShmTransport::make_file(plan.ranks, plan.part_bytes));
    return {};
  }
  for (int rank = 0; rank < plan.ranks; ++rank) {
    TRY_ASSIGN(const auto listener, parallel::TcpTransport::listen());
    meeting.listeners.push_back(listener.first);
    meeting.ports.push_back(listener.second);
  }
  return {};
}

Result<std::unique_ptr<parallel::Transport>> join(const Plan& plan, const Meeting& meeting,
                                                  int rank) {
  if (plan.kind == TransportKind::kShm) {
    TRY_ASSIGN(auto mapped,
               parallel::ShmTransport::map(meeting.memory, {.ranks = plan.ranks,
                                                            .rank = rank,
                                                            .part_bytes = plan.part_bytes,
                                                            .spin_ns = plan.spin_ns,
                                                            .patience_ns = kPatienceNs}));
    return std::unique_ptr<parallel::Transport>(std::move(mapped));
  }
  if (plan.kind == TransportKind::kMpi) {
    TRY_ASSIGN(const parallel::MpiTable* const library, parallel::open_mpi());
    auto transport = std::make_unique<parallel::MpiTransport>(
        *library, parallel::MpiTransport::Options{.ranks = plan.ranks,
                                                  .rank = rank,
                                                  .part_bytes = plan.part_bytes,
                                                  .spin_ns = plan.spin_ns,
                                                  .patience_ns = kPatienceNs});
    TRY(transport->connect());
    return std::unique_ptr<parallel::Transport>(std::move(transport));
  }
  auto transport = std::make_unique<parallel::TcpTransport>(
      parallel::TcpTransport::Options{.ranks = plan.ranks,
                                      .rank = rank,
                                      .part_bytes = plan.part_bytes,
                                      .token = "bench exchange",
                                      .ports = meeting.ports,
                                      .spin_ns = plan.spin_ns,
                                      .patience_ns = kPatienceNs});
  TRY(transport->connect(meeting.listeners[static_cast<size_t>(rank)]));
  return std::unique_ptr<parallel::Transport>(std::move(transport));
}

// Of a round's byte; a stale or misplaced one shows.
uint8_t expected(int64_t round, int64_t at) {
  return static_cast<uint8_t>(round * 31 + at * 7 + at / 251);
}

Result<void> take_part(const Plan& plan, const Meeting& meeting, int rank,
                       std::vector<Figures>* figures) {
  const parallel::ProcessorScope scope(plan.processors[static_cast<size_t>(rank)]);
  TRY_ASSIGN(const auto transport, join(plan, meeting, rank));
  parallel::Exchange exchange(*transport);
  const base::SystemClock clock;
  for (const int64_t bytes : plan.bytes) {
    const parallel::Share share = parallel::Share::make(
        static_cast<int>(bytes), 1, std::vector<int>(static_cast<size_t>(plan.ranks), 1));
    const int first = share.begin(rank);
    std::vector<uint8_t> whole(static_cast<size_t>(bytes));
    std::vector<int64_t> times;
    for (int64_t round = 0; round < kWarmRounds + plan.rounds; ++round) {
      for (int i = 0; i < share.count(rank); ++i) {
        whole[static_cast<size_t>(first + i)] = expected(round, first + i);
      }
      const int64_t begun = clock.now_ns();
      exchange.all_gather(share,
                          {.part = whole.data() + first,
                           .part_stride = bytes,
                           .whole = whole.data(),
                           .whole_stride = bytes,
                           .column_bytes = 1},
                          1);
      if (round >= kWarmRounds) times.push_back(clock.now_ns() - begun);
      if (exchange.failed()) {
        return Error{ErrorCode::kUnavailable, "the ranks lost each other: " + exchange.loss(), {}};
      }
      const auto last = static_cast<int64_t>(whole.size()) - 1;
      for (const int64_t at : {int64_t{0}, last / 2, last}) {
        if (whole[static_cast<size_t>(at)] == expected(round, at)) continue;
        return Error{
            ErrorCode::kInternal, fmt::format("byte {} of round {} is wrong", at, round), {}};
      }
    }
    std::ranges::sort(times);
    if (figures == nullptr) continue;
    figures->push_back({.bytes = bytes,
                        .median_ns = times[times.size() / 2],
                        .p99_ns = times[times.size() * 99 / 100]});
  }
  return {};
}

// The other ranks, processes that end with this one.
class Followers {
 public:
  Followers(const Plan& plan, const Meeting& meeting) {
    for (int rank = 1; rank < plan.ranks; ++rank) {
      const pid_t process = ::fork();
      if (process == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::_exit(take_part(plan, meeting, rank, nullptr).ok() ? 0 : 1);
      }
      if (process > 0) processes_.push_back(process);
    }
  }
  ~Followers() {
    for (const pid_t one : processes_) {
      ::kill(one, SIGKILL);
      ::waitpid(one, nullptr, 0);
    }
  }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  size_t count() const { return processes_.size(); }

 private:
  std::vector<pid_t> processes_;
};

std::string to_text(const Plan& plan, std::string_view transport,
                    const std::vector<Figures>& figures) {
  std::string out = fmt::format("{} ranks over {}, {} rounds: an all-gather, as rank 0 sees it\n",
                                plan.ranks, transport, plan.rounds);
  out += fmt::format("{:>12} {:>12} {:>12}\n", "bytes", "median us", "p99 us");
  for (const Figures& one : figures) {
    out += fmt::format("{:>12} {:>12.2f} {:>12.2f}\n", one.bytes,
                       static_cast<double>(one.median_ns) * 1e-3,
                       static_cast<double>(one.p99_ns) * 1e-3);
  }
  return out;
}

std::string to_json(const Plan& plan, std::string_view transport,
                    const std::vector<Figures>& figures) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("transport").string(transport).key("ranks").integer(plan.ranks);
  w.key("rounds").integer(plan.rounds).key("exchanges").begin_array();
  for (const Figures& one : figures) {
    w.begin_object().key("bytes").integer(one.bytes);
    w.key("median_us").number(static_cast<double>(one.median_ns) * 1e-3);
    w.key("p99_us").number(static_cast<double>(one.p99_ns) * 1e-3).end_object();
  }
  w.end_array().end_object();
  out += '\n';
  return out;
}

Result<void> write_figures(const cli::Arguments& arguments, const Plan& plan,
                           const std::vector<Figures>& figures) {
  const std::string& transport = arguments.text("--transport");
  if (arguments.has("--json")) {
    const std::string json = to_json(plan, transport, figures);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(plan, transport, figures));
}

// Over MPI: of the processes that mpirun has started this is one, and rank 0 writes.
Result<void> run_started(const cli::Arguments& arguments, Plan& plan, const RankPlace& place) {
  // mpirun has bound them, or leaves it to the system.
  plan.processors.assign(static_cast<size_t>(plan.ranks), base::usable_cpus());
  plan.spin_ns =
      parallel::spin_ns_for(parallel::share_processors(base::usable_cpus(), place.local_ranks));
  std::vector<Figures> figures;
  if (place.rank > 0) {
    static_cast<void>(arguments.has("--json"));  // rank 0's
    return take_part(plan, Meeting(), place.rank, nullptr);
  }
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(nullptr));
  TRY(take_part(plan, Meeting(), 0, &figures));
  return write_figures(arguments, plan, figures);
}

TransportKind kind_of(const cli::Arguments& arguments) {
  const std::string& name = arguments.text("--transport");
  if (name == "mpi") return TransportKind::kMpi;
  return name == "tcp" ? TransportKind::kTcp : TransportKind::kShm;
}

Result<void> run_bench_exchange(const cli::Arguments& arguments) {
  Plan plan;
  plan.kind = kind_of(arguments);
  plan.ranks = static_cast<int>(arguments.integer("--ranks"));
  RankPlace place;
  if (plan.kind == TransportKind::kMpi) {
    TRY_ASSIGN(place, place_of("mpi", [](const char* name) { return ::getenv(name); }));
    if (arguments.source("--ranks") != cli::Arguments::Source::kDefault &&
        plan.ranks != place.ranks) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--ranks {}: mpirun has started {}", plan.ranks, place.ranks),
                   "ranks"};
    }
    plan.ranks = place.ranks;
  } else {
    TRY(refuse_launched("bench exchange --transport " + arguments.text("--transport")));
  }
  plan.rounds = static_cast<int>(arguments.integer("--rounds"));
  plan.bytes.assign(std::begin(kBytesDefault), std::end(kBytesDefault));
  if (arguments.has("--bytes")) plan.bytes = {arguments.integer("--bytes")};
  if (plan.bytes.front() < plan.ranks) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--bytes {}: each of {} ranks needs one", plan.bytes.front(), plan.ranks),
        "bytes"};
  }
  const int64_t most = *std::ranges::max_element(plan.bytes);
  plan.part_bytes = static_cast<size_t>((most + kPage - 1) / kPage * kPage);
  if (plan.kind == TransportKind::kMpi) return run_started(arguments, plan, place);
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(nullptr));
  plan.processors = parallel::share_processors(base::usable_cpus(), plan.ranks);
  plan.spin_ns = parallel::spin_ns_for(plan.processors);
  Meeting meeting;
  TRY(open_meeting(plan, meeting));
  std::vector<Figures> figures;
  {
    const Followers followers(plan, meeting);
    if (followers.count() + 1 != static_cast<size_t>(plan.ranks)) {
      return Error{ErrorCode::kUnavailable, "no processes for all ranks", {}};
    }
    TRY(take_part(plan, meeting, 0, &figures));
  }
  return write_figures(arguments, plan, figures);
}

}  // namespace

cli::Verb bench_exchange_verb() {
  constexpr int64_t kBytesMax = int64_t{64} << 20;
  return {
      .name = "bench exchange",
      .summary = "Measures how long the ranks of a model take to hand each other rows.",
      .about =
          "An all-gather between processes of this host, over shared memory or TCP, as\n"
          "--tensor-parallel-size makes four of in each layer. Each rank has processors\n"
          "of its own where there are enough. Over MPI mpirun starts the ranks.",
      .flags = {{.name = "--transport",
                 .value = "WAY",
                 .help = "how bytes travel",
                 .kind = cli::Flag::Kind::kText,
                 .default_text = "shm",
                 .choices = {"shm", "tcp", "mpi"}},
                {.name = "--ranks",
                 .value = "N",
                 .help = "processes; over MPI as many as mpirun has started",
                 .kind = cli::Flag::Kind::kSize,
                 .default_text = "2",
                 .least = 2,
                 .most = 64},
                {.name = "--bytes",
                 .value = "N",
                 .help = "bytes that each rank has behind an exchange (1KiB to 1MiB in steps "
                         "unless given)",
                 .kind = cli::Flag::Kind::kSize,
                 .least = 2,
                 .most = kBytesMax},
                {.name = "--rounds",
                 .value = "R",
                 .help = "exchanges of each size",
                 .kind = cli::Flag::Kind::kSize,
                 .default_text = "2000",
                 .least = 1,
                 .most = 10'000'000},
                {.name = "--json", .value = "FILE", .help = "also write the numbers; - is stdout"}},
      .examples = {"pelton bench exchange --transport shm",
                   "pelton bench exchange --transport tcp --ranks 4 --bytes 4096",
                   "mpirun -n 2 --bind-to none pelton bench exchange --transport mpi"},
      .run = run_bench_exchange};
}

}  // namespace pelton::apps
