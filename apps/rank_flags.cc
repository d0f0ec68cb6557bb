#include "apps/rank_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "apps/launcher_session.h"
#include "apps/rank.h"
#include "apps/secret_file.h"
#include "apps/version.h"
#include "base/clock.h"
#include "base/machine.h"
#include "checkpoint/checkpoint.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "executor/rank_follower.h"
#include "node/cache_folder.h"
#include "parallel/member.h"
#include "parallel/mpi_library.h"
#include "parallel/processors.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr int kRanksMax = 64;

// What changes a number, how many blocks there are, or what each rank has: all are given the same.
constexpr std::array kSameFlags = {"--kernels",
                                   "--weights",
                                   "--kv-cache-dtype",
                                   "--kv-cache-memory",
                                   "--memory-utilization",
                                   "--swap-space",
                                   "--block-size",
                                   "--max-model-len",
                                   "--max-num-seqs",
                                   "--max-num-batched-tokens",
                                   "--enable-expert-parallel"};

Error wrong(std::string what, std::string field) {
  return Error{ErrorCode::kInvalidArgument, std::move(what), std::move(field)};
}

// -1: it is not set.
Result<int> number_in(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  if (text == nullptr) return -1;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, number);
  if (error != std::errc() || read != end || number < 0) {
    return wrong(fmt::format("{} is a number from 0 on, not '{}'", name, text), "rank-launcher");
  }
  return number;
}

struct Names {
  std::string_view launcher;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
};

// The first whose rank is set goes.
constexpr Names kNames[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"}};

// SLURM_TASKS_PER_NODE is "2(x3)" or "2,1"; only one number for all is taken.
Result<int> local_ranks_in(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  if (text == nullptr) return -1;
  const std::string all(text);
  if (all.find(',') != std::string::npos) return -1;
  const std::string first = all.substr(0, all.find('('));
  return number_in([&](const char*) { return first.c_str(); }, name);
}

Result<RankPlace> read_place(const cli::Arguments& arguments, const std::string& launcher) {
  if (launcher != "own") {
    for (const char* const flag : {"--nnodes", "--node-rank"}) {
      if (!arguments.has(flag)) continue;
      return wrong(fmt::format("{}: --rank-launcher {} says it", flag, launcher),
                   std::string(flag).substr(2));
    }
    return place_of(launcher, [](const char* name) { return ::getenv(name); });
  }
  if (!arguments.has("--node-rank")) {
    return wrong("--nnodes: --node-rank says which one this is", "node-rank");
  }
  return RankPlace{.rank = static_cast<int>(arguments.integer("--node-rank")),
                   .ranks = static_cast<int>(arguments.integer("--nnodes"))};
}

Result<parallel::Place> read_master(const cli::Arguments& arguments, const std::string& launcher) {
  parallel::Place place{.host = arguments.text("--master-addr"),
                        .port = static_cast<int>(arguments.integer("--master-port"))};
  if (launcher == "own") return place;
  const char* const host = ::getenv("MASTER_ADDR");
  const bool is_default = arguments.source("--master-addr") == cli::Arguments::Source::kDefault;
  if (host != nullptr && is_default) place.host = host;
  if (arguments.source("--master-port") != cli::Arguments::Source::kDefault) return place;
  TRY_ASSIGN(const int port, number_in(::getenv, "MASTER_PORT"));
  if (port > 65535) return wrong(fmt::format("MASTER_PORT: {}", port), "master-port");
  if (port > 0) place.port = port;
  return place;
}

// A launcher's binding is kept; where it has bound nobody, those of one host share it out.
std::vector<int> processors_of(const RankPlace& place) {
  const std::vector<int> usable = base::usable_cpus();
  const auto online = static_cast<size_t>(std::max<long>(::sysconf(_SC_NPROCESSORS_ONLN), 1));
  if (place.local_ranks <= 1 || usable.size() < online) return usable;
  return parallel::share_processors(usable,
                                    place.local_ranks)[static_cast<size_t>(place.local_rank)];
}

// Whether the flag is there, of whichever verb.
bool given(const cli::Arguments& arguments, const std::string& flag) {
  return arguments.knows(flag) && arguments.has(flag);
}

// Or it measures.
bool serves(const cli::Arguments& arguments) {
  return arguments.knows("--rank-restarts");
}

bool restarts(const cli::Arguments& arguments) {
  return given(arguments, "--rank-restarts") && arguments.integer("--rank-restarts") > 0;
}

// MPI is one of the processes that mpirun has started, once; and it has to be there.
Result<void> check_mpi(const cli::Arguments& arguments, const std::string& launcher) {
  if (launcher != "mpi") {
    return wrong(
        "--rank-transport mpi: only with ranks that mpirun has started, --rank-launcher mpi",
        "rank-transport");
  }
  if (restarts(arguments)) {
    return wrong(
        "--rank-restarts: not with --rank-transport mpi: whoever started mpirun does so anew",
        "rank-restarts");
  }
  TRY(parallel::open_mpi());
  return {};
}

Result<void> check_transport(const cli::Arguments& arguments, const std::string& launcher) {
  if (arguments.text("--rank-transport") == "shm") {
    return wrong("--rank-transport shm: ranks that are started one by one speak over tcp or mpi",
                 "rank-transport");
  }
  if (arguments.text("--rank-transport") == "mpi") TRY(check_mpi(arguments, launcher));
  return {};
}

// What has one process's state, which others would not have, or starts groups anew in it.
Result<void> check_beside(const cli::Arguments& arguments) {
  for (const char* const flag : {"--sleep-after", "--enable-sleep-mode", "--weights-from"}) {
    if (!given(arguments, flag)) continue;
    return wrong(fmt::format("{}: not with ranks that are started one by one", flag),
                 std::string(flag).substr(2));
  }
  if (arguments.integer("--replicas") > 1) {
    return wrong("--replicas: not with ranks that are started one by one", "replicas");
  }
  if (arguments.list("MODEL").size() > 1) {
    return wrong("MODEL: ranks that are started one by one have one model", "model");
  }
  const std::string& weights = arguments.text("--weights");
  if (weights == "shipped" || weights == "mapped") return {};
  return wrong(
      fmt::format("--weights {}: every host needs the folder that pelton pack makes", weights),
      "weights");
}

std::map<std::string, std::string> facts_of(const cli::Arguments& arguments) {
  std::map<std::string, std::string> facts = {{"version of pelton", kVersion}};
  for (const char* const flag : kSameFlags) {
    if (given(arguments, flag)) facts[flag] = arguments.text(flag);
  }
  return facts;
}

void print_place(const StartedRank& started, base::Log& log) {
  log.info(fmt::format("rank {} of {} on processors {}", started.place.rank, started.place.ranks,
                       fmt::join(started.processors, ",")));
  const auto ranks = static_cast<size_t>(started.place.local_ranks);
  if (ranks < 2 || started.processors.size() > 1 || base::usable_cpus().size() > 1) return;
  log.warning(
      "this rank is bound to one processor: mpirun --bind-to none, srun --cpus-per-task=N give it "
      "more");
}

Result<void> follow_as(const cli::Arguments& arguments, const std::string& model,
                       const StartedRank& started, base::Log& log) {
  const int rank = started.place.rank;
  const auto of_rank = [rank](const Error& error) {
    return Error{error.code, fmt::format("rank {}: {}", rank, error.message), error.field};
  };
  const base::SystemClock clock;
  executor::FollowerOptions options{.threads = static_cast<int>(arguments.integer("--threads")),
                                    .processors = started.processors,
                                    .facts = facts_of(arguments),
                                    .watch = weight_scrubber_of(rank, clock, log)};
  const std::string revision = given(arguments, "--revision") ? arguments.text("--revision") : "";
  TRY_ASSIGN(options.model, checkpoint::resolve_model(model, revision));
  parallel::MemberDescriptors ends;
  {
    const cli::Interrupt interrupt;
    parallel::Meeting meeting = started.meeting;
    meeting.stopped = [&] { return interrupt.pending(); };
    TRY_ASSIGN(ends, parallel::meet_leader(meeting, rank));
  }
  const Result<std::unique_ptr<parallel::Member>> member =
      parallel::Member::join({.descriptors = ends,
                              .secret = started.meeting.secret,
                              .job_limit_ms = started.meeting.wait_ns / 1'000'000,
                              .on_lost = [&](const parallel::Member::Loss& loss) {
                                log.error(fmt::format("rank {} ends: {}", rank, loss.why));
                                _exit(cli::kExitStuck);
                              }});
  if (!member.ok()) return of_rank(member.error());  // one that is lost does not come to here
  // Who stops the leader lets it drain, for which it needs its followers; until here a signal ends
  // a rank that waits.
  for (const int meant : {SIGINT, SIGTERM, SIGHUP}) std::signal(meant, SIG_IGN);
  // Nor would it hear that the process which starts it anew has gone.
  if (restarts(arguments)) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const parallel::ProcessorScope processors(started.processors);
  const Result<void> followed = executor::follow(**member, options);
  if (followed.ok()) return {};
  if (followed.error().code == ErrorCode::kUnavailable) {
    // Lost, as the watching thread sees it: with its exit code.
    log.error(of_rank(followed.error()).message);
    _exit(cli::kExitStuck);
  }
  return of_rank(followed.error());
}

// Of experts that are dealt out.
std::vector<Flag> expert_flags() {
  return {{.name = "--expert-histogram",
           .value = "FILE",
           .help = "how often each expert was chosen, added to when the model is let go; at the "
                   "start experts are dealt out by it, so that ranks have equally much to do",
           .may_be_empty = false,
           .only_with = {{"--enable-expert-parallel"}}},
          {.name = "--num-redundant-experts",
           .value = "N",
           .help = "so many copies in each layer of the experts that were chosen most, on other "
                   "ranks",
           .kind = Flag::Kind::kInteger,
           .default_text = "0",
           .most = 4096,
           .only_with = {{"--expert-histogram"}}}};
}

}  // namespace

Result<RankPlace> place_of(const std::string& launcher, const Variable& variable) {
  std::string looked_for;
  for (const Names& names : kNames) {
    if (names.launcher != launcher) continue;
    looked_for += fmt::format("{}${}", looked_for.empty() ? "" : ", ", names.rank);
    TRY_ASSIGN(const int rank, number_in(variable, names.rank));
    TRY_ASSIGN(const int ranks, number_in(variable, names.ranks));
    if (rank < 0 || ranks < 0) continue;
    if (rank >= ranks || ranks > kRanksMax) {
      return wrong(fmt::format("{}={}, {}={}: ranks are from 0 on, {} at most", names.rank, rank,
                               names.ranks, ranks, kRanksMax),
                   "rank-launcher");
    }
    TRY_ASSIGN(const int local_rank, number_in(variable, names.local_rank));
    TRY_ASSIGN(const int local_ranks, local_ranks_in(variable, names.local_ranks));
    RankPlace place{.rank = rank, .ranks = ranks};
    if (local_rank >= 0 && local_rank < local_ranks) {
      place.local_rank = local_rank;
      place.local_ranks = local_ranks;
    }
    return place;
  }
  return wrong(fmt::format("--rank-launcher {}: {} is not set", launcher, looked_for),
               "rank-launcher");
}

std::vector<Flag> meeting_flags() {
  const cli::Circumstance by_hand{"--nnodes"};
  const cli::Circumstance by_launcher{"--rank-launcher", {"env", "mpi", "slurm"}};
  std::vector<Flag> flags = {
      {.name = "--nnodes",
       .value = "N",
       .help = "the ranks are started one by one, on hosts of their own as a rule: N of them, "
               "as many as --tensor-parallel-size; --nnodes 2 --node-rank 1",
       .kind = Flag::Kind::kInteger,
       .least = 1,
       .most = kRanksMax},
      {.name = "--node-rank",
       .value = "R",
       .help = "which of them this is; 0 leads and serves",
       .kind = Flag::Kind::kInteger,
       .most = kRanksMax - 1,
       .only_with = {by_hand}},
      {.name = "--rank-launcher",
       .value = "L",
       .help = "who starts the ranks: this process or, with --nnodes, somebody by hand (own); "
               "one who sets RANK and WORLD_SIZE (env); mpirun (mpi); srun (slurm)",
       .default_text = "own",
       .choices = {"own", "env", "mpi", "slurm"}},
      {.name = "--master-addr",
       .value = "HOST",
       .help = "where rank 0 waits for the others; with a launcher $MASTER_ADDR is asked, too",
       .default_text = "127.0.0.1",
       .may_be_empty = false,
       .only_with = {by_hand, by_launcher}},
      {.name = "--master-port",
       .value = "P",
       .help = "and at which port; with a launcher $MASTER_PORT is asked, too",
       .kind = Flag::Kind::kInteger,
       .default_text = "29501",
       .least = 1,
       .most = 65535,
       .only_with = {by_hand, by_launcher}},
      {.name = "--rank-token-file",
       .value = "FILE",
       .help = "a secret that all ranks know, as 'openssl rand -hex 32' writes it",
       .may_be_empty = false,
       .only_with = {by_hand, by_launcher}},
      {.name = "--rank-wait-seconds",
       .value = "S",
       .help = "how long ranks wait for each other at the start",
       .kind = Flag::Kind::kInteger,
       .default_text = "300",
       .least = 1,
       .most = 86400,
       .only_with = {by_hand, by_launcher}}};
  return flags;
}

std::vector<Flag> rank_flags() {
  std::vector<Flag> flags = meeting_flags();
  flags.push_back(
      {.name = "--rank-restarts",
       .value = "N",
       .help = "a process that stays starts this one anew when its group has lost a rank, so "
               "often an hour at most; 0: it ends with code 7",
       .kind = Flag::Kind::kInteger,
       .default_text = "0",
       .most = 1000,
       .only_with = {{"--tensor-parallel-size"}}});
  for (Flag& flag : expert_flags()) flags.push_back(std::move(flag));
  return flags;
}

namespace {
Result<std::optional<StartedRank>> rank_of(const cli::Arguments& arguments,
                                           const std::string& launcher, bool by_hand,
                                           int64_t size) {
  StartedRank started;
  TRY_ASSIGN(started.place, read_place(arguments, launcher));
  const RankPlace& place = started.place;
  const std::string source = by_hand ? "--nnodes" : "--rank-launcher " + launcher;
  if (place.ranks != size) {
    return wrong(fmt::format("{}: {} ranks, --tensor-parallel-size {}: one rank for each process",
                             source, place.ranks, size),
                 "tensor-parallel-size");
  }
  if (place.rank >= place.ranks) {
    return wrong(fmt::format("--node-rank {}: ranks of {} are 0 to {}", place.rank, place.ranks,
                             place.ranks - 1),
                 "node-rank");
  }
  if (place.ranks < 2) return std::optional<StartedRank>();
  TRY(check_transport(arguments, launcher));
  if (serves(arguments)) TRY(check_beside(arguments));
  if (arguments.has("--rank-token-file")) {
    TRY_ASSIGN(started.meeting.secret, read_secret_file(arguments, "--rank-token-file"));
  } else if (serves(arguments) || by_hand) {
    return wrong(source + ": --rank-token-file names the secret that ranks know each other by",
                 "rank-token-file");
  }
  started.meeting.ranks = place.ranks;
  TRY_ASSIGN(started.meeting.leader, read_master(arguments, launcher));
  started.meeting.wait_ns = arguments.integer("--rank-wait-seconds") * 1'000'000'000;
  started.processors = processors_of(place);
  return std::optional(std::move(started));
}

bool is_by_hand(const cli::Arguments& arguments) {
  return arguments.has("--nnodes") && arguments.integer("--nnodes") > 1;
}

}  // namespace

Result<std::optional<StartedRank>> started_rank(const cli::Arguments& arguments) {
  if (!arguments.knows("--nnodes")) return std::optional<StartedRank>();  // has no such ranks
  const std::string& launcher = arguments.text("--rank-launcher");
  const bool by_hand = is_by_hand(arguments);
  if (!by_hand && launcher == "own") return std::optional<StartedRank>();
  return rank_of(arguments, launcher, by_hand, arguments.integer("--tensor-parallel-size"));
}

bool has_launcher(const cli::Arguments& arguments) {
  if (!arguments.knows("--rank-launcher")) return false;
  if (arguments.text("--rank-launcher") != "own") return true;
  if (serves(arguments)) return false;
  const Result<std::optional<LauncherSession>> session = launcher_session(::getenv);
  return session.ok() && session->has_value();
}

Result<std::optional<StartedRank>> measuring_rank(const cli::Arguments& arguments) {
  const bool by_hand = is_by_hand(arguments);
  std::string launcher = arguments.text("--rank-launcher");
  std::optional<LauncherSession> session;
  if (!by_hand) {
    TRY_ASSIGN(session, launcher_session(::getenv));
    if (session && launcher == "own") launcher = session->launcher;
  }
  if (!by_hand && launcher == "own") return std::optional<StartedRank>();
  TRY_ASSIGN(const RankPlace place, read_place(arguments, launcher));
  const bool says_size =
      arguments.source("--tensor-parallel-size") != cli::Arguments::Source::kDefault;
  TRY_ASSIGN(std::optional<StartedRank> started,
             rank_of(arguments, launcher, by_hand,
                     says_size ? arguments.integer("--tensor-parallel-size") : place.ranks));
  if (!started || by_hand) return started;
  if (!session) session = LauncherSession{.launcher = launcher, .place = place, .job = launcher};
  if (started->meeting.secret.empty()) {
    TRY_ASSIGN(started->meeting.secret, session_secret(*session, node::cache_folder("")));
  }
  const bool says_port = arguments.source("--master-port") != cli::Arguments::Source::kDefault ||
                         ::getenv("MASTER_PORT") != nullptr;
  if (!says_port) started->meeting.leader.port = meeting_port(*session);
  return started;
}

Result<void> read_rank_flags(const cli::Arguments& arguments, executor::RankOptions& ranks) {
  if (!serves(arguments)) return {};
  if (arguments.has("--expert-histogram") && arguments.list("MODEL").size() > 1) {
    return wrong("--expert-histogram: a server of one model keeps it", "expert-histogram");
  }
  ranks.expert_copies = static_cast<int>(arguments.integer("--num-redundant-experts"));
  TRY_ASSIGN(std::optional<StartedRank> started, started_rank(arguments));
  if (!started) return {};
  lead_started(arguments, std::move(*started), ranks);
  return {};
}

void lead_started(const cli::Arguments& arguments, StartedRank started,
                  executor::RankOptions& ranks) {
  ranks.count = started.place.ranks;
  ranks.meeting = std::move(started.meeting);
  ranks.processors = std::move(started.processors);
  ranks.facts = facts_of(arguments);
}

int64_t memory_of_ranks(const cli::Arguments& arguments) {
  const int64_t here = base::memory_limit_bytes();
  const Result<std::optional<StartedRank>> started = started_rank(arguments);
  if (!started.ok() || !*started) return here;
  const RankPlace& place = (*started)->place;
  return here * std::max(place.ranks / place.local_ranks, 1);
}

Result<bool> follow_leader(const cli::Arguments& arguments, const std::string& model,
                           const std::optional<StartedRank>& started, base::Log& log) {
  if (!started) return false;
  print_place(*started, log);
  if (started->place.rank == 0) return false;
  TRY(follow_as(arguments, model, *started, log));
  return true;
}

}  // namespace pelton::apps
