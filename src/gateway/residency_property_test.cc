// Random regions with gateways of their own, pools that stand in one region or in several, tenants,
// keys and requests that are tied to a region, faults of every kind, retries, spills, splits,
// migrations, stored responses. Whatever happens: no request, no stored response and no block of a
// KV cache that is tied to a region gets to a worker or a gateway of another one, and the ledgers
// say what went over the borders. What decides is the gateway's own: Fleet, the policy of
// Gateway, RegionLedger; only the wires between them are played. A failing seed is printed:
// PELTON_SEED=N replays it. PELTON_FULL: 10^5 of them, in eight shards.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cluster/block_names.h"
#include "gateway/client_headers.h"
#include "gateway/fleet.h"
#include "gateway/gateway.h"
#include "gateway/region_ledger.h"
#include "gateway/route_table.h"

namespace pelton::gateway {
namespace {

// A worker's news come over a watch, and policies are a gateway's own affair: here they are given
// and asked by hand, so that thousands of fleets take seconds. An explicit instantiation may name
// what is private.
template <typename Name, auto Member>
struct Opens {
  friend constexpr auto opened(Name) { return Member; }
};
struct Mutex {
  friend constexpr auto opened(Mutex);
};
struct Workers {
  friend constexpr auto opened(Workers);
};
struct NoteRecord {
  friend constexpr auto opened(NoteRecord);
};
struct Blocks {
  friend constexpr auto opened(Blocks);
};
struct RegionAsked {
  friend constexpr auto opened(RegionAsked);
};
struct StaysHere {
  friend constexpr auto opened(StaysHere);
};
template struct Opens<Mutex, &Fleet::mutex_>;
template struct Opens<Workers, &Fleet::workers_>;
template struct Opens<NoteRecord, &Fleet::note_record>;
template struct Opens<Blocks, &Fleet::blocks_>;
template struct Opens<RegionAsked, &Gateway::region_asked>;
template struct Opens<StaysHere, &Gateway::stays_here>;

constexpr int kBlockTokens = 16;
constexpr uint64_t kBlockSeed = 7;
constexpr int64_t kTickNs = 100'000'000;
constexpr int kShards = 8;
constexpr const char* kRegions[] = {"eu", "us", "ap", "sa"};
constexpr const char* kPool = "chat";
constexpr const char* kModel = "m";
constexpr int kTenants = 5;

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int roll(int low, int high) {
    return low + static_cast<int>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return roll(1, n) == 1; }
  uint64_t bits() { return base::random_bits(seed_, count_++); }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

// How often what the test is about has happened.
struct Happened {
  int64_t served = 0;
  int64_t spilled = 0;      // to another region
  int64_t tied_away = 0;    // tied, and answered by its region's workers from elsewhere
  int64_t not_allowed = 0;  // 403
  int64_t tied_lost = 0;    // 503 though other regions have room
  int64_t retried = 0;
  int64_t moved = 0;     // a stream that goes on elsewhere
  int64_t split = 0;     // its prompt is computed by one worker, its answer by another one
  int64_t fetched = 0;   // blocks of another worker's KV cache
  int64_t stored = 0;    // responses
  int64_t tied_kv = 0;   // tied requests that left blocks behind
  int64_t narrowed = 0;  // by a header
};

// One of this gateway's, as it is: what it says of itself is drawn anew at each turn.
struct Machine {
  std::string host;
  std::string region;  // where it stands; empty: nobody knows
  cluster::WorkerRecord record;
  bool silent = false;
  // By whom what it keeps may be kept: the region that a request was tied to; empty: any.
  std::set<std::string> keeps_of;
};

class Site {
 public:
  Site(const base::Clock& clock, base::Log& log, GatewayConfig config)
      : config(std::move(config)),
        fleet({.gateway = "gateway-" + this->config.regions.own,
               .trust = nullptr,
               .block_seed = kBlockSeed,
               .peer_key = std::string(32, 'k'),
               .index_bytes = size_t{1} << 16,
               .on_ready = {}},
              clock, log) {}

  // Nobody is watched, as there is nobody: false, if that had already begun.
  bool begin() {
    std::vector<WorkerConfig> members = config.workers;
    for (const WorkerConfig& far : region_workers(config)) members.push_back(far);
    fleet.set_members(config.pools, members, config.zones);
    std::lock_guard lock(fleet.*opened(Mutex{}));
    for (const auto& worker : fleet.*opened(Workers{})) {
      if (worker->watch) return false;
      worker->watch_again_ns = std::numeric_limits<int64_t>::max();
      // Its names are not tested either: whatever it holds, it says rightly.
      worker->test_again_ns = std::numeric_limits<int64_t>::max();
    }
    return true;
  }

  void say_record(size_t place) {
    std::lock_guard lock(fleet.*opened(Mutex{}));
    auto& worker = *(fleet.*opened(Workers{}))[place];
    const Result<void> noted = (fleet.*opened(NoteRecord{}))(
        worker, cluster::encode(machines[place].record), fleet.awake_ns());
    ASSERT_TRUE(noted.ok()) << noted.error().message;
    worker.health.note_probe(true);
  }
  void say_load(size_t place, const cluster::WorkerLoad& load) {
    std::lock_guard lock(fleet.*opened(Mutex{}));
    (fleet.*opened(Workers{}))[place]->health.note_load(load, fleet.awake_ns());
  }
  void say_blocks(size_t place, const std::vector<kv::BlockHash>& names) {
    std::lock_guard lock(fleet.*opened(Mutex{}));
    for (const kv::BlockHash& name : names) {
      (fleet.*opened(Blocks{}))
          .note_stored(static_cast<int>(place), BlockView::Group::kWidest, name);
    }
  }

  const GatewayConfig config;
  Fleet fleet;
  std::vector<Machine> machines;  // by their places in the fleet
  RegionLedger ledger;
};

template <typename Origin>
Result<std::string> ask_policy(Result<std::string> (*policy)(const GatewayConfig&, const Asker&,
                                                             const net::HttpHeaders&,
                                                             const Origin&),
                               const GatewayConfig& config, const Asker& asker,
                               const net::HttpHeaders& headers,
                               const std::optional<std::string>& from) {
  return policy(config, asker, headers,
                Origin{.comes = from.has_value(), .stays_in = from.value_or("")});
}

class World {
 public:
  World(uint64_t seed, Happened& happened)
      : dice_(seed), happened_(happened), log_(clock_, {.level = base::LogLevel::kNone}) {}

  void play() {
    make();
    const int steps = dice_.roll(8, 24);
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      misfortune();
      turn();
      for (int k = dice_.roll(1, 3); k > 0; --k) request();
    }
    expect_ledgers();
  }

 private:
  struct Asked {
    std::string tenant;
    std::string tied;  // as the test itself reckons: the region that it may not leave
    std::string path;
    RoutedPrompt prompt;
    std::string id;
    int64_t bytes = 0;
  };

  void make() {
    regions_ = dice_.roll(2, 4);
    for (int t = 0; t < kTenants; ++t) {
      ties_.push_back(dice_.one_in(2) ? kRegions[dice_.roll(0, regions_ - 1)] : "");
      key_ties_.push_back(dice_.one_in(4) ? kRegions[dice_.roll(0, regions_ - 1)] : "");
    }
    for (int r = 0; r < regions_; ++r) {
      const GatewayConfig config = a_config(r);
      do {
        sites_.resize(static_cast<size_t>(r));
        sites_.push_back(std::make_unique<Site>(clock_, log_, config));
      } while (!sites_.back()->begin());
      add_machines(*sites_.back());
      std::vector<bool> cut;
      for (int other = 0; other < regions_; ++other) cut.push_back(false);
      cut_.push_back(cut);
    }
    turn();
  }

  GatewayConfig a_config(int region) {
    GatewayConfig config;
    config.regions.own = kRegions[region];
    for (int other = 0; other < regions_; ++other) {
      if (other == region) continue;
      RegionConfig far;
      far.name = kRegions[other];
      far.host = fmt::format("gateway.{}", far.name);
      far.port = 8443;
      config.regions.others.push_back(far);
    }
    PoolConfig pool;
    pool.name = kPool;
    pool.models = {kModel};
    // Workers of several regions at one gateway, or of its own only.
    pool.region = dice_.one_in(2) ? PoolConfig::kRegionOfWorker : kRegions[region];
    const int mode = dice_.roll(0, 2);
    pool.split.mode = mode == 0   ? SplitConfig::Mode::kOff
                      : mode == 1 ? SplitConfig::Mode::kAuto
                                  : SplitConfig::Mode::kAlways;
    config.pools = {pool};
    for (int t = 0; t < kTenants; ++t) {
      if (ties_[static_cast<size_t>(t)].empty()) continue;
      TenantConfig tenant;
      tenant.name = fmt::format("tenant{}", t);
      tenant.region = ties_[static_cast<size_t>(t)];
      config.tenants.push_back(tenant);
    }
    const int workers = dice_.roll(1, 5);
    for (int w = 0; w < workers; ++w) {
      config.workers.push_back(
          {.pool = kPool, .host = fmt::format("10.{}.0.{}", region, w + 1), .port = 1});
    }
    return config;
  }

  void add_machines(Site& site) {
    const bool several = site.config.pools.front().region == PoolConfig::kRegionOfWorker;
    for (size_t w = 0; w < site.config.workers.size(); ++w) {
      Machine machine;
      machine.host = site.config.workers[w].host;
      machine.region = site.config.regions.own;
      if (several) {
        machine.region = dice_.one_in(8) ? "" : kRegions[dice_.roll(0, regions_ - 1)];
        machine.record.region = machine.region;
      }
      machine.record.name = fmt::format("{}-{}", site.config.regions.own, w);
      machine.record.models = {kModel};
      machine.record.slots = dice_.roll(1, 8);
      machine.record.batch_tokens = 2048;
      machine.record.context_tokens = 8192;
      machine.record.block_tokens = kBlockTokens;
      machine.record.block_name = cluster::block_name_check(kBlockSeed, kBlockTokens);
      machine.record.windows = {0};
      machine.record.kv_port = 2;
      machine.record.kv_ahead = true;
      machine.record.kv_id = fmt::format("{}.0123456789abcdef", machine.record.name);
      machine.record.role =
          static_cast<cluster::WorkerRole>(dice_.one_in(2) ? 0 : dice_.roll(0, 2));
      machine.record.fingerprints = {{kModel, "f"}};
      site.machines.push_back(std::move(machine));
      start(site, w);
    }
  }

  // Anew: what it kept is gone.
  void start(Site& site, size_t place) {
    Machine& machine = site.machines[place];
    machine.record.incarnation = fmt::format("{:032x}", ++starts_);
    machine.keeps_of.clear();
    site.say_record(place);
  }

  cluster::WorkerLoad a_load(const Machine& machine) {
    const bool full = dice_.one_in(3);
    cluster::WorkerLoad load;
    load.progress = ++progress_ * 300;
    load.running = full ? machine.record.slots : dice_.roll(0, machine.record.slots);
    load.waiting = full ? dice_.roll(0, 20) : 0;
    load.waiting_tokens = int64_t{load.waiting} * dice_.roll(10, 4000);
    load.wait_s = load.waiting * 0.2;
    load.dispatch = std::numeric_limits<int32_t>::max();
    load.context_tokens = int64_t{load.running} * 500;
    load.kv_used = full ? 0.97 : 0.3;
    const double slower = dice_.one_in(12) ? 50 : 1;
    load.costs = {.fixed_s = 0.005 * slower,
                  .prefill_token_s = 2e-4 * slower,
                  .row_s = 1e-4 * slower,
                  .context_token_s = 1e-8 * slower};
    load.draining = dice_.one_in(40);
    return load;
  }

  // A tick, in which those that can say how they are, and gateways what they have.
  void turn() {
    clock_.advance_ns(kTickNs);
    for (const auto& site : sites_) {
      for (size_t w = 0; w < site->machines.size(); ++w) {
        if (!site->machines[w].silent) site->say_load(w, a_load(site->machines[w]));
      }
    }
    for (int from = 0; from < regions_; ++from) {
      for (int to = 0; to < regions_; ++to) {
        if (from != to) say_summary(from, to);
      }
    }
  }

  void say_summary(int from, int to) {
    Site& hears = site(to);
    if (is_cut(from, to)) return hears.fleet.note_region_lost(kRegions[from], "cut");
    // What it says may be old or wrong: whoever goes there by it is refused, and no more.
    RegionModels models;
    models[kModel] = {
        .ready = dice_.roll(0, 6),
        .slots = 8,
        .running = dice_.roll(0, 8),
        .waiting = dice_.one_in(3) ? dice_.roll(0, 9) : 0,
        .waiting_tokens = 0,
        .context_tokens = 0,
        .wait_s = 0,
        .kv_used = 0.2,
        .costs = {
            .fixed_s = 0.005, .prefill_token_s = 2e-4, .row_s = 1e-4, .context_token_s = 1e-8}};
    hears.fleet.note_region({.region = kRegions[from],
                             .models = models,
                             .round_trip_s = dice_.roll(1, 80) * 1e-3,
                             .egress_s_per_mb = dice_.one_in(3) ? 1.0 : 0.0,
                             .dispatched = hears.fleet.dispatched()});
  }

  void misfortune() {
    Site& site = this->site(dice_.roll(0, regions_ - 1));
    const auto place =
        static_cast<size_t>(dice_.roll(0, static_cast<int>(site.machines.size()) - 1));
    Machine& machine = site.machines[place];
    switch (dice_.roll(0, 9)) {
      case 0:
      case 1:
        machine.silent = !machine.silent;
        break;
      case 2:
        start(site, place);
        break;
      case 3: {  // all links of one region
        const int cut = dice_.roll(0, regions_ - 1);
        for (int other = 0; other < regions_; ++other) flip(cut, other);
        break;
      }
      case 4:
        flip(dice_.roll(0, regions_ - 1), dice_.roll(0, regions_ - 1));
        break;
      case 5:
        site.fleet.command(machine.record.name, static_cast<Fleet::Command>(dice_.roll(0, 4)));
        break;
      case 6:  // a region without workers
        for (Machine& one : site.machines) one.silent = true;
        break;
      case 7:
        for (Machine& one : site.machines) one.silent = false;
        for (Machine& one : site.machines) {
          site.fleet.command(one.record.name, Fleet::Command::kUndrain);
        }
        break;
      case 8:  // long enough that who is silent is down
        for (int i = 0; i < 35; ++i) turn();
        break;
      default:
        break;
    }
  }

  void request() {
    const int at = dice_.roll(0, regions_ - 1);
    const int tenant = dice_.roll(0, kTenants - 1);
    Asked asked{.tenant = fmt::format("tenant{}", tenant),
                .tied = {},
                .path = dice_.one_in(5) ? "/v1/responses" : "/v1/chat/completions",
                .prompt = a_prompt(tenant),
                .id = fmt::format("request{}", ++requests_),
                .bytes = dice_.roll(100, 100'000)};
    KeyScope scope;
    // One of this tenant's keys is tied to a region, the other one is not.
    if (dice_.one_in(2)) scope.region = key_ties_[static_cast<size_t>(tenant)];
    const std::string tied =
        scope.region.empty() ? ties_[static_cast<size_t>(tenant)] : scope.region;
    net::HttpHeaders headers;
    std::string narrowed;
    if (dice_.one_in(3)) narrowed = dice_.one_in(6) ? "nowhere" : kRegions[dice_.roll(0, 3)];
    if (!narrowed.empty()) headers.add(std::string(kRegionHeader), narrowed);
    const Asker asker{.tenant = asked.tenant, .scope = &scope};
    Site& here = site(at);
    const Result<std::string> region =
        ask_policy(opened(RegionAsked{}), here.config, asker, headers, std::nullopt);
    asked.tied = tied.empty() ? narrowed : tied;
    if (!region.ok()) {
      ++happened_.not_allowed;
      ASSERT_FALSE(narrowed.empty());
      EXPECT_NE(narrowed, tied) << "what is allowed was refused";
      return;
    }
    ASSERT_EQ(*region, asked.tied);
    if (!narrowed.empty()) ++happened_.narrowed;
    const net::HttpRequest http{.method = "POST", .path = asked.path};
    serve(at, asked, *region, opened(StaysHere{})(http, here.config, asker));
  }

  // Of few, so that prefixes are there already; under its tenant's salt.
  RoutedPrompt a_prompt(int tenant) {
    const int which = dice_.roll(0, 2);
    RoutedPrompt prompt;
    const int blocks = dice_.roll(1, 60);
    for (int b = 0; b < blocks; ++b) {
      const auto number = static_cast<uint64_t>(b + 1);
      prompt.names.push_back(
          {.low = base::random_bits(static_cast<uint64_t>(tenant * 10 + which), number),
           .high = number});
    }
    prompt.tokens = int64_t{blocks} * kBlockTokens + 5;
    prompt.block_tokens = kBlockTokens;
    prompt.output_max = dice_.roll(2, 600);
    prompt.is_splittable = dice_.one_in(2);
    prompt.is_counted = true;
    return prompt;
  }

  Fleet::Wanted wanted(const Asked& asked, const std::string& region,
                       const std::vector<size_t>& tried, bool stays_here) {
    return {.pool = kPool,
            .model = kModel,
            .excluded = tried,
            .prompt = asked.prompt,
            .draw = dice_.bits(),
            .region = region,
            .request_id = asked.id,
            .may_split = true,
            .stays_here = stays_here,
            .body_bytes = asked.bytes};
  }

  // As a relay does: one after the other, until one answers.
  bool serve(int at, const Asked& asked, const std::string& region, bool stays_here) {
    Site& here = site(at);
    std::vector<size_t> tried;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto assignment = here.fleet.assign(wanted(asked, region, tried, stays_here));
      if (!assignment) break;
      if (attempt > 0) ++happened_.retried;
      tried.push_back(assignment->worker);
      bool served = false;
      if (assignment->kind == WorkerKind::kRegion) {
        EXPECT_FALSE(stays_here) << asked.id << " was to stay and went to " << assignment->region;
        served = send_across(at, asked, *assignment);
      } else {
        expect_within(here, asked, *assignment);
        served = !here.machines[assignment->worker].silent && !dice_.one_in(8);
        if (served) answered(at, asked, region, *assignment);
      }
      here.fleet.note_outcome(*assignment,
                              served ? Fleet::Outcome::kServed : Fleet::Outcome::kFailed);
      if (!served) continue;
      ++happened_.served;
      return true;
    }
    if (!region.empty()) ++happened_.tied_lost;
    return false;
  }

  bool send_across(int at, const Asked& asked, const Fleet::Assignment& assignment) {
    const std::string& there = assignment.region;
    EXPECT_TRUE(asked.tied.empty() || asked.tied == there)
        << asked.id << " of " << asked.tied << " went to the gateway of " << there;
    int to = 0;
    while (kRegions[to] != there) ++to;
    if (is_cut(at, to)) return false;
    // Its head came: that is what the ledger counts.
    const KeyScope scope{.is_gateway = true};
    const Result<std::string> region =
        ask_policy(opened(RegionAsked{}), site(to).config,
                   Asker{.tenant = asked.tenant, .scope = &scope}, net::HttpHeaders(), asked.tied);
    // One that another region's policy is stricter with is answered 403, which is an answer.
    EXPECT_TRUE(region.ok() || !ties_[tenant_of(asked)].empty()) << asked.id;
    site(at).ledger.note(there, asked.tenant, {.requests = 1, .bytes_out = asked.bytes});
    RegionLedger::Sums& sums = sent_[{at, there, asked.tenant}];
    ++sums.requests;
    sums.bytes_out += asked.bytes;
    ++happened_.spilled;
    if (!region.ok() || !serve(to, asked, *region, true)) return false;
    if (!asked.tied.empty()) ++happened_.tied_away;
    const int64_t back = dice_.roll(1, 5000);
    site(at).ledger.note(there, asked.tenant, {.bytes_in = back});
    sums.bytes_in += back;
    return true;
  }

  static size_t tenant_of(const Asked& asked) {
    return static_cast<size_t>(asked.tenant.back() - '0');
  }

  // Where it goes, and whose KV cache it is to look into.
  void expect_within(Site& here, const Asked& asked, const Fleet::Assignment& assignment) {
    const Machine& machine = here.machines[assignment.worker];
    EXPECT_TRUE(asked.tied.empty() || machine.region == asked.tied)
        << asked.id << " of " << asked.tied << " went to a worker of '" << machine.region << "'";
    if (assignment.peer.port != 0) {
      const auto source = std::ranges::find(here.machines, assignment.peer.host, &Machine::host);
      ASSERT_NE(source, here.machines.end());
      ++happened_.fetched;
      EXPECT_TRUE(asked.tied.empty() || source->region == asked.tied)
          << asked.id << " of " << asked.tied << " fetches from '" << source->region << "'";
      for (const std::string& owner : source->keeps_of) {
        EXPECT_TRUE(owner.empty() || owner == machine.region)
            << asked.id << " takes blocks tied to " << owner << " to '" << machine.region << "'";
      }
    }
    if (!assignment.decoder || !assignment.splits) return;
    const Machine& decoder = here.machines[assignment.decoder->worker];
    EXPECT_TRUE(asked.tied.empty() || decoder.region == asked.tied) << asked.id;
    EXPECT_EQ(decoder.region, machine.region) << asked.id << ": blocks go over a border";
  }

  // What is left of it there; and it may go on at another worker before it is over.
  void answered(int at, const Asked& asked, const std::string& region,
                const Fleet::Assignment& assignment) {
    Site& here = site(at);
    keep(here, asked, assignment.worker);
    if (asked.path == "/v1/responses") {
      ++happened_.stored;
      // By its id it is asked for where it lies, whoever takes requests.
      EXPECT_TRUE(asked.tied.empty() || here.machines[assignment.worker].region == asked.tied);
    }
    const std::vector<size_t> tried = {assignment.worker};
    if (assignment.splits) {
      Fleet::Wanted next = wanted(asked, region, tried, true);
      next.may_split = false;
      next.source = {.worker = assignment.worker, .serial = assignment.serial};
      next.fingerprint = assignment.fingerprint;
      if (dice_.one_in(2)) {
        next.preferred = {.worker = assignment.decoder->worker,
                          .serial = assignment.decoder->serial};
      }
      if (go_on(here, asked, next)) ++happened_.split;
    } else if (dice_.one_in(3)) {
      Fleet::Wanted next = wanted(asked, region, tried, true);
      next.may_split = false;
      next.fingerprint = assignment.fingerprint;
      if (go_on(here, asked, next)) ++happened_.moved;
    }
  }

  bool go_on(Site& here, const Asked& asked, const Fleet::Wanted& next) {
    const auto assignment = here.fleet.assign(next);
    if (!assignment) return false;
    EXPECT_NE(assignment->kind, WorkerKind::kRegion) << "what has begun here goes on here";
    if (assignment->kind == WorkerKind::kRegion) return false;
    expect_within(here, asked, *assignment);
    keep(here, asked, assignment->worker);
    here.fleet.note_outcome(*assignment, Fleet::Outcome::kServed);
    here.fleet.note_hand_over(*assignment, 0.05, 500);
    return true;
  }

  void keep(Site& here, const Asked& asked, size_t place) {
    here.say_blocks(place, asked.prompt.names);
    here.machines[place].keeps_of.insert(asked.tied);
    if (!asked.tied.empty()) ++happened_.tied_kv;
  }

  void expect_ledgers() {
    for (int at = 0; at < regions_; ++at) {
      RegionLedger::Rows expected;
      for (const auto& [whose, sums] : sent_) {
        if (std::get<0>(whose) == at) expected[{std::get<1>(whose), std::get<2>(whose)}] = sums;
      }
      const RegionLedger::Rows said = site(at).ledger.rows();
      ASSERT_EQ(said.size(), expected.size());
      for (const auto& [whose, sums] : expected) {
        const auto row = said.find(whose);
        ASSERT_NE(row, said.end());
        EXPECT_EQ(row->second.requests, sums.requests);
        EXPECT_EQ(row->second.bytes_out, sums.bytes_out);
        EXPECT_EQ(row->second.bytes_in, sums.bytes_in);
      }
    }
  }

  Site& site(int region) { return *sites_[static_cast<size_t>(region)]; }
  bool is_cut(int one, int other) const {
    return cut_[static_cast<size_t>(std::min(one, other))]
               [static_cast<size_t>(std::max(one, other))];
  }
  void flip(int one, int other) {
    auto& row = cut_[static_cast<size_t>(std::min(one, other))];
    const auto link = static_cast<size_t>(std::max(one, other));
    row[link] = !row[link];
  }

  Dice dice_;
  Happened& happened_;
  base::VirtualClock clock_{1'700'000'000'000};
  base::Log log_;
  int regions_ = 0;
  std::vector<std::string> ties_;      // of tenants
  std::vector<std::string> key_ties_;  // of one of their keys
  std::vector<std::unique_ptr<Site>> sites_;
  std::vector<std::vector<bool>> cut_;
  std::map<std::tuple<int, std::string, std::string>, RegionLedger::Sums> sent_;
  uint64_t starts_ = 0;
  int64_t progress_ = 0;
  int requests_ = 0;
};

// A share of the cases each, one line of ctest's: seeds of a billion of their own.
class ResidencyProperty : public testing::TestWithParam<int> {};

TEST_P(ResidencyProperty, NothingThatIsTiedLeavesItsRegionAndLedgersAddUp) {
  Happened happened;
  if (const char* one = std::getenv("PELTON_SEED"); one != nullptr) {
    if (GetParam() > 0) GTEST_SKIP() << "PELTON_SEED is one case";
    return World(static_cast<uint64_t>(std::atoll(one)), happened).play();
  }
  const int count = (std::getenv("PELTON_FULL") != nullptr ? 100'000 : 1'000) / kShards;
  const auto first = static_cast<uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count() % 1'000'000'000 +
      int64_t{1'000'000'000} * GetParam());
  std::printf("%d cases, PELTON_SEED=%llu on\n", count, static_cast<unsigned long long>(first));
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(first + static_cast<uint64_t>(i)));
    World(first + static_cast<uint64_t>(i), happened).play();
  }
  if (testing::Test::HasFailure()) return;
  const std::map<std::string, int64_t> counts = {
      {"served", happened.served},       {"spilled", happened.spilled},
      {"tied_away", happened.tied_away}, {"not_allowed", happened.not_allowed},
      {"tied_lost", happened.tied_lost}, {"retried", happened.retried},
      {"moved", happened.moved},         {"split", happened.split},
      {"fetched", happened.fetched},     {"stored", happened.stored},
      {"tied_kv", happened.tied_kv},     {"narrowed", happened.narrowed}};
  for (const auto& [what, times] : counts) {
    EXPECT_GT(times, count / 20) << what;
    RecordProperty(what, static_cast<int>(times));
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, ResidencyProperty, testing::Range(0, kShards));

}  // namespace
}  // namespace pelton::gateway
