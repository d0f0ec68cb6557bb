// Fetches a model's missing chunks: from peers what they have, the rest from the origin, over
// several connections at a time, each chunk hashed on other threads while more come. Nodes that
// fetch the same model at once find each other through the origin and share the work: each chunk
// leaves it once. One thread, the caller's.
//
//   three nodes, chunk 5      A: claim 17   B: claim 90   C: claim 4
//   B fetches it from the origin; A and C see in B's `have` that it is there, and take it from B;
//   if nothing comes to B for some seconds, it counts no longer, and A, the next, fetches it.
// They share the origin's connections too, or all their chunks would be on their way at once and
// none be there to be given on.
//
// Rates decide: a source that brings nothing for some seconds is asked again later, and in the end
// no more; beside peers that bring too little together the origin fetches as well; a connection
// below 1 KiB a second, or a try that brings less than 16 KiB, is a failed one.
//
// Endgame: when nothing is left to begin, what a peer is slow with is fetched from elsewhere, and
// who has waited for others for some seconds waits no longer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "weights/chunk_checker.h"
#include "weights/chunk_folder.h"
#include "weights/download.h"
#include "weights/source.h"

namespace pelton::weights {

struct FetchOptions {
  std::vector<Place> peers;  // those that are known from the start
  Place origin;
  PlaceAccess access;
  int connections = 8;      // to the origin; to peers as many again
  std::string id;           // of this node, if its chunks are served to others; else empty
  int share_port = 0;       // where; the origin lists it to others
  hub::RetryOptions retry;  // of the origin
  std::function<void(const std::string&)> say;  // a source that is dropped; may be empty
  std::chrono::milliseconds gather{250};        // to hear of others before the first chunk
  std::chrono::milliseconds patience{5'000};    // with a node that gets no chunk
  std::chrono::milliseconds overdue{2'000};     // of a chunk that others would have given by then
  // Peers with the whole model that bring less together, for as long as that while they are asked,
  // are slow: the origin, which would rest, fetches beside them.
  int64_t least_from_peers = int64_t{8} << 20;  // bytes a second
};

struct FetchReport {
  int64_t bytes_kept = 0;  // that were there
  int64_t bytes_from_origin = 0;
  int64_t bytes_from_peers = 0;
  std::vector<std::string> dropped;  // sources, and why
};

class Fetch {
 public:
  // Of bytes that are there, in all; false: kCancelled.
  using Progress = base::FunctionRef<bool(int64_t done, int64_t total)>;

  // All outlive it.
  Fetch(ChunkFolder& folder, const FetchOptions& options, const base::Clock& clock);
  ~Fetch();

  // Until everything is there. Errors: kUnavailable, kNotFound: the origin gives no more, and why;
  // kBadCheckpoint: it gives other bytes than its manifest says; kIo, kDoesNotFit; kCancelled.
  Result<void> run(Progress progress);
  // Once that is done, for as long as nodes that were heard of still fetch, but no longer than
  // `most`: their chunks come from here.
  void linger(std::chrono::milliseconds most, base::FunctionRef<bool()> go_on);

  FetchReport report() const;

 private:
  struct Poll;

  Result<void> step();
  Result<void> take_checked();
  void poll_sources();
  void poll_ended(Poll& poll, const hub::TransferEnd& end);
  void heard(Source& source, const Have& have);
  void add_peers(const std::vector<std::string>& addresses);
  void plan();
  bool is_origins(int chunk, int64_t now_ns) const;
  int origin_connections(int64_t now_ns) const;
  bool others_receive(int64_t now_ns) const;
  void start_downloads();
  bool start_from_peer();
  bool start_from_origin();
  void begin(int chunk, size_t source);
  void pass_over_slow();
  void look_at_rates();
  void give_up_silent(size_t source);
  void try_waiting();
  void start_transfer(Download& download);
  void ended(const hub::TransferEnd& end);
  void download_ended(std::list<Download>::iterator download, const hub::TransferEnd& end);
  void failed(Download& download, const std::string& why);
  void drop(Source& source, const std::string& reason);
  void offer_slow_again();
  void refuse(Source& source, const std::string& why);
  bool lead(Download& download);
  hub::TransferRequest request_of(const Download& download) const;
  void missing_again(int chunk);
  void give_back(std::list<Download>::iterator download);
  Result<void> check_hope() const;
  bool is_missing(int chunk) const;
  const Source& origin() const { return *sources_[options_.peers.size()]; }
  bool knows_sources() const;

  ChunkFolder& folder_;
  const FetchOptions& options_;
  const base::Clock& clock_;
  hub::Transfers transfers_;
  std::vector<std::unique_ptr<Source>> sources_;  // named peers, the origin, found peers
  std::vector<uint64_t> bits_;                    // of each chunk's digest, for claims
  std::vector<int> order_;                        // chunks, those first that are most likely ours
  std::vector<bool> busy_;                        // on its way, or being hashed
  std::vector<bool> was_wrong_;                   // came wrong from the origin once
  std::vector<int> ready_;                        // for the origin; the next is the last
  std::list<Download> downloads_;
  std::list<Poll> polls_;
  size_t missing_ = 0;  // chunks
  int64_t bytes_there_ = 0;
  int64_t begun_ns_ = 0;
  int64_t plan_at_ns_ = 0;
  int64_t active_ns_ = 0;        // when a chunk was last on its way, or being hashed
  int64_t rate_since_ns_ = 0;    // since when whole peers are watched
  int64_t rate_received_ = 0;    // what had come from all peers then
  bool are_peers_slow_ = false;  // as they were when they were last asked for long enough
  bool has_waited_ = false;      // for others, once, as long as it has patience
  Error origin_error_;           // once the origin is dropped
  FetchReport report_;
  std::unique_ptr<ChunkChecker> checker_;  // last: its threads use the folder
};

}  // namespace pelton::weights
