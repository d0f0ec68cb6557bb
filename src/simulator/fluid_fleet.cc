#include "simulator/fluid_fleet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "report/percentile.h"
#include "simulator/fleet.h"
#include "simulator/fleet_figures.h"
#include "simulator/fluid_cache.h"
#include "simulator/fluid_pool.h"
#include "simulator/replica_costs.h"

namespace pelton::simulator {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSpan_s = 0.1;  // rates are taken anew so often, also where nothing happens

class FluidFleet {
 public:
  FluidFleet(const SimulationOptions& options, const workload::Workload& workload,
             const cost_model::StepTimeModel& times);
  SimulationResult run();

 private:
  struct Asked {
    size_t conversation = 0;
    size_t turn = 0;
    bool done = false;
    double sent_s = -1;
    int retries = 0;
    std::vector<TokenId> prompt;
  };
  struct Due {
    double at_s = 0;
    int64_t request = 0;
    friend bool operator>(const Due& a, const Due& b) {
      return std::pair(a.at_s, a.request) > std::pair(b.at_s, b.request);
    }
  };
  struct FaultMoment {
    double at_s = 0;
    bool begins = false;
    size_t index = 0;
  };

  void add_turn(size_t conversation, size_t turn, double due_s);
  void send_due(double until_s);
  void send(int64_t request, double at_s);
  void refuse(int64_t request, double at_s);
  void take(const FluidOutcome& outcome);
  void fill_record(const FluidOutcome& outcome, report::RequestRecord& record) const;
  void follow(const Asked& asked, double at_s);
  void begin_faults();
  double next_s() const;
  SimulationResult result();

  const SimulationOptions& options_;
  const workload::Workload& workload_;
  FluidCache cache_;
  FluidPool pool_;
  std::vector<Asked> asked_;
  std::vector<report::RequestRecord> records_;
  std::vector<std::vector<TokenId>> histories_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<FaultMoment> faults_;
  size_t faults_past_ = 0;
  double horizon_s_ = 0;
  double listeners_free_s_ = 0;
  int64_t open_ = 0;
  int64_t left_ = 0;
  double last_s_ = 0;
};

FluidFleet::FluidFleet(const SimulationOptions& options, const workload::Workload& workload,
                       const cost_model::StepTimeModel& times)
    : options_(options),
      workload_(workload),
      cache_(options),
      pool_(options, times,
            options.autoscaling && options.autoscaling->service_s_assumed > 0
                ? options.autoscaling->service_s_assumed
                : service_s_assumed(workload::offered_load(workload),
                                    step_costs(times, options.replica.capacity)),
            model_of(step_costs(times, options.replica.capacity), options.replica.capacity),
            [this](const FluidOutcome& outcome) { take(outcome); }),
      histories_(workload.conversations.size()) {
  for (size_t i = 0; i < workload.conversations.size(); ++i) add_turn(i, 0, workload.at_s[i]);
  for (size_t i = 0; i < options.faults.size(); ++i) {
    faults_.push_back({options.faults[i].at_s, true, i});
    faults_.push_back({options.faults[i].until_s, false, i});
  }
  std::ranges::stable_sort(faults_, {}, &FaultMoment::at_s);
}

void FluidFleet::add_turn(size_t conversation, size_t turn, double due_s) {
  const auto request = static_cast<int64_t>(asked_.size());
  asked_.push_back({.conversation = conversation, .turn = turn, .prompt = {}});
  report::RequestRecord& record = records_.emplace_back();
  record.due_ns = nanoseconds(due_s);
  record.conversation = static_cast<int>(conversation);
  record.turn = static_cast<int>(turn);
  due_.push({due_s, request});
}

void FluidFleet::send_due(double until_s) {
  const int64_t most = options_.concurrency_max.value_or(INT32_MAX);
  while (!due_.empty() && due_.top().at_s <= until_s && open_ < most) {
    const Due one = due_.top();
    due_.pop();
    ++open_;
    send(one.request, std::max(one.at_s, pool_.now_s()));
  }
}

// As an engine does what it could never finish.
void FluidFleet::refuse(int64_t request, double at_s) {
  const auto index = static_cast<size_t>(request);
  asked_[index].done = true;
  asked_[index].prompt = {};
  records_[index].error = "prompt and answer are more than the context";
  records_[index].end_ns = nanoseconds(at_s);
  last_s_ = std::max(last_s_, at_s);
  --open_;
}

void FluidFleet::send(int64_t request, double at_s) {
  const auto index = static_cast<size_t>(request);
  Asked& asked = asked_[index];
  const workload::Turn& turn = workload_.conversations[asked.conversation].turns[asked.turn];
  asked.prompt =
      prompt_of(turn, histories_[asked.conversation], options_.replica.capacity.vocab_size);
  report::RequestRecord& record = records_[index];
  record.start_ns = nanoseconds(at_s);
  record.input_tokens = std::ssize(asked.prompt);
  record.tokens_told = true;
  const cost_model::RequestOverhead& overhead = options_.overhead;
  const auto tokens = static_cast<double>(asked.prompt.size());
  const int output = turn.output_tokens > 0 ? turn.output_tokens : options_.output_tokens_otherwise;
  // An encoder's vector takes none of its context.
  const int beside = options_.replica.capacity.whole_prompts ? 0 : output;
  if (tokens + beside > options_.replica.capacity.context_tokens_max) return refuse(request, at_s);
  const double way_s = overhead.in_s + overhead.in_token_s * tokens;
  const double read_s = std::max(at_s, listeners_free_s_);
  listeners_free_s_ = read_s + way_s / replicas_max(options_);
  const int replicas = std::max(pool_.serving(), 1);
  const double kept = static_cast<double>(options_.replica.capacity.kv_tokens()) * replicas;
  const double found = cache_.found(
      asked.prompt,
      {.replicas = replicas,
       .tokens = kept - pool_.context(),
       .is_same_replica = asked.turn > 0 && options_.dispatch == Dispatcher::Policy::kSession});
  cache_.note(asked.prompt);
  record.cached_tokens = std::llround(found);
  pool_.add({.came_s = read_s + way_s,
             .prompt = tokens,
             .computed = std::max(tokens - found, 1.0),
             .output = static_cast<double>(output),
             .request = request});
}

void FluidFleet::fill_record(const FluidOutcome& outcome, report::RequestRecord& record) const {
  const FluidParcel& parcel = outcome.parcel;
  const int64_t out_ns = nanoseconds(options_.overhead.out_s);
  const double first_s = parcel.begun_s >= 0 ? parcel.begun_s : parcel.first_s;
  record.ok = outcome.kind == FluidOutcome::Kind::kServed;
  record.error = outcome.why;
  record.output_tokens = std::llround(outcome.output);
  record.end_ns = nanoseconds(outcome.at_s);
  if (!record.ok) record.cached_tokens = 0;
  if (record.output_tokens < 1) return;
  record.end_ns += out_ns;
  record.first_byte_ns = record.first_text_ns = nanoseconds(first_s) + out_ns;
  record.end_ns = std::max(record.end_ns, record.first_byte_ns);
  record.pieces = {{.at_ns = record.first_byte_ns, .tokens = 1}};
  if (record.output_tokens < 2) return;
  record.pieces.push_back(
      {.at_ns = record.end_ns, .tokens = static_cast<int32_t>(record.output_tokens - 1)});
}

void FluidFleet::take(const FluidOutcome& outcome) {
  const auto index = static_cast<size_t>(outcome.parcel.request);
  Asked& asked = asked_[index];
  if (std::exchange(asked.done, true)) return;
  asked.sent_s = outcome.parcel.sent_s;
  asked.retries = outcome.parcel.retries;
  fill_record(outcome, records_[index]);
  if (outcome.kind == FluidOutcome::Kind::kLeft) ++left_;
  const double at_s = static_cast<double>(records_[index].end_ns) * 1e-9;
  last_s_ = std::max(last_s_, at_s);
  --open_;
  if (records_[index].ok) follow(asked, at_s);
  asked_[index].prompt = {};
  send_due(std::max(horizon_s_, pool_.now_s()));
}

// The conversation's next turn, with what was said.
void FluidFleet::follow(const Asked& asked, double at_s) {
  const size_t conversation = asked.conversation;
  const size_t next = asked.turn + 1;
  const auto& turns = workload_.conversations[conversation].turns;
  if (next >= turns.size()) return;
  std::vector<TokenId>& history = histories_[conversation];
  history = asked.prompt;
  const int said = turns[asked.turn].output_tokens > 0 ? turns[asked.turn].output_tokens
                                                       : options_.output_tokens_otherwise;
  const uint64_t seed = base::random_bits(options_.seed, conversation);
  for (int i = 0; i < said; ++i) {
    history.push_back(
        Replica::token_at(seed, history.size(), options_.replica.capacity.vocab_size));
  }
  cache_.note(history);
  add_turn(conversation, next, at_s + turns[next].think_s);
}

void FluidFleet::begin_faults() {
  for (; faults_past_ < faults_.size() && faults_[faults_past_].at_s <= pool_.now_s();
       ++faults_past_) {
    const FaultMoment& moment = faults_[faults_past_];
    const Fault& fault = options_.faults[moment.index];
    moment.begins ? pool_.begin_fault(fault) : pool_.end_fault(fault);
  }
}

// Up to when nothing but what the pool knows happens.
double FluidFleet::next_s() const {
  const double flow_s = pool_.next_flow_s();
  double next_s = flow_s <= pool_.now_s() ? pool_.now_s() + kSpan_s : flow_s;
  const bool may_send = open_ < options_.concurrency_max.value_or(INT32_MAX);
  if (!due_.empty() && may_send && pool_.is_empty()) {
    next_s = std::min(next_s, std::max(due_.top().at_s, pool_.now_s() + 1e-9));
  } else {
    next_s = std::min(next_s, pool_.now_s() + kSpan_s);
  }
  if (faults_past_ < faults_.size()) next_s = std::min(next_s, faults_[faults_past_].at_s);
  return next_s;
}

SimulationResult FluidFleet::run() {
  const double end_s = options_.duration_s.value_or(kNever);
  begin_faults();
  while (pool_.now_s() < end_s) {
    const bool is_over = due_.empty() && pool_.is_empty();
    if (is_over && !(options_.autoscaling && options_.duration_s)) break;
    horizon_s_ = std::min(is_over ? end_s : next_s(), end_s);
    if (faults_past_ < faults_.size()) {
      horizon_s_ = std::min(horizon_s_, std::max(faults_[faults_past_].at_s, pool_.now_s()));
    }
    send_due(horizon_s_);
    pool_.advance(horizon_s_);
    begin_faults();
  }
  return result();
}

SimulationResult FluidFleet::result() {
  SimulationResult result;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (asked_[i].done) {
      result.records.push_back(std::move(records_[i]));
      result.journeys.push_back({.sent_s = asked_[i].sent_s, .retries = asked_[i].retries});
    } else {
      ++result.unfinished;
    }
  }
  result.duration_s = options_.duration_s.value_or(last_s_);
  result.left = left_;
  result.redispatched = pool_.redispatched();
  result.moved = pool_.moved();
  result.replicas.push_back(pool_.counts());
  result.kv_overflow_share = pool_.overflow_share();
  if (pool_.is_scaled()) result.scaling = pool_.scaling();
  return result;
}

double share_of(double one, double other) {
  return one > 0 ? other / one - 1 : 0;
}

}  // namespace

std::optional<Error> fluid_refusal(const SimulationOptions& options) {
  const auto no = [](const char* flag, const std::string& what) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} is not modelled at the fluid fidelity: use --fidelity steps", what), flag};
  };
  if (options.adapters.count > 0) return no("adapters", "what adapters take (--adapters)");
  if (options.replica.capacity.draft_tokens_max > 0) {
    return no("speculative-tokens", "speculation (--speculative-tokens)");
  }
  const auto has_host = [](const kv::GroupCapacity& group) {
    return group.block_counts[kv::kHost] > 0;
  };
  if (std::ranges::any_of(options.replica.capacity.groups, has_host)) {
    return no("swap-space", "a tier of the KV cache behind the device (--swap-space)");
  }
  if (options.gateways > 1 || options.report_s > 0) {
    return no("gateways", "what gateways know of replicas (--gateways, --report-interval)");
  }
  if (options.has_network()) {
    return no("network-latency",
              "the network between gateways and replicas (--network-latency, --network-loss)");
  }
  if (options.clients.retries_max > 0) {
    return no("client-retries", "that clients try again (--client-retries)");
  }
  for (const Fault& fault : options.faults) {
    if (fault.kind == Fault::Kind::kStepError) return no("faults", "a fault 'step_error'");
    if (fault.kind == Fault::Kind::kFactsCut) return no("faults", "a fault 'facts_cut'");
    if (fault.kind == Fault::Kind::kGatewayDown) return no("faults", "a fault 'gateway_down'");
    if (fault.kind == Fault::Kind::kAutoscalerDown) {
      return no("faults", "a fault 'autoscaler_down'");
    }
  }
  return std::nullopt;
}

std::vector<std::string> fluid_notes(const SimulationOptions& options,
                                     const SimulationResult& result) {
  std::vector<std::string> notes = {
      "Fluid: rates and amounts instead of steps. Replicas are alike and evenly filled, gaps "
      "between tokens are their answer's mean, preemptions are not modelled."};
  if (result.kv_overflow_share > 0) {
    notes.push_back(
        fmt::format("In {:.1f} % of the time answers would not have fitted into the KV cache: what "
                    "preemption costs then is missing.",
                    100 * result.kv_overflow_share));
  }
  const auto slow = [](const Fault& fault) { return fault.kind == Fault::Kind::kSlow; };
  if (std::ranges::any_of(options.faults, slow)) {
    notes.emplace_back("A slow replica slows all of them by its share.");
  }
  if (options.replica.prefix_cache && options.replica.capacity.groups.size() > 0) {
    notes.emplace_back(
        "What prefix caches hold is expected by how often each block was used, not by who had it.");
  }
  return notes;
}

FluidCheck compare_fidelities(const SimulationOptions& options, const SimulationResult& steps,
                              const SimulationResult& fluid, double late_s) {
  const FleetFigures exact = figures_of(options, steps, late_s, 0);
  const FleetFigures other = figures_of(options, fluid, late_s, 0);
  return {.throughput = share_of(exact.output_tokens_per_s, other.output_tokens_per_s),
          .ttft_p50 = share_of(exact.ttft_p50_s.value_or(0), other.ttft_p50_s.value_or(0)),
          .ttft_p90 = share_of(exact.ttft_p90_s.value_or(0), other.ttft_p90_s.value_or(0)),
          .replica_hours = share_of(exact.replica_hours, other.replica_hours),
          .late_by = other.late - exact.late};
}

Result<SimulationResult> simulate_fluid(const SimulationOptions& options,
                                        const workload::Workload& workload,
                                        const cost_model::StepTimeModel& times) {
  TRY(check_simulation(options, workload));
  if (const std::optional<Error> refusal = fluid_refusal(options)) return *refusal;
  // Which turn finds its own replica's cache decides its first token then; an expectation over all
  // replicas misses that by more than a third.
  const auto has_turns = [](const workload::Conversation& one) { return one.turns.size() > 1; };
  if (options.dispatch == Dispatcher::Policy::kCost &&
      std::ranges::any_of(workload.conversations, has_turns)) {
    return Error{ErrorCode::kInvalidArgument,
                 "conversations under the router 'cost' are not modelled at the fluid fidelity: "
                 "use --fidelity steps",
                 "router"};
  }
  return FluidFleet(options, workload, times).run();
}

}  // namespace pelton::simulator
