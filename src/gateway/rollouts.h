// The roll-outs of a gateway's routes (gateway/rollout.h): which share of the conversations each
// arm has just now, what became of requests, the file that keeps how far they have come, and what
// other gateways say of the same ones. Owned by the gateway, and outlives its requests. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/audit_chain.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "base/result.h"
#include "gateway/config.h"
#include "gateway/conversation_pins.h"
#include "gateway/rollout.h"
#include "gateway/rollout_file.h"
#include "gateway/route_table.h"

namespace pelton::gateway {

class Rollouts;

// One request of a route with a roll-out, whose arm was drawn with it: of a conversation or a user
// the first one only, as the others go where it went. Its relay notes what became of it.
class RolloutTicket {
 public:
  struct End {
    bool failed = false;  // it, or an attempt of it, by its arm's doing
    bool counts = true;   // no: its client's mistake, or its client left
    std::optional<double> ttft_s = {};
    std::optional<int64_t> output_tokens = {};
  };
  void note_end(const End& end);

 private:
  friend class Rollouts;

  Rollouts* rollouts_ = nullptr;  // outlives it
  std::string name_;
  ArmSide side_ = ArmSide::kOthers;
  size_t step_ = 0;
};

class Rollouts {
 public:
  struct Options {
    std::function<bool(const std::string& pool)> has_workers;
    // Of verdicts and steps, for the audit log; who gives a command notes it himself.
    std::function<void(const access::AuditEvent& event)> on_event = {};
    const base::Clock& clock;
    base::Log& log;
  };

  explicit Rollouts(Options options);
  ~Rollouts();  // writes the file
  Rollouts(const Rollouts&) = delete;
  Rollouts& operator=(const Rollouts&) = delete;

  // Those of this configuration; of these, those that are known go on as they are.
  void set(const GatewayConfig& config);

  // Of one request, before its arm is drawn. `stays`: by what it stays with its arm, as a
  // conversation's or a user's name; empty: by nothing.
  struct Draw {
    RolloutShare share;
    size_t step = 0;
    std::optional<uint64_t> pin;
  };
  Draw draw(const RouteConfig& route, std::string_view tenant, std::string_view stays);
  // Its arm has been drawn. Null: it counts for nothing.
  std::unique_ptr<RolloutTicket> begin(const RouteConfig& route, const Draw& draw, ArmSide side);

  // Errors: kNotFound, none has this name; kInvalidArgument, it means nothing for that one.
  // `who`: for the log.
  Result<void> command(std::string_view name, RolloutCommand command, std::string_view who);

  struct Shown {
    std::string model;
    std::string tenant;
    std::string pool;
    RolloutPlan plan;
    RolloutState state;
    bool has_workers = false;
    double share = 0;
    size_t gateways = 1;  // that say what they have seen, this one included
    std::vector<Rollout::Test> tests;
    Rollout::Report report;
  };
  std::vector<Shown> shown() const;

  bool any() const;
  // For other gateways, and what those say; none of it is this one's. Without what intervals of
  // ratios are made of, which is ten times as long: these are of each gateway's own requests.
  std::string own_text() const;
  void set_others(const std::vector<SavedRollouts>& others);

 private:
  friend class RolloutTicket;

  struct Entry {
    std::string model;
    std::string tenant;
    std::string pool;  // of the arm
    std::string identity;
    std::string tests;
    std::unique_ptr<Rollout> rollout = {};
    bool has_workers = false;
    size_t gateways = 1;
    ConversationPins pins = ConversationPins();
  };

  void note(const RolloutTicket& ticket, const RolloutTicket::End& end);
  std::vector<SavedRollout> saved() const;  // mutex_ is held, as for the next ones
  SavedRollouts read_file(const std::string& file) const;
  void log_change(const Entry& entry, const RolloutState& before);
  void audit(const Entry& entry) const;
  void turn();
  void write();

  const Options options_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;  // guarded by mutex_, as the next ones
  std::string file_;
  std::string id_;                  // of this gateway, over new starts: its file has it
  std::vector<SavedRollout> kept_;  // what the file has of those that are not in the configuration
  bool is_changed_ = false;         // of what matters at once
  int64_t turned_ns_ = 0;
  std::mutex write_mutex_;  // one at a time writes; the next ones are its
  int64_t written_ns_ = 0;
  bool is_failing_ = false;
  std::optional<base::PeriodicThread> thread_;  // from the first roll-out on; guarded by mutex_
};

}  // namespace pelton::gateway
