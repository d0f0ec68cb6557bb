// The workers that this gateway knows: a watch to each of them, their states, and which of them a
// request goes to. They come and go: one that is taken out gets no new requests, and is forgotten
// once those that it has are over. Any thread; one lock, held for a look at the workers of a pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "cluster/envelope.h"
#include "cluster/frame.h"
#include "cluster/vllm_subscriber.h"
#include "cluster/worker_health.h"
#include "gateway/awake_clock.h"
#include "gateway/block_view.h"
#include "gateway/config.h"
#include "gateway/cost_router.h"
#include "gateway/first_token_delays.h"
#include "gateway/foreign_load.h"
#include "gateway/media_request.h"
#include "gateway/name_trust.h"
#include "gateway/peer_choice.h"
#include "gateway/pool_gate.h"
#include "gateway/prediction_bias.h"
#include "gateway/region_summary.h"
#include "gateway/split_choice.h"
#include "gateway/vllm_blocks.h"
#include "net/http_client.h"

namespace pelton::gateway {

// One attempt of a request at a worker, which hears what becomes of that worker. Any thread,
// without the fleet's lock.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  virtual void on_worker_lost(int attempt) = 0;
  // It is being stopped, and says so itself: another one should go on. Said again and again.
  virtual void on_worker_leaving(int attempt) = 0;
};

class Fleet {
 public:
  struct Options {
    std::string gateway;                         // this one's name, one for each start
    std::shared_ptr<const net::TlsTrust> trust;  // null: plain HTTP
    std::optional<uint64_t> block_seed;          // of block names; none: nothing has any
    std::string peer_key;  // of tickets for other workers' blocks; empty: none are made
    size_t index_bytes = size_t{32} << 20;  // for what workers hold
    // A worker of this pool takes requests from now on; on a thread of its own, without the lock.
    std::function<void(const std::string& pool)> on_ready;
  };

  // `clock` and `log` outlive it.
  Fleet(Options options, const base::Clock& clock, base::Log& log);

  // These and no others from now on, at most 4095; who is there already stays as it is.
  void set_members(std::vector<PoolConfig> pools, const std::vector<WorkerConfig>& workers,
                   ZoneConfig zones);

  // Where an attempt goes. Its outcome is to be noted, once.
  struct Assignment {
    size_t worker = 0;
    uint64_t serial = 0;  // of the worker that was there then
    std::string host;
    int port = 0;
    std::shared_ptr<const net::TlsTrust> trust;
    std::string incarnation;
    bool is_foreign = false;  // it is sent the request as it came
    WorkerKind kind = WorkerKind::kPelton;
    std::string region;          // whose gateway it is; empty: it is a worker
    ForeignAbilities abilities;  // of a foreign one
    bool tls = false;
    std::string api_key;  // that a foreign one asks for; empty: none
    // Of a foreign one: another one may compute its prompts, and where that one is met (SGLang).
    bool pairs = false;
    cluster::WorkerRole role{};
    int bootstrap_port = 0;
    std::string fingerprint;  // of what it computes with; empty: it does not say
    int beat_ms = 0;          // as its record says
    int64_t dispatch = 0;
    int64_t hit_tokens = 0;    // of its prompt, that the worker is expected to find
    bool is_counted = false;   // of its prompt's tokens more is known than the body's length
    bool has_adapter = false;  // that its request names is in the worker's memory, as it said
    double first_s = 0;        // predicted, to the first token
    double step_s = 0;         // likewise, of a step
    double token_s = 0;        // and for each further token, with the prompts between them
    bool fetches = false;      // it was chosen for what it fetches
    double fed_first_s = 0;    // to the first token, if fetching took no time
    // Once it has said something, another one is to go on: which, is chosen then.
    bool splits = false;
    bool may_leave = false;  // it does not, but may then be better off at another one
    // And which seems the best for that now; none where it does not split.
    struct Decoder {
      size_t worker = 0;
      uint64_t serial = 0;
    };
    std::optional<Decoder> decoder = {};
    // Another worker that has more of the prompt; port 0: none.
    cluster::RunEnvelope::Peer peer = {};
    uint64_t peer_serial = 0;  // of that worker
    // Of one that makes images or a video, and of what that worker was to make before it.
    int64_t media_units = 0;
    int64_t media_units_ahead = 0;
  };
  // The cheapest worker (gateway/cost_router.h) of the pool that has the model (empty: any), but
  // those in `excluded`; none: no worker takes requests.
  struct Wanted {
    std::string_view pool;
    std::string_view model;
    const std::vector<size_t>& excluded;
    const RoutedPrompt& prompt;
    uint64_t draw = 0;
    std::span<const std::string> avoided = {};  // incarnations: likewise excluded
    struct Preferred {
      size_t worker = 0;
      uint64_t serial = 0;
    };
    std::optional<Preferred> preferred = {};  // if it takes requests, whatever it costs
    ForeignNeed need = ForeignNeed::kNone;    // of an answer that goes on
    std::string_view region = {};             // workers of no other one; empty: of any
    // Of an answer that goes on: those that compute it alike.
    std::optional<std::string_view> fingerprint = {};
    std::string_view request_id = {};
    // Nothing of its answer has been said, and another worker may go on with it.
    bool may_split = false;
    // Who has computed its prompt just now, for whoever goes on (gateway/split_choice.h).
    std::optional<Preferred> source = {};
    bool may_stay = false;  // with that one, where that is sooner
    // It is to compute the prompt only, for a server of another kind.
    bool computes_prompt = false;
    // It has come from another region's gateway, and goes to none.
    bool stays_here = false;
    // What that one computes is to be fetched while it does, and nothing else is wanted.
    bool ahead = false;
    const MediaWork* media = nullptr;  // that it asks for; null: it is a model's that speaks
    // That one worker has what it speaks of: it goes there whatever that one has to make already.
    bool has_home = false;
    int64_t body_bytes = 0;  // that would be sent to another region
  };
  std::optional<Assignment> assign(const Wanted& wanted);
  // What assign() would choose among, and by what; nothing is sent.
  struct Considered {
    std::string name;
    cluster::WorkerState state{};
    std::string reason;
    std::string region;
    cluster::WorkerRole role{};
    CostCandidate candidate;
    CostTerms terms;
    bool chosen = false;
  };
  struct ConsideredPair {
    std::string prefill;
    std::string decode;
    SplitTerms terms;
    bool chosen = false;
  };
  struct Decision {
    std::vector<Considered> workers;
    std::optional<ConsideredPair> pair;  // none: its prompt is not split, whatever that costs
  };
  Decision explain(const Wanted& wanted);
  int64_t expected_output(std::string_view pool) const;

  // How the pool's workers name blocks, those that name them as this gateway does.
  struct Naming {
    int block_tokens = 0;  // 0: there is none
    std::string date;      // of prompts; empty: the calendar's
  };
  Naming naming(std::string_view pool) const;

  // `listener` hears of its worker until the attempt is over.
  void listen(const Assignment& assignment, std::weak_ptr<WorkerListener> listener, int attempt);
  // The attempt is over: whether the worker failed it.
  using Outcome = cluster::WorkerHealth::Outcome;
  void note_outcome(const Assignment& assignment, Outcome outcome);
  // Of its answer: what was measured, where something else was expected.
  void note_first_token(const Assignment& assignment, double seconds);
  void note_further_tokens(const Assignment& assignment, double seconds, int64_t tokens);
  void note_output(std::string_view pool, int64_t tokens);
  // It was warm for what another worker had begun, after so long; it fetched so much from there.
  void note_hand_over(const Assignment& target, double seconds, int64_t fetched_tokens);
  // The same of a request that began so long after it was sent.
  void note_fetched(const Assignment& at_worker, double seconds, int64_t fetched_tokens);
  // Of images and videos (fleet_media.cc). An image was made, so long after it was asked for.
  void note_made(const Assignment& assignment, double seconds);
  // A video is under way there; what has become of it; it is there no more.
  void begin_video(const Assignment& assignment, const std::string& id);
  void note_video(const Assignment& assignment, const VideoState& state);
  void forget_video(const Assignment& assignment, std::string_view id);
  // For GET /v1/videos: of each worker of the pool that takes requests.
  std::vector<net::HttpCall> video_list_calls(std::string_view pool) const;
  SplitConfig split_of(std::string_view pool) const;
  // What it found of a prompt in its prefix cache.
  struct Hit {
    int64_t expected_tokens = 0;
    int64_t real_tokens = 0;
    int block_tokens = 0;  // as its prompt was named, which may have been for another pool
  };
  void note_hit(const Assignment& assignment, const Hit& hit);

  // kMove: drained, and its answers go on elsewhere.
  enum class Command { kDrain, kMove, kUndrain, kEject, kRestore };
  // False: no worker of that name.
  bool command(std::string_view name, Command command);
  // It stands by: what its KV cache takes is of no use. Does not wait for it.
  void release_memory(std::string_view name);
  // Until it starts anew, and from when it has no request of this gateway's any more: before, it
  // gets none. An error says why not; kNotFound: there is no worker of that name.
  Result<void> set_role(std::string_view name, cluster::WorkerRole role);
  // No worker of ours finds anything any more of what was computed for this tenant (none: for
  // anybody), in any tier; of all that is kept of a tenant, also of what is stored of it. `done`:
  // once all have answered, a minute later at most; on a thread of the client's, or here where
  // there is none.
  enum class EraseWhat { kComputed, kKept };
  struct Erased {
    int workers = 0;  // that have done it
    // That have not said so.
    struct Failed {
      std::string name;
      std::string reason;
    };
    std::vector<Failed> failed;
  };
  void erase(EraseWhat what, const std::optional<std::string>& tenant,
             std::function<void(const Erased&)> done);

  struct Row {
    std::string name;
    std::string pool;
    std::string url;
    cluster::WorkerState state{};
    cluster::WorkerRecord record;
    cluster::WorkerLoad load;
    int uncounted = 0;
    int open = 0;  // attempts of this gateway's that are not over
    int64_t report_age_ms = 0;
    int64_t requests = 0;
    int64_t failures = 0;
    std::string reason;  // why it gets no requests, or none of its pool's; empty: it does
    std::string lacks;   // its pool's models, none of which it has; empty: it has one
    bool names_agree = false;
    std::string fingerprint;
    double bias = 1;
    WorkerKind kind = WorkerKind::kPelton;
    ForeignAbilities abilities;
    cluster::WorkerRole role{};
    std::optional<cluster::WorkerRole> next_role;  // that it is drained for
    // What it makes of images and videos, as far as it was sent from here.
    struct Making {
      int images = 0;
      int videos = 0;
      int64_t units = 0;  // that are not made yet
      double unit_s = 0;  // what one takes; 0: none was made yet
      std::vector<std::string> loras;
    };
    std::optional<Making> making;  // none: its pool makes none
  };
  std::vector<Row> rows() const;
  // Time in which this process ran (gateway/awake_clock.h).
  int64_t awake_ns() const { return clock_.now_ns(); }
  // What the gateway of another region says it has, or why it says nothing (fleet_regions.cc).
  // `dispatched`: dispatched() when it was asked.
  struct RegionNews {
    std::string_view region;
    const RegionModels& models;
    double round_trip_s = 0;
    double egress_s_per_mb = 0;
    int64_t dispatched = 0;
  };
  void note_region(const RegionNews& news);
  void note_region_lost(std::string_view region, const std::string& trouble);
  int64_t dispatched() const;
  // The pool that the worker is in now; empty: it has gone.
  std::string pool_of(const Assignment& assignment) const;
  bool has_pool(std::string_view pool) const;
  // The pool has a worker, ready or not, that is none of these. Other regions do not count.
  bool has_worker_beside(std::string_view pool, const std::set<size_t>& workers) const;
  // Names of blocks that workers are known to hold, and those that made room for others.
  struct IndexSize {
    size_t names = 0;
    int64_t evictions = 0;
    size_t bytes = 0;
    int64_t updates = 0;
    int64_t resyncs = 0;  // times that a worker's part began anew
  };
  IndexSize index_size() const;
  // The same of one worker, by its name.
  struct WorkerIndex {
    size_t blocks = 0;  // that it is known to hold
    int block_tokens = 0;
    bool names_agree = false;  // it names them under this fleet's key
    bool believed = true;      // and has not been found wrong
    size_t wrong = 0;          // of its last answers, NameTrust::kAnswers at most
    std::string fingerprint;
  };
  std::optional<WorkerIndex> index_of(std::string_view name) const;
  // Workers that were taken out for a while, by cluster::WorkerHealth::Cause.
  using Ejections = std::array<int64_t, cluster::WorkerHealth::kCauses>;
  Ejections ejections() const;
  // Workers whose announcements were found wrong.
  int64_t names_doubted() const;

  // What workers that are not ours have published of their prefix caches.
  struct KvEvents {
    int64_t batches = 0;
    std::array<int64_t, cluster::VllmSubscriber::kResets> resets{};  // by Reset
  };
  KvEvents kv_events() const;
  // Nobody answers there, or nobody is known of there.
  bool is_gone(std::string_view host, int port) const;
  // What a worker of the pool has by this name, or had when it was last heard of: requests may name
  // it instead of a model.
  bool has_adapter(std::string_view pool, std::string_view name) const;
  // All of them, by name.
  std::vector<std::string> adapters(std::string_view pool) const;
  // The digest of one that is in some worker's memory; empty: it is in none.
  std::string adapter_digest(std::string_view pool, std::string_view name) const;
  // Whether another region that has the model counts as a worker.
  enum class Regions { kLeftOut, kCount };
  // Some worker of this pool takes requests, for each of its models.
  bool serves(const PoolConfig& pool, Regions regions = Regions::kLeftOut) const;
  // How full the pool is: requests that run and wait, over slots, of those of its workers that take
  // requests. Above any bound where none does.
  double occupancy(std::string_view pool) const;
  // What its workers take now; of what runs there, only this gateway's is known so soon.
  PoolSupply supply(std::string_view pool) const;
  // Whether some worker would take a request for this model (empty: any) if it had not as many
  // images and videos to make as it is sent at once.
  bool is_full_of(std::string_view pool, std::string_view model) const;

 private:
  struct Listening {
    std::weak_ptr<WorkerListener> listener;
    int attempt = 0;
  };
  struct Worker {
    WorkerConfig config;
    uint64_t serial = 0;  // no two that have been there have the same
    std::string shown;    // HOST:PORT until its record says its name
    bool is_foreign = false;
    WorkerKind kind = WorkerKind::kPelton;
    // Of a foreign one (fleet_foreign.cc).
    bool tls = false;
    std::shared_ptr<const net::TlsTrust> trust;
    std::string api_key;
    bool continues = true;
    // Of one that says what its prefix cache holds.
    int kv_events_port = 0;  // 0: it does not
    int kv_replay_port = 0;
    uint64_t kv_subscription = 0;  // what an earlier one still says is void; 0: there is none
    int kv_block_tokens = 0;       // as it says there; 0: not known yet
    ForeignAbilities abilities;
    bool abilities_asked = false;
    // Of another region's gateway: there and back, and how many workers its load is the mean of.
    double region_round_trip_s = 0;
    double region_egress_s_per_mb = 0;
    int region_workers = 1;
    int region_returns = 0;  // after it was down
    ForeignLoad said_load;   // as its metrics said lately
    int64_t said_ns = 0;     // 0: never
    bool scraping = false;
    bool leaves = false;            // taken out: nothing new for it
    bool gives_up_answers = false;  // an operator wants them to go on elsewhere
    int open = 0;                   // attempts without an outcome
    int64_t doubted_until_ns = 0;   // its reports left some of these out
    cluster::WorkerHealth health{cluster::WorkerHealth::Options{}};
    cluster::WorkerRecord record;
    cluster::WorkerRole role{};                    // its record's, or an operator's
    std::optional<cluster::WorkerRole> next_role;  // once it has nothing to do
    cluster::FrameReader reader{size_t{1} << 20};
    std::optional<net::HttpClient::CallId> watch;  // open or being opened
    int64_t watch_again_ns = 0;
    bool recorded = false;  // this watch has said who answers
    std::string trouble;    // the last: of its watch, its record, its probe
    bool probing = false;
    int64_t probe_again_ns = 0;
    // Requests that its reports may not count yet, in their order.
    struct Uncounted {
      int64_t dispatch = 0;
      int64_t at_ns = 0;
      int64_t tokens = 0;  // to be computed
    };
    std::deque<Uncounted> uncounted;
    int over_since_report = 0;          // requests that its last report counts, and that are over
    std::vector<std::string> adapters;  // that it has, by name
    // Those that it was sent requests for which its reports may not count yet.
    std::map<std::string, Uncounted, std::less<>> expected_adapters;
    bool names_agree = false;  // its blocks are named as ours
    cluster::RoutedGroups groups;
    // What it computes with, of its pool's models, and why that is not what its pool does (empty:
    // it is); fleet_trust.cc, as the next.
    std::string fingerprint;
    int64_t well_ns = 0;   // when its probe last had passed, and it was there; 0: never
    int64_t begun_ns = 0;  // when this incarnation was first heard
    std::string mismatch;
    int64_t ejected_times = 0;  // that are counted in ejections_
    FirstTokenDelays delays;
    std::string slow_text;  // where it was ejected for these
    NameTrust name_trust;
    bool testing_names = false;
    int64_t name_test_ns = 0;          // none before
    std::vector<TokenId> test_prompt;  // asked once; empty: none is to be asked again
    int64_t test_again_ns = 0;
    PromptShare prompt_share;
    PredictionBias first_bias;  // of the time to the first token, and for each further one
    PredictionBias rest_bias;
    int64_t requests = 0;
    int64_t failures = 0;
    std::string logged;  // state and reason, as they stand in the log
    std::vector<Listening> listening;
    // Images and videos that it was sent (fleet_media.cc).
    struct Video {
      std::string id;
      int64_t units = 0;
      int64_t units_ahead = 0;
      int64_t begun_ns = 0;
      double progress = 0;  // 0 to 1
    };
    struct Making {
      std::map<int64_t, int64_t> images;  // units, by dispatch
      std::deque<Video> videos;           // under way, in turn as they are asked for
      double unit_s = 0;                  // measured; 0: not yet
      std::deque<std::string> loras;      // in memory, as it was sent them: the last one last
      bool asking = false;
      int64_t ask_again_ns = 0;
    };
    Making making;
  };

  // Of one worker, which may have gone meanwhile.
  struct Place {
    size_t index = 0;
    uint64_t serial = 0;
  };

  void turn();
  Worker* at(const Place& place);
  void tend(Worker& worker, const Place& place, int64_t now_ns);
  void watch(Worker& worker, const Place& place);
  // Of a foreign worker, instead: its list of models, which is also the sign of life.
  void poll(Worker& worker, const Place& place);
  struct ForeignModels {
    std::vector<std::string> models;
    std::vector<std::string> adapters;  // LoRA adapters of these, as it says
  };
  static Result<ForeignModels> models_of_list(std::string_view body);
  void on_polled(const Place& place, const Result<ForeignModels>& listed);
  static net::HttpCall foreign_call(const Worker& worker, std::string method, std::string target);
  void set_foreign(size_t index, Worker& worker, const PoolConfig* pool);
  // Once it answers: what can it do with an answer that another one began?
  void ask_abilities(Worker& worker, const Place& place);
  void ask_ability(Worker& worker, const Place& place, ForeignNeed ability);
  void ask_load(Worker& worker, const Place& place);
  void ask_video(Worker& worker, const Place& place, int64_t now_ns);
  void on_video(const Place& place, const std::string& id, int status, std::string_view body);
  static void end_video(Worker& worker, std::deque<Worker::Video>::iterator video,
                        std::optional<int64_t> made_ns);
  static int64_t units_open(const Worker& worker);
  // Requests that it takes at once, as far as that is known, and those that it has of them.
  struct Slots {
    int all = 0;
    int taken = 0;
    int free() const { return std::max(all - taken, 0); }
  };
  Slots slots_of(const Worker& worker) const;
  bool makes_media(const Worker& worker) const;
  void price_media(const Worker& worker, const Wanted& wanted, CostCandidate& one) const;
  void note_media_sent(Worker& worker, const MediaWork& work, Assignment& assignment) const;
  std::optional<Row::Making> making_of(const Worker& worker) const;
  void subscribe(Worker& worker, const Place& place);
  // What a worker has come to hold, and let go, under our names.
  struct KvNews {
    std::optional<cluster::VllmSubscriber::Reset> reset;
    VllmBlocks::Changes changes;
    int block_tokens = 0;
  };
  void on_kv_news(const Place& place, uint64_t subscription, const KvNews& news);
  // What its subscriber has said is void. It joins a thread that may wait for the lock: turn() lets
  // it go without.
  void retire(size_t index, Worker& worker);
  void on_watch_bytes(const Place& place, std::string_view bytes);
  void on_watch_done(const Place& place, const Result<void>& result);
  Result<void> read_watch(size_t index, Worker& worker, int64_t now_ns);
  void take_name(Worker& worker, int64_t now_ns);
  bool may_be_shown(const Worker& worker, std::string_view name) const;
  Result<void> note_record(Worker& worker, std::string_view payload, int64_t now_ns);
  void probe(Worker& worker, const Place& place);
  void on_probed(const Place& place, const std::string& incarnation, const std::string& trouble);
  std::vector<Listening> note_state(Worker& worker, int64_t now_ns);
  // Some of those who are to leave this worker, in the order in which they came.
  static std::vector<Listening> take_leaving(Worker& worker, int64_t now_ns);
  std::string reason_of(const Worker& worker, int64_t now_ns) const;
  // As it says itself, else as its pool's configuration does.
  std::string region_of(const Worker& worker) const;
  void price_region(const Worker& worker, const Wanted& wanted, CostCandidate& one) const;
  // `chosen`, or who is cheapest here where another region is not sooner by enough.
  std::optional<size_t> kept_near(const CostRequest& request, const std::vector<CostCandidate>& all,
                                  std::optional<size_t> chosen, uint64_t draw) const;
  // `near`, or the region that answers in its stead while something is wrong with it.
  size_t away_from_sick(const CostRequest& request, const std::vector<CostCandidate>& all,
                        size_t near, uint64_t draw) const;
  std::string missing_model(const Worker& worker) const;
  std::string missing_all_models(const Worker& worker) const;
  void verify(std::string_view pool, int64_t now_ns);
  std::map<std::string_view, const Worker*> first_of_starts(int64_t now_ns) const;
  static std::string fingerprint_of(const PoolConfig& pool, const Worker& worker);
  static bool holds_fingerprint(const Worker& worker, int64_t now_ns);
  void choose_fingerprint(const PoolConfig& pool, std::string& held, int64_t now_ns);
  static bool knows_names(const Worker& worker) {
    return worker.names_agree && worker.name_trust.believed();
  }
  void test_names(Worker& worker, const Place& place, int64_t now_ns);
  void end_name_test(Worker& worker, const Place& place, int64_t now_ns);
  void run_test(const Worker& worker, std::span<const TokenId> prompt,
                std::function<void(std::optional<int64_t> found)> done);
  Result<void> note_blocks(size_t index, const Worker& worker, std::string_view payload);
  bool is_odd_one_out(const Worker& worker, int64_t now_ns) const;
  static bool is_tried_in_panic(const Worker& worker, const Wanted& wanted, int64_t now_ns);
  // Most of the pool takes no requests: then those that were ejected for their failures do (panic).
  bool panics(std::string_view pool, int64_t now_ns) const;
  bool is_half_ejected(std::string_view pool) const;
  void count_ejections(Worker& worker);
  void eject_slow(std::string_view pool, int64_t now_ns);
  void forget_counted(Worker& worker, int64_t now_ns);
  // Where it goes, of these (fleet_split.cc, as the next): takes those out that are not for it.
  struct Choice {
    std::optional<size_t> worker;
    std::optional<SplitPair> pair;
    bool splits = false;
  };
  Choice choose(const Wanted& wanted, const CostRequest& request, std::vector<CostCandidate>& all,
                std::vector<CostTerms>* explained) const;
  bool keep_to_contexts(const Wanted& wanted, std::vector<CostCandidate>& all) const;
  void keep_to_roles(const Wanted& wanted, std::vector<CostCandidate>& all) const;
  bool may_decide_late(std::string_view pool) const;
  SplitRequest split_request(const Wanted& wanted, const CostRequest& request,
                             std::optional<size_t> decode) const;
  std::optional<SplitPair> best_pair(const Wanted& wanted, const CostRequest& request,
                                     const std::vector<CostCandidate>& all) const;
  static bool may_take_over(const Worker& worker, const Wanted& wanted);
  std::vector<uint32_t> exchanges(const Wanted& wanted) const;
  const PoolConfig* find_pool(std::string_view name) const;
  bool splits(std::string_view pool) const;
  CostRequest cost_request(const Wanted& wanted) const;
  void take_role(Worker& worker);
  // Why its role leaves it without requests; empty: it does not.
  std::string role_trouble(const Worker& worker, int64_t now_ns) const;
  // By places; of those that are free, unusable ones.
  std::vector<CostCandidate> candidates(const Wanted& wanted, int64_t now_ns);
  // Who has so much more of the prompt than the worker at `chosen` that it may be fetched.
  void price_fetches_of(const Wanted& wanted, int64_t now_ns, std::vector<CostCandidate>& all);
  std::optional<double> fetch_token_s(const FetchPaces& paces, size_t from, size_t to,
                                      int64_t now_ns) const;
  std::vector<double> fetch_times(const Wanted& wanted, std::span<const int64_t> hits,
                                  size_t chosen, int64_t now_ns) const;
  cluster::RunEnvelope::Peer peer_for(const Wanted& wanted, size_t chosen,
                                      const std::vector<CostCandidate>& all, int64_t now_ns,
                                      uint64_t& serial) const;
  // Each of them the median of what the pool's workers say.
  cluster::StepCosts middle_costs(std::string_view pool) const;
  CostRequest cost_request(std::string_view pool, int64_t prompt_tokens) const;
  // As it says itself: one that was put into a pool by mistake gets none of its requests.
  struct TypicalBias {
    double first = 1;
    double rest = 1;
  };
  TypicalBias typical_bias(std::string_view pool) const;
  void note_ratio(PredictionBias& bias, double& typical, double measured_s,
                  double predicted_s) const;
  static bool has_model(const Worker& worker, std::string_view model);
  static bool is_resident(const Worker& worker, std::string_view adapter);
  static void price_adapter(const Worker& worker, std::string_view adapter, CostCandidate& one);
  static bool serves(const Worker& worker, std::string_view pool, std::string_view model,
                     int64_t now_ns);
  net::HttpCall call_to(const Worker& worker, std::string method, std::string target) const;

  const Options options_;
  const AwakeClock clock_;
  base::Log& log_;
  const std::optional<kv::BlockHasher> hasher_;
  mutable std::mutex mutex_;
  // Guarded by mutex_, as the next. A worker keeps its place; null: it is free.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<PoolConfig> pools_;
  ZoneConfig zones_;
  KvEvents kv_events_;
  BlockView blocks_;                                    // workers are their places
  std::map<std::string, double, std::less<>> outputs_;  // tokens of an answer lately, by pool
  std::map<std::string, TypicalBias, std::less<>> typical_biases_;  // by pool
  std::map<std::string, FetchPaces, std::less<>> fetch_paces_;      // by serials; likewise
  std::map<std::string, std::string, std::less<>> fingerprints_;    // that pools' workers have
  int64_t names_doubted_ = 0;
  int64_t index_resyncs_ = 0;
  Ejections ejections_{};
  int turns_ = 0;
  uint64_t serials_ = 0;
  uint64_t subscriptions_ = 0;
  // Attempts so far, to whichever worker: one that leaves and comes back knows those that it had.
  int64_t dispatched_ = 0;
  // In this order: what they call back works with all above. By workers' serials; those that are
  // retired wait for turn().
  std::map<uint64_t, std::unique_ptr<cluster::VllmSubscriber>> subscribers_;
  std::vector<std::unique_ptr<cluster::VllmSubscriber>> retired_;
  net::HttpClient client_;
  base::PeriodicThread ticker_;
};

}  // namespace pelton::gateway
