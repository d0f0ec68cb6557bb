// The simulated fleet: its events, in the order of time, and what they do (simulation.h says what
// it is). Of one simulation; one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "cluster/worker_health.h"
#include "cost_model/step_time.h"
#include "simulator/network.h"
#include "simulator/shared_links.h"
#include "simulator/simulation.h"
#include "workload/draws.h"

namespace pelton::simulator {

inline int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(std::llround(seconds * 1e9));
}

inline constexpr uint64_t kRouterStream = 0x726F75746572;
inline constexpr uint64_t kReportStream = 0x7265706F7274;

int replicas_max(const SimulationOptions& options);
// A turn's tokens behind those of the turns before it.
std::vector<TokenId> prompt_of(const workload::Turn& turn, std::vector<TokenId> history,
                               int vocab_size);

struct Event {
  enum class Kind {
    kFaultBegins,
    kFaultEnds,
    kDue,
    kArrives,
    kWakes,
    kScales,
    kFactsSent,    // that the autoscaler hears with its next decision
    kDemandHeard,  // of a fleet of which nobody serves
    kReplicaReady,
    kPatienceEnds,
    kHoldEnds,
    kLinkEnds,   // of some transfer, if `version` is the links'
    kDelivered,  // the part of a fetch that is on its way
    // Of the network between gateways and replicas, `index` a leg:
    kAsked,        // it has reached its replica
    kAnswered,     // the next thing that its replica says reaches its gateway
    kCancelled,    // that nobody wants it any more has reached its replica
    kSentBack,     // its gateway hears that the replica which was meant is gone
    kStandsStill,  // what its replica said has not come for too long
    kBroken,       // `index` a connection: its replica has died, of all legs below `version`
    kLooks,        // gateways look at replicas, and these report
  };

  int64_t at_ns = 0;
  int64_t order = 0;  // of two at the same time, the one that was made first
  Kind kind = Kind::kDue;
  int64_t index = 0;
  // kWakes: of the replica when it was made; kHoldEnds: the client's attempt.
  int64_t version = 0;

  friend bool operator>(const Event& a, const Event& b) {
    return std::pair(a.at_ns, a.order) > std::pair(b.at_ns, b.order);
  }
};

// What a client knows of one request.
struct Request {
  size_t conversation = 0;
  size_t turn = 0;
  int64_t seed = 0;
  int64_t first_ns = -1;
  int64_t sent_ns = -1;  // to its replica
  int replica = -1;
  int64_t leg = -1;         // that its client hears
  size_t gateway = 0;       // that sent it there
  double predicted_s = 0;   // until its first token; 0: nobody did
  int retries = 0;          // by the gateway, of this attempt
  int attempts = 0;         // by the client, beyond the first
  bool is_counted = false;  // as come and not finished, where a fleet is scaled
  bool is_held = false;
  bool is_returned = false;  // its replica has died: the gateway has it again
  bool done = false;
  int free_retries = 0;         // of `retries`, those that are not counted against it
  int64_t waits_since_ns = -1;  // for a replica that can be reached; -1: it does not
  // Where it is split, until it is handed over.
  bool splits = false;
  bool decides_late = false;     // whether it does: with the first token
  double step_s = 0;             // of a further token, as its gateway predicted
  int64_t hit_tokens = 0;        // of its prompt, at who goes on, likewise
  int64_t ahead_hit_tokens = 0;  // likewise, before it fetched
  int64_t ahead = -1;            // the leg that fetches while its prompt is computed
  int64_t warm_up = -1;          // the leg that computes what was said
  int64_t warm_up_ns = 0;        // since when
  int decoders_tried = 0;
  int64_t source_hit_tokens = -1;  // of its prompt, at who computed it; -1: it was not split
  int64_t cut_ns = -1;             // it was handed over and has said nothing since
  std::vector<TokenId> prompt;     // whole, until it is done: a retry sends it again
  std::vector<TokenId> answer;     // kept where another turn follows
};

// What a replica was asked for a request's sake.
struct Leg {
  enum class Kind {
    kWhole,   // its answer, or the rest of it
    kAhead,   // to fetch its prompt's keys and values
    kWarmUp,  // to compute what was said, for a token that nobody hears
  };
  int64_t request = 0;
  int replica = -1;
  Kind kind = Kind::kWhole;
  bool is_over = false;
};

// What of a leg is on its way between its gateway and its replica.
struct Flight {
  size_t gateway = 0;
  int64_t start = 0;  // of the replica, that is meant
  std::optional<request::GenerationRequest> asked = {};
  std::deque<Replica::Update> answers = {};
  int64_t comes_ns = 0;      // the last of them
  bool is_broken = false;    // nothing further comes
  std::string refusal = {};  // why its replica did not take it, which it then says
};

// What a gateway has heard of a replica, and what is on its way.
struct Watch {
  struct Report {
    int64_t comes_ns = 0;
    int64_t start = 0;
    cluster::WorkerLoad load;
    ReplicaState state;
    std::vector<kv::Event> events;
    bool is_doubled = false;
  };
  cluster::WorkerHealth health{cluster::WorkerHealth::Options{}};
  int64_t start = -1;           // of the replica, that it is in touch with
  bool has_begun_anew = false;  // what it was asked before is lost
  int64_t down_ns = -1;         // since when it is down; -1: it is not
  int64_t reopened_ns = 0;
  std::deque<Report> reports;
  int64_t comes_ns = 0;  // the last of them
};

// What one replica fetches from another.
struct Fetch {
  kv::PeerFetch asked;
  size_t from = 0;
  size_t to = 0;
  int64_t begun_ns = 0;  // the part that is on its way
  int64_t moving_ns = 0;
  std::deque<std::vector<kv::PeerOffer::Block>> parts;   // offered; the first one moves
  std::deque<std::vector<kv::PeerOffer::Block>> flying;  // that have left, and are not there yet
  int64_t transfer = -1;                                 // of the first one; -1: none moves
  bool is_offered = false;                               // all that will be
  int prefix_blocks = 0;                                 // that this makes whole
  std::vector<kv::PeerFetched::Block> arrived;
  kv::PerGroup<size_t> rooms_taken;
  int64_t bytes = 0;
};

class Fleet {
 public:
  // All outlive it.
  Fleet(const SimulationOptions& options, const workload::Workload& workload,
        const cost_model::StepTimeModel& times);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  SimulationResult run();

 private:
  std::unique_ptr<Replica> make_replica(size_t index) const;
  void add(Event event) {
    event.order = orders_++;
    events_.push(event);
  }
  // One that is of no interest when all is answered.
  void add_idle(Event event) {
    add(event);
    ++idle_events_;
  }
  void add_turn(size_t conversation, size_t turn, int64_t due_ns);
  void handle(const Event& event);
  void handle_network(const Event& event);
  void send_due(int64_t now_ns);
  void send(int64_t now_ns, int64_t request);
  void arrive(int64_t now_ns, int64_t request);
  void dispatch(int64_t now_ns, int64_t request, std::span<const ReplicaState> states);
  void fail(int64_t now_ns, int64_t request, const std::string& why);
  // Of clients that have patience, and try again.
  void await_first_token(int64_t now_ns, int64_t request);
  void hold(int64_t now_ns, int64_t request);
  void leave(int64_t now_ns, int64_t request);
  void end_hold(int64_t now_ns, int64_t request, int64_t attempt);
  void refuse(int64_t now_ns, int64_t request, const std::string& why);
  bool tries_again(int64_t now_ns, int64_t request);
  void note_finished(int64_t now_ns, Request& request);
  void note_served(const report::RequestRecord& record, const Request& request);
  void finish(int64_t now_ns, int64_t request);
  void wake(int64_t now_ns, size_t replica);
  void take(const Replica::Update& update);
  void take_whole(int64_t number, const Replica::Update& update);
  // Of requests that are split (fleet_split.cc).
  std::span<const ReplicaState> seen_states(int64_t now_ns, size_t gateway);
  Dispatcher::Asked asked_of(int64_t now_ns, const Request& request);
  int64_t submit(int64_t now_ns, int64_t request, int replica, Leg::Kind kind);
  void cancel(int64_t now_ns, int64_t leg);
  void fetch_ahead(int64_t now_ns, int64_t request, int decoder);
  void consider_split(int64_t now_ns, int64_t request);
  void hand_over(int64_t now_ns, int64_t request, int preferred);
  static void end_split(Request& request, int64_t& outcome);
  void end_warm_up(int64_t now_ns, const Leg& leg, const Replica::Update& update);
  void drop_beside(int64_t now_ns, int64_t request);
  void lose_legs(int64_t now_ns, size_t replica);
  // Of the network (fleet_network.cc).
  enum class Charge { kNone, kOne };  // of what a request may be sent again
  void begin_network();
  void connect(int64_t now_ns, size_t gateway, size_t replica, int64_t start);
  void send_over(int64_t now_ns, int64_t leg, request::GenerationRequest asked);
  void watch_silence(int64_t now_ns, int64_t leg, std::optional<int64_t> comes_ns);
  void reach(int64_t now_ns, int64_t leg);
  void say(const Replica::Update& update);
  void hear(int64_t now_ns, int64_t leg);
  void refused(int64_t now_ns, int64_t leg, const std::string& why);
  void cancel_over(int64_t now_ns, int64_t leg);
  void send_back(int64_t now_ns, int64_t leg);
  void stand_still(int64_t now_ns, int64_t leg);
  void break_connections(int64_t now_ns, size_t replica);
  void break_off(int64_t now_ns, int64_t connection, int64_t legs);
  void lose_at(int64_t now_ns, size_t gateway, size_t replica, int64_t legs, Charge charge);
  void lose_older(int64_t now_ns, size_t gateway, size_t replica, int64_t start);
  void lose_leg(int64_t now_ns, int64_t leg, Charge charge);
  void lose_request(int64_t now_ns, int64_t number, const std::string& why);
  void look(int64_t now_ns);
  void look_at(int64_t now_ns, size_t gateway, size_t replica);
  void send_reports(int64_t now_ns, size_t replica);
  void take_reports(int64_t now_ns, size_t gateway, size_t replica);
  void wait_for_replica(int64_t now_ns, int64_t request);
  void send_waiting(int64_t now_ns);
  bool is_reached(int64_t now_ns, size_t gateway, size_t replica) const;
  bool is_alive(size_t replica) const {
    return states_[replica].is_up || (control_ && control_->drains(static_cast<int>(replica)));
  }
  Watch& watch(size_t gateway, size_t replica) {
    return watches_[gateway * states_.size() + replica];
  }
  // Of what replicas fetch from each other (fleet_transfers.cc).
  void exchange(int64_t now_ns, size_t replica);
  void begin_fetch(int64_t now_ns, size_t replica, kv::PeerFetch asked);
  void take_offer(int64_t now_ns, size_t replica, kv::PeerOffer offer);
  void move_next(int64_t now_ns, int64_t fetch);
  void deliver(int64_t now_ns, int64_t fetch);
  void end_fetch(int64_t now_ns, int64_t fetch, kv::PeerFetched::Outcome outcome);
  void lose_transfers(int64_t now_ns, size_t replica);
  void watch_links();
  void end_moves(int64_t now_ns);
  int64_t bytes_whole(const Fetch& fetch) const;
  bool splits() const { return options_.split.mode != gateway::SplitConfig::Mode::kOff; }
  void check_token(size_t request, TokenId token) const;
  void check_ledgers();
  void schedule(size_t replica);
  bool looks_at_prefixes() const { return dispatchers_.front()->looks_at_prefixes(); }
  void report(int64_t now_ns);
  void note_events(size_t replica, const std::vector<kv::Event>& events);
  void note_lost(size_t replica);
  void note_zone(size_t gateway, size_t replica);
  void observe(size_t replica);
  size_t add_faults();
  void begin_fault(int64_t now_ns, const Fault& fault);
  void end_fault(const Fault& fault);
  void crash(int64_t now_ns, size_t replica);
  void lose_gateways(int64_t now_ns, const Fault& fault);
  void lose_gateway(int64_t now_ns, size_t gateway);
  std::optional<size_t> gateway_up(size_t from) const;
  void redispatch(int64_t now_ns, int64_t request);
  // Of a fleet that is scaled.
  void tick(int64_t now_ns);
  void scale(int64_t now_ns);
  void send_facts(int64_t now_ns);
  void wake_autoscaler(int64_t now_ns);
  void become_ready(int64_t now_ns, size_t replica);
  void follow_phase(size_t replica) {
    states_[replica].is_up = control_->takes_requests(static_cast<int>(replica));
  }
  void send_held(int64_t now_ns);
  void retire_if_empty(int64_t now_ns, size_t replica);
  bool only_scaling_left() const;
  double drawn(const std::vector<double>& residuals);
  int64_t adapter_of(size_t conversation) const;
  int output_of(const workload::Turn& turn) const {
    return turn.output_tokens > 0 ? turn.output_tokens : options_.output_tokens_otherwise;
  }

  const SimulationOptions& options_;
  const workload::Workload& workload_;
  const cost_model::StepTimeModel& times_;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;  // a gateway's each
  const int64_t report_ns_;  // from one report to the next; 0: replicas are seen as they are
  int64_t next_report_ns_ = 0;
  // A gateway's: replicas as of the last report that it has heard, and what their KV caches have
  // stored and removed since.
  struct Heard {
    std::vector<ReplicaState> states;
    std::vector<std::pair<size_t, std::vector<kv::Event>>> unreported;
  };
  std::vector<Heard> heard_;
  std::vector<int> gateways_down_;  // faults under way, of each
  std::vector<Leg> legs_;
  std::string why_not_;  // a replica did not take the last leg that it was asked
  std::optional<SharedLinks> links_;
  std::map<int64_t, Fetch> fetches_;
  std::map<int64_t, int64_t> moving_;  // by transfer, its fetch
  int64_t next_fetch_ = 0;
  int64_t links_version_ = 0;
  std::optional<Network> network_;
  std::vector<Watch> watches_;         // by gateway, of every replica
  std::vector<int64_t> starts_;        // of replicas: how often each has begun anew
  std::map<int64_t, Flight> flights_;  // by leg, of those that are not over
  std::vector<int> flying_to_;         // legs on their way, by replica
  std::deque<int64_t> waiting_;        // requests for which no replica can be reached
  std::vector<ReplicaState> reached_;
  std::optional<PoolControl> control_;
  std::deque<int64_t> held_;               // requests for which no replica has a free slot
  std::vector<ReplicaState> free_states_;  // of the replicas as send_held() sees them
  size_t idle_events_ = 0;                 // to come, of no interest when all is answered
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<ReplicaState> states_;
  std::vector<int64_t> versions_;
  std::vector<double> slowness_;
  std::vector<std::vector<TokenId>> histories_;  // of conversations, turns that are done
  const workload::SkewedChoice adapters_;
  std::vector<ReplicaCounts> counts_;  // of replicas that crashed
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::deque<int64_t> due_;  // waiting for the clients' concurrency
  std::vector<Request> requests_;
  std::vector<report::RequestRecord> records_;
  std::vector<Replica::Update> updates_;
  SimulationResult result_;
  cluster::StepCosts step_costs_;  // of each replica
  const int64_t out_ns_ = nanoseconds(options_.overhead.out_s);
  int64_t orders_ = 0;
  uint64_t routed_ = 0;     // drawn
  uint64_t listeners_ = 0;  // drawn
  uint64_t back_offs_ = 0;  // drawn
  uint64_t reports_ = 0;    // drawn
  int64_t last_ns_ = 0;
  int64_t listeners_free_ns_ = 0;  // when the next request can be read, by any of the replicas
  int open_ = 0;
};

}  // namespace pelton::simulator
