// One place that chunks are fetched from, as a fetch sees it: what it has, whether it may be asked
// now, and why not. Owned by a fetch; its thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "hub/retry.h"
#include "weights/have.h"
#include "weights/place.h"

namespace pelton::weights {

struct Source {
  enum class Kind {
    kUnknown,  // not asked yet
    kNode,     // says what it has, and gives chunks by their digests
    kFiles,    // a web server or a bucket: files by their paths, in ranges
  };

  Source(Place at, bool is_origin, size_t chunks, const hub::RetryOptions& options)
      : place(std::move(at)),
        origin(is_origin),
        there(chunks),
        coming(chunks),
        passed_over(chunks),
        retry(options) {}

  Place place;
  bool origin;
  Kind kind = Kind::kUnknown;
  std::string id;                 // of a node
  std::vector<bool> there;        // what a peer has
  std::vector<bool> coming;       // what it fetches from the origin
  std::vector<bool> passed_over;  // what it has and was too slow with
  size_t there_count = 0;
  int64_t grew_ns = 0;     // when that, or what has come to it, last became more
  int64_t said = 0;        // bytes that have come to it, as it said
  int64_t said_ns = 0;     // when that last became more
  std::deque<int> offers;  // chunks of a peer that were missing here; some may be there by now
  int64_t poll_at_ns = 0;
  bool polling = false;
  int poll_failures = 0;  // in a row
  int running = 0;        // chunks on their way
  int absent = 0;         // chunks that it said to have and had not
  hub::Retry retry;
  std::string dropped;   // why it is asked for nothing any more; empty: it may be
  int64_t bytes = 0;     // that came from it and were right
  int64_t received = 0;  // that came from it, whatever they were
  int64_t heard = 0;     // `received`, as it was last looked at
  int64_t heard_ns = 0;  // when that last became more, or it was asked for nothing

  bool has_all() const { return there_count == there.size(); }
  bool may_be_asked(int64_t now_ns) const {
    return dropped.empty() && kind != Kind::kUnknown && now_ns >= retry.not_before_ns();
  }
  // A node that fetches the same, is heard of and gets on: it may be left to fetch chunks for both.
  bool cooperates(int64_t now_ns, int64_t patience_ns) const {
    return !origin && dropped.empty() && kind == Kind::kNode && poll_failures == 0 && !has_all() &&
           now_ns - grew_ns < patience_ns;
  }
  // Takes in what it says now; of a model of so many bytes.
  void update(const Have& have, int64_t model_bytes, int64_t now_ns);
  // Everything is offered: of a place that says nothing.
  void offer_all();
};

// Which of two nodes fetches a chunk from the origin for both: the one with the higher number.
// Every node computes the same (rendezvous hashing).
uint64_t claim(uint64_t chunk_bits, const std::string& id);

}  // namespace pelton::weights
