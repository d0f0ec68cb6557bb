// Blocks that travel between processes, beside the steps: what one engine asks of another's cache,
// and what others ask of its own. The engine's thread asks and answers; whoever implements this has
// threads of its own and never makes it wait. Blocks have names (block_hash.h) and nothing else in
// common: no number, address or pointer of another process is ever seen here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kv/block_hash.h"
#include "kv/block_id.h"
#include "kv/group.h"

namespace pelton::kv {

// What is asked of a peer: the longest prefix of `names` that it makes whole, less what is here.
struct PeerFetch {
  int64_t id = 0;
  std::string host;
  int port = 0;
  std::string ticket;            // says that it may be asked
  std::vector<BlockHash> names;  // of the prefix's blocks, from its first
  // By group and name: the block is here.
  PerGroup<std::vector<bool>> held;
  // Blocks of the host's memory that what comes is written to; nobody else touches them until the
  // outcome is taken.
  PerGroup<std::vector<BlockId>> rooms;
  int64_t limit_ns = 0;  // that it may take
  // The peer is computing them now: it sends each as it is there.
  bool ahead = false;
};

// What came of it.
struct PeerFetched {
  enum class Outcome {
    kDone,     // what the peer had
    kNothing,  // it has nothing of use
    kRefused,  // by the peer: ticket, model, layout
    kCorrupt,  // what came is not what was sent
    kFailed,   // not reached, lost, or too slow
    kCancelled,
  };
  struct Block {
    int group = 0;
    BlockId host = kNoBlock;
    BlockHash name;
  };

  int64_t id = 0;
  Outcome outcome = Outcome::kDone;
  std::string why;            // in words, where it is neither of the first two
  std::vector<Block> blocks;  // whole and checked; whatever the outcome
  int64_t bytes = 0;
  int64_t ns = 0;  // what it took, without waiting for others, or for what is computed only now
};

// What a peer asks of this engine's cache; likewise.
struct PeerAsk {
  int64_t id = 0;
  std::vector<BlockHash> names;
  PerGroup<std::vector<bool>> held;  // there
  bool ahead = false;                // of a prompt that is being computed here
};

// The answer: blocks that stay as they are until the ask is over.
struct PeerOffer {
  struct Block {
    int group = 0;
    BlockHash name;
    Tier tier = kDevice;
    BlockId block = kNoBlock;
  };

  int64_t id = 0;
  int prefix_blocks = 0;  // what is here and there makes so long a prefix whole
  std::vector<Block> blocks;
  bool goes_on = false;  // further offers of this ask follow
};

class PeerTransfers {
 public:
  // Where it is found, and its name: one for each start.
  struct Place {
    std::string id;
    int port = 0;
  };

  virtual ~PeerTransfers() = default;

  virtual const Place& place() const = 0;
  // `wake` is called when there is something to be taken; on any thread, until it is replaced.
  virtual void on_news(std::function<void()> wake) = 0;

  virtual void fetch(PeerFetch fetch) = 0;
  virtual void cancel(int64_t id) = 0;  // its outcome comes all the same, soon
  virtual std::vector<PeerFetched> take_fetched() = 0;

  virtual std::vector<PeerAsk> take_asks() = 0;
  virtual void offer(PeerOffer offer) = 0;  // for each ask once, and more while it goes on
  // Asks whose blocks nobody reads any more.
  virtual std::vector<int64_t> take_over() = 0;
  // So far; any thread.
  struct Served {
    int64_t blocks = 0;
    int64_t bytes = 0;
    int64_t refused = 0;  // connections and tickets
  };
  virtual Served served() const = 0;
  // When it returns nobody reads any block that was offered: they are needed here. Waits for a
  // block that is being read.
  virtual void revoke_all() = 0;
};

}  // namespace pelton::kv
