#include "gateway/rollout_shares.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gateway/rollout_file.h"

namespace pelton::gateway {

RolloutShares::RolloutShares(Options options, Rollouts& rollouts, base::Log& log)
    : options_(std::move(options)),
      rollouts_(rollouts),
      log_(log),
      client_(options_.etcd),
      thread_({.name = "pelton-rollsync", .interval = options_.interval}, [this] { turn(); }) {}

RolloutShares::~RolloutShares() {
  client_.cancel();
}

void RolloutShares::turn() {
  if (!rollouts_.any()) return;
  const Result<void> done = exchange();
  if (done.ok() == !is_failing_) return;
  is_failing_ = !done.ok();
  if (done.ok()) {
    log_.info("roll-outs are shared with other gateways again");
  } else {
    log_.warning("roll-outs go on with what was heard last of other gateways: " +
                 done.error().message);
  }
}

Result<void> RolloutShares::exchange() {
  if (lease_ != 0 && !client_.renew(lease_).ok()) lease_ = 0;
  if (lease_ == 0) {
    TRY_ASSIGN(lease_, client_.grant(options_.lease));
    said_.clear();
  }
  const std::string folder = options_.prefix + "/rollouts/";
  // Each writing is a revision that etcd keeps until it is compacted.
  std::string text = rollouts_.own_text();
  if (text != said_) {
    TRY(client_.put(folder + options_.gateway, text, lease_));
    said_ = std::move(text);
  }
  TRY_ASSIGN(const cluster::EtcdClient::Snapshot seen, client_.range(folder));
  std::vector<SavedRollouts> others;
  for (const cluster::EtcdClient::Entry& entry : seen.entries) {
    if (entry.key.substr(folder.size()) == options_.gateway) continue;
    Result<SavedRollouts> said = decode_rollouts(entry.value);
    // A gateway of another version says what this one does not know: as if it said nothing.
    if (said.ok()) others.push_back(*std::move(said));
  }
  rollouts_.set_others(others);
  return {};
}

}  // namespace pelton::gateway
