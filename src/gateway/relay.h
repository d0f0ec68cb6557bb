// One client request on its way through the gateway: sent to a worker, its answer relayed as it
// comes, and, when that worker fails, sent to another one with the tokens already said, so that the
// client sees one answer. On its exchange's net thread; the HTTP client's threads only post to it.
// The exchange holds it until the answer is complete or the client gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "access/access_control.h"
#include "access/api_keys.h"
#include "access/audit_log.h"
#include "api/error.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/answer_reader.h"
#include "gateway/arm_figures.h"
#include "gateway/fleet.h"
#include "gateway/foreign_answer.h"
#include "gateway/foreign_pair.h"
#include "gateway/foreign_stream.h"
#include "gateway/gateway_figures.h"
#include "gateway/id_homes.h"
#include "gateway/live_uplink.h"
#include "gateway/media_answer.h"
#include "gateway/media_request.h"
#include "gateway/pool_gate.h"
#include "gateway/quarantine.h"
#include "gateway/relay_counters.h"
#include "gateway/request_log.h"
#include "gateway/retry_budget.h"
#include "gateway/rollouts.h"
#include "gateway/said_tokens.h"
#include "gateway/stream_ticket.h"
#include "net/http_client.h"
#include "net/http_server.h"

namespace pelton::gateway {

class Relay final : public WorkerListener,
                    public HeldRequest,
                    public std::enable_shared_from_this<Relay> {
 public:
  struct Services {  // outlive it
    Fleet& fleet;
    net::HttpClient& client;
    const base::Clock& clock;
    base::Log& log;
    RelayCounters& counters;
    Quarantine& quarantine;
    RetryBudget& retry_budget;
    IdHomes& homes;    // of what is stored
    IdHomes& running;  // of conversations' answers under way
    const std::string& gateway;
    int retries_max;
    int64_t resume_budget_ns;
    RequestLog* requests = nullptr;     // null: there is none
    access::AuditLog* audit = nullptr;  // likewise
    // The gateway is about to end: what is under way ends with an error that says so.
    const std::atomic<bool>* ends = nullptr;  // null: nobody waits for it
  };
  struct Request {
    net::HttpRequest http;
    std::string pool;
    std::string model;   // empty: none is named
    std::string region;  // that it stays in; empty: any
    // It has come from another region's gateway, and goes to none.
    bool stays_here = false;
    RoutedPrompt prompt;
    std::string request_id;
    access::Principal principal;
    uint64_t seed = 0;
    int64_t created_ms = 0;
    int64_t received_ns = 0;  // 0: it is not known
    std::optional<int64_t> deadline_ns;
    // Of a pool whose replicas come and go, or take so many at once; null: it waits nowhere.
    std::shared_ptr<PoolGate> gate;
    // What its client may get while it is held.
    enum class KeepAlive {
      kNone,
      kComments,    // of a stream of events, before its first one
      kLineBlanks,  // of a stream of lines of JSON, before the first one's object
      kBlanks,      // before a whole answer of JSON
      kMetadata,    // a gRPC call's initial ones, once
      kPings,       // of a WebSocket
    };
    KeepAlive keep_alive = KeepAlive::kNone;
    // What it takes of its key's limits; null: its key has none, or it takes nothing.
    std::unique_ptr<access::AdmissionTicket> ticket = {};
    net::HttpHeaders limits = {};  // what is left of them, for the answer
    // Its model is an adapter's name, which a worker may have unloaded meanwhile.
    bool names_adapter = false;
    // It speaks of what one worker has, by its id: where that may be.
    bool speaks_of_id = false;
    std::optional<Fleet::Wanted::Preferred> home = {};
    std::vector<std::string> other_pools = {};
    std::vector<std::string> fallback = {};  // pools that are asked where its own takes no more
    bool is_copy =
        false;  // of a client's, whose answer nobody gets: one attempt, behind all others
    std::shared_ptr<ArmFigures> arm = {};         // of the route that has it; null: none does
    std::unique_ptr<RolloutTicket> rollout = {};  // of that route; null: none counts it
    std::shared_ptr<PoolServed> served = {};      // of its pool; null: it is not counted there
    // Of a pool that makes images or videos, for one or about one.
    struct Media {
      MediaKind kind = MediaKind::kImage;
      std::optional<MediaWork> work;  // none: it begins none
      int64_t result_bytes_max = 0;
      std::chrono::milliseconds time_max{};  // for its answer
    };
    std::optional<Media> media = {};
    // Of a stream that its client may go on with at another gateway (stream_ticket.h).
    struct Resume {
      std::string asked;                // as its client says it, for another region's gateway
      std::string ticket;               // for its client
      std::optional<StreamPlace> from;  // where its client is already; none: it is new
    };
    std::optional<Resume> resume = {};
    // Of a live session (live_socket.h): it stays with the worker that has begun it.
    std::shared_ptr<LiveUplink> uplink = {};
  };

  static void start(Request request, std::shared_ptr<net::Exchange> exchange,
                    const Services& services);

  void on_worker_lost(int attempt) override;
  void on_worker_leaving(int attempt) override;
  void on_released() override;
  void on_start_failed() override;

 private:
  struct Key {};  // only start() makes one

 public:
  Relay(Key, Request request, std::shared_ptr<net::Exchange> exchange, const Services& services);

 private:
  // Why an attempt is over before its answer is.
  enum class Failure {
    kUnreached,   // no connection
    kLost,        // reset
    kUnreadable,  // broken framing, half a JSON text: it lives, and answers wrongly
    kSilent,      // its connection stands still while its watch does not
    kDown,        // the fleet says so: all its requests are lost at once, through one fault
    kBusy,        // the worker said no for now: full, draining
    kLeaving,  // it is being stopped, of a pool whose replicas come and go; its watch says so soon
    kAnother,  // another start of the worker answers; its own watch will say so at once
    kRefused,  // it said no
    kError,    // it says that it cannot go on
    kUnknown,  // it has not what is spoken of by its id, or lacks the adapter
  };

  void attempt();
  std::optional<Fleet::Assignment> assign();
  void send_to(Fleet::Assignment assignment);
  void start_call();
  // Of two servers of another kind (relay_pair.cc); true: it is called later, or not at all.
  bool begin_pair();
  void ask_prefill(std::string body);
  uint64_t drawn() const;
  bool assign_prefill();  // false: there is none
  void lose_prefill(int number);
  void on_prefilled(int number, const net::HttpResponse& answer);
  void go_on_vllm(const net::HttpResponse& answer);
  void go_on_sglang(const net::HttpResponse& answer, bool goes_on);
  net::HttpResponse as_answer(const net::HttpResponse& answer);
  void note_refusal(const net::HttpResponse& answer);
  void send_prefills(const net::HttpResponse& answer);
  // The worker is being stopped and still talks: on with it at another one, where there is one
  // (relay_move.cc). That one computes what has been said while this one goes on; then it is cut.
  void leave_worker();
  void start_warm_up(Fleet::Assignment target);
  void on_warm_up_bytes(int number, const std::string& bytes);
  void note_warm(const AnswerUpdate& update);
  bool is_warm() const;
  void fail_warm_up(int number, Fleet::Outcome outcome);
  // Another one is to go on, now that its prompt is computed (relay_split.cc).
  void consider_split();
  // And has what was computed of it already.
  void fetch_ahead();
  void end_ahead(int number);
  void drop_ahead();
  std::optional<Fleet::Wanted::Preferred> split_source() const;
  void retry_split();
  void end_split(SplitCounters::Outcome outcome);
  void note_split_warm();
  int64_t note_split_found(int64_t tokens);
  void drop_warm_up(Fleet::Outcome outcome);
  void hand_over(Fleet::Assignment next, GatewayFigures::Move kind);
  // Does the attempt that runs, and the worker that warms up, still say something?
  // (relay_watch.cc)
  void watch_attempt();
  int64_t silent_from_ns() const;  // for a request that is being sent now
  void look_at_attempt(int number);
  void interrupt();
  void wait_for_worker();
  bool follow_worker();
  bool fall_back();
  // While no replica takes it (relay_hold.cc).
  void begin();
  PoolGate* gate() const { return left_gate_ ? nullptr : request_.gate.get(); }  // null: none
  PoolGate::Takes takes() const;
  bool must_hold(const PoolSupply& supply) const;
  bool waits_for_slot() const;
  int64_t slot_budget_ns() const;
  void hold();
  bool end_stalled_hold(const PoolSupply& supply, int64_t now_ns);  // true: it is held no more
  void leave_hold();
  void watch_hold();
  void keep_alive(int64_t now_ns);
  // The client has blanks: what comes is its whole answer's body, whatever it is.
  bool has_blanks() const { return early_ && request_.keep_alive == Request::KeepAlive::kBlanks; }
  void go_on_released();
  void refuse(const PoolGate::Refusal& refusal);
  void move_to(PoolGate::Place place);
  net::HttpHeaders head_headers() const;
  // `further_max`: tokens that are wanted of it; 0: all.
  std::string run_body(const Fleet::Assignment& assignment, int further_max) const;
  net::HttpCall call_to(const Fleet::Assignment& assignment, int further_max = 0) const;
  net::HttpCall foreign_call_to(const Fleet::Assignment& assignment) const;
  void on_foreign_head(int attempt, int status, const net::HttpHeaders& headers);
  void on_foreign_bytes(const std::string& bytes);
  void on_foreign_end();
  void begin_foreign();
  // Amid its answer; true: another one goes on, or all had been said.
  bool go_on_foreign();
  // Of images and videos (relay_media.cc).
  const MediaWork* media_work() const {  // null: it begins none
    return request_.media && request_.media->work ? &*request_.media->work : nullptr;
  }
  void bound_media_call(net::HttpCall& call) const;
  bool passes_media(int status, const net::HttpHeaders& headers) const;
  void begin_media(const net::HttpHeaders& headers);
  void on_media_bytes(const std::string& bytes);
  void on_media_end();
  bool note_video(const net::HttpResponse& answer);  // false: the attempt is over
  void note_made();
  void end_late();
  // A job may have begun where it was sent, whatever was heard of it.
  bool may_have_begun_video(Failure failure) const;
  void pause_if_behind();
  // The whole answer, or why another worker is asked instead.
  void send_whole(net::HttpResponse answer);
  void send_answer(net::HttpResponse answer);
  void on_bytes(int attempt, const std::string& bytes);
  struct CallEnd {
    int status = 0;           // 0: there was no head
    bool sent_again = false;  // a kept connection broke with it
  };
  void on_done(int attempt, const CallEnd& end, const Result<void>& result);
  // False: the attempt is over.
  bool apply(AnswerUpdate update);
  Result<void> keep(AnswerUpdate& update);
  bool relay(AnswerUpdate& update);
  // A stream that is resumed from another gateway (relay_resume.cc).
  bool replays() const { return request_.resume && request_.resume->from && !replayed_; }
  bool replay(bool is_last);  // false: the attempt is over
  StreamPlace place() const;
  void write_events(std::string events);
  // Of what one worker has, by its id (relay_home.cc).
  bool is_unknown_here(const net::HttpResponse& answer) const;
  bool is_kept_elsewhere() const;
  bool refuse_away();  // false: it was not refused
  void note_response(std::string_view bytes);
  void note_stored(const net::HttpResponse& answer);
  void note_home(const std::string& id);
  void note_progress();
  void note_served();
  // Of its figures (relay_figures.cc).
  void begin_wait();
  void end_wait();
  void note_sent();
  void begin_move(GatewayFigures::Move kind);
  void end_move(GatewayFigures::MoveEnd end);
  void note_said(int64_t now_ns);
  void note_over(ArmFigures::Outcome outcome, int status);  // 0: its client has heard none
  void change_pool(std::string pool);
  // No worker has taken it where it must stay.
  void note_refused_region(std::string_view result) const;
  void note_rollout(ArmFigures::Outcome outcome, int status, int64_t tokens);
  void record_request(ArmFigures::Outcome outcome, int status, int64_t tokens);
  void note_pool_served(ArmFigures::Outcome outcome, int64_t tokens);
  static GatewayFigures::Retry retry_of(Failure failure);
  void note_end(const std::string& choice_end, const SaidTokens& said);
  void note_fetched();
  void note_harmless();       // the worker has begun it and lives
  void place_uplink();        // of a live session
  bool begun() const;         // something of the answer has been said
  bool is_sound() const;      // its bytes are sound, no events
  size_t said_count() const;  // tokens of it, of all choices
  // The next attempt after one that failed so, or the end.
  void go_on(Failure failure);
  // It is over: what it took of its key's limits.
  void settle(Fleet::Outcome outcome);
  void send_refusal();
  void finish();
  void close(Fleet::Outcome outcome);
  void end_attempt(Failure failure, const std::string& why);
  void give_up(int status, std::string_view code, std::string_view message);
  void give_up(api::ApiError error);
  bool note_lost();
  void give_up_quarantined();
  void client_left();
  void end_copy();
  void drained();

  const Services services_;
  Request request_;
  const bool runs_tools_;  // its worker may: once it has begun nobody else goes on with it
  const std::shared_ptr<net::Exchange> exchange_;
  const int64_t started_ns_;

  int attempt_ = 0;               // the number of the one that is running, or comes next
  bool running_ = false;          // an attempt is
  int failures_ = 0;              // attempts that came to nothing since the last progress
  bool crashed_ = false;          // a worker was lost that may have been this request's doing
  bool waits_for_trial_ = false;  // of another such request, at workers that would be free
  bool is_trial_ = false;         // gateway/quarantine.h: the running attempt is one
  std::optional<Quarantine::InFlight> in_flight_;  // until its attempt is known to be harmless
  std::vector<size_t> tried_;                      // since the last progress
  std::set<size_t> lacks_adapter_;                 // they said, of an answer that had begun
  std::set<size_t> lacks_id_;                      // they have nothing of that id, they said
  bool is_away_ = false;  // of a pool asked before, a worker that may have it was not heard
  std::vector<std::string> lost_at_;  // starts of workers that have lost it
  // For the next attempt: a worker that has computed it already, or has what it asks for.
  std::optional<Fleet::Wanted::Preferred> preferred_;
  Fleet::Assignment assignment_;
  net::HttpClient::CallId call_ = 0;
  // Whatever a worker claims, of a prompt or an answer: as long as today's longest contexts. One
  // wrong count must not take a key's tokens for days.
  static constexpr int64_t kClaimedTokensMax = int64_t{1} << 20;
  int64_t prompt_tokens_ = 0;  // of the longest one, as workers say
  int64_t cached_tokens_ = 0;  // of the last one that has ended
  int64_t ended_tokens_ = 0;   // of choices that have ended, as their worker counts
  bool progressed_ = false;    // the running attempt has said something new
  size_t attempt_said_ = 0;    // tokens of it
  bool paused_ = false;
  bool heard_ = false;    // from the running attempt, since it was looked at
  int64_t heard_ns_ = 0;  // when that was, of Fleet::awake_ns(); within kLookTime
  int64_t attempted_ns_ = 0;
  int64_t first_attempted_ns_ = 0;  // of the attempt that said the first token
  int64_t first_ns_ = 0;            // when the running attempt said something first
  int64_t answer_ns_ = 0;           // when the first one did; 0: nothing has been said
  bool was_paused_ = false;
  bool has_waited_ = false;
  int64_t waiting_since_ns_ = 0;                // 0: it does not wait
  int64_t said_ns_ = 0;                         // when it last said something
  std::optional<GatewayFigures::Move> moving_;  // and has said nothing since
  int64_t stalled_ns_ = 0;  // since when no worker has it, for the resume budget
  AnswerReader reader_;
  std::optional<ForeignAnswer> foreign_;  // instead, of a worker that is no Pelton
  std::optional<ForeignStream> stream_;   // of one whose answer another one may go on with
  int64_t foreign_said_ = 0;              // tokens, or events
  std::optional<MediaAnswer> media_;      // instead of either, of a picture or a video's bytes

  std::optional<cluster::AnswerHead> head_;
  std::string prompts_;           // kPrompt frames, the first that came
  std::string adapter_;           // the digest of what it is computed with; empty: of no adapter
  std::vector<SaidTokens> said_;  // by choice
  bool streaming_ = false;        // the client has the head
  bool replayed_ = false;         // what the client had of it has been said again
  std::string whole_;             // of an answer that is not streamed
  std::string error_event_;       // the last worker's error as the client's protocol writes it
  std::optional<net::HttpResponse> refusal_;  // the last worker's
  int64_t events_ = 0;                        // of the Responses API's: the next one's number
  std::string response_id_;  // of the response that is being made; empty: none is, or not yet
  bool over_ = false;
  bool arm_failed_ = false;  // an attempt at its arm's pool did, or none could be made there
  bool left_arm_ = false;    // another pool answers in its stead

  // The worker that computes what has been said, so that the answer may go on there.
  struct WarmUp {
    int number = 0;  // below 0, as none of an attempt is
    Fleet::Assignment target;
    net::HttpClient::CallId call = 0;
    AnswerReader reader;
    std::vector<bool> warm;  // by choice: it has gone on from there
    size_t said = 0;         // tokens that it was sent
    bool is_split = false;
    int64_t begun_ns = 0;
    bool heard = false;  // as the attempt's
    int64_t heard_ns = 0;
    int64_t found_tokens = 0;  // by it, of the prompt, where it was split
  };
  std::optional<WarmUp> warm_up_;
  int warmed_attempt_ = -1;       // its worker has been warmed up for it
  int warm_ups_ = 0;              // begun
  int warm_ups_failed_ = 0;       // since the last attempt
  int64_t warm_up_again_ns_ = 0;  // none before
  // The worker that fetches the prompt's keys and values while they are computed; of another kind,
  // the one that computes it.
  struct Ahead {
    int number = 0;
    Fleet::Assignment target;
    net::HttpClient::CallId call = 0;
    bool is_over = false;  // what it could fetch it has
  };
  std::optional<Ahead> ahead_;
  // By which the fleet speaks of it: above those of attempts.
  static constexpr int kAheadNumbers = 1 << 30;
  int aheads_ = 0;                      // begun
  std::vector<size_t> prefills_tried_;  // of another kind
  int watched_ = -1;                    // the attempt that is looked after
  std::string pair_fields_;  // the body that names what another server has; empty: none has it
  bool has_paired_ = false;
  bool splits_ = false;                      // another one is to go on with it
  bool decides_late_ = false;                // whether it is: with its first token
  std::optional<int64_t> split_source_hit_;  // of the prompt, what the first one was to find
  bool counts_found_ = false;  // the end of what runs says what the second one has found
  std::vector<size_t> split_tried_;

  PoolGate::Place place_ = PoolGate::Place::kNone;
  bool left_gate_ = false;       // another pool is asked, which has none for it
  std::optional<int64_t> held_;  // its number at the gate, while it is held
  int64_t held_since_ns_ = 0;
  int64_t held_ns_ = 0;        // before that
  int64_t keep_alive_ns_ = 0;  // when the next comment or blank is due
  // The client has the head, comments or blanks, and nothing of the answer.
  bool early_ = false;
};

}  // namespace pelton::gateway
