// The part of gateway::Relay for what one worker has by its id: whether a worker's answer says that
// it has it not, and what is said where the one that has it does not answer just now.
#include <utility>

#include "gateway/asked.h"
#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

// Files, batches and videos are there again when their worker is, so that no other worker's 404
// says that there are none. What a worker has made of a response it may lose with its end.
bool outlives_an_outage(std::string_view path) {
  return path.starts_with("/v1/files") || path.starts_with("/v1/batches") ||
         path.starts_with("/v1/videos");
}

bool keeps_what_is_stored(std::string_view path) {
  const bool is_bytes = path.ends_with("/content");  // a client's own
  return !is_bytes && (path.starts_with("/v1/files") || path.starts_with("/v1/batches"));
}

bool is_unknown_id(const net::HttpResponse& answer) {
  if (answer.status == 404) return true;
  return answer.status == 400 &&
         (answer.body.find("previous_response_not_found") != std::string::npos ||
          answer.body.find("\"Item with id '") != std::string::npos);
}

}  // namespace

// The worker has not what its request speaks of; another one may have.
bool Relay::is_unknown_here(const net::HttpResponse& answer) const {
  if (!request_.speaks_of_id || !is_unknown_id(answer)) return false;
  const bool is_home = request_.home && request_.home->worker == assignment_.worker &&
                       request_.home->serial == assignment_.serial;
  // Who has had it knows best that it is there no more; of a region's workers another one may.
  const bool is_final = is_home && assignment_.kind != WorkerKind::kRegion;
  return !is_final || !outlives_an_outage(request_.http.path);
}

// Those that were asked do not have it, and one that has it, or may have it, was not heard.
bool Relay::is_kept_elsewhere() const {
  if (!outlives_an_outage(request_.http.path) || refusal_->status != 404) return false;
  if (request_.home && !lacks_id_.contains(request_.home->worker)) {
    const std::string pool =
        services_.fleet.pool_of({.worker = request_.home->worker, .serial = request_.home->serial});
    if (pool == request_.pool) return true;
  }
  return services_.fleet.has_worker_beside(request_.pool, lacks_id_);
}

// Who knows no home asks all pools first.
bool Relay::refuse_away() {
  is_away_ = is_away_ || is_kept_elsewhere();
  if (!is_away_ || (!request_.home && !request_.other_pools.empty())) return false;
  give_up(503, "worker_away",
          "the worker that has this, or may have it, does not answer just now; ask again");
  return true;
}

void Relay::note_home(const std::string& id) {
  services_.homes.note(
      id, {.pool = request_.pool, .worker = assignment_.worker, .serial = assignment_.serial});
}

// Who has made it is asked for it later.
void Relay::note_response(std::string_view bytes) {
  if (!response_id_.empty() || bytes.empty() || request_.http.path != "/v1/responses") return;
  response_id_ = response_id_of(bytes);
  if (response_id_.empty()) return;
  note_home(response_id_);
}

void Relay::note_stored(const net::HttpResponse& answer) {
  if (answer.status != 200 || !keeps_what_is_stored(request_.http.path)) return;
  for (const std::string& id : stored_ids_of(answer.body)) note_home(id);
}

}  // namespace pelton::gateway
