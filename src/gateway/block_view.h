// What workers hold of prompts' keys and values, as they announce it, and how much of a new prompt
// each of them would find. A hit of n blocks needs, in the widest KV group, every block up to n,
// and in the next narrower one (the tail) those that the query behind n looks back into. What a
// request that is on its way will leave at its worker counts as held for a while, so that the next
// one with the same prefix follows it. A wrong entry costs a wrong guess, never a wrong answer.
// Pure; one owner; the simulator links the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "cluster/block_names.h"
#include "gateway/prefix_index.h"
#include "kv/block_hash.h"

namespace pelton::gateway {

// A prompt to be routed.
struct RoutedPrompt {
  int64_t tokens = 0;                // an estimate where is_counted is false
  std::vector<kv::BlockHash> names;  // of its whole blocks
  int block_tokens = 0;              // of these; 0: it has none
  int64_t output_max = 0;            // tokens that its answer may have; 0: it does not say
  // It has one answer of more than one token, which may go on at another worker.
  bool is_splittable = false;
  bool is_counted = false;  // its tokens are the model's
};

// Of the whole blocks of a prompt, but for its last token, which is always computed. `origin`: its
// asker's salt, and the identity of the LoRA adapter that they are computed with.
std::vector<kv::BlockHash> block_names(const kv::BlockHasher& hasher,
                                       const kv::BlockHasher::Origin& origin,
                                       std::span<const TokenId> prompt, int block_tokens);

class BlockView {
 public:
  // `bytes_max`: of its tables together.
  explicit BlockView(size_t bytes_max);

  enum class Group { kWidest, kTail };
  void note_stored(int worker, Group group, const kv::BlockHash& name);
  void note_removed(int worker, Group group, const kv::BlockHash& name);
  // The same of an event as a worker reports it; of groups that are not looked at it is passed
  // over.
  struct Event {
    int worker = 0;
    int group = 0;  // the model's
    bool stored = true;
    kv::BlockHash name;
  };
  void note(const Event& event, const cluster::RoutedGroups& groups);
  // It will be noted soon.
  void prefetch(const Event& event, const cluster::RoutedGroups& groups) const;
  // It holds nothing any more, nor will what is on its way to it.
  void forget(int worker);
  // Frees what forgotten workers held, a bounded part of it at a time; to be called now and then.
  void sweep();
  // A request with this prompt is on its way: held until then, unless the worker says so itself. Of
  // the tail group that is its end only.
  struct Dispatch {
    int worker = 0;
    int tail_blocks = 0;  // as find() has it
    int64_t now_ns = 0;
    int64_t until_ns = 0;
  };
  void expect(std::span<const kv::BlockHash> names, const Dispatch& dispatch);
  // For how long, where so much time to the first token is predicted.
  static int64_t expected_ns(double first_s);

  // hits[w]: blocks that worker w would find. `tail_blocks`: how far back the tail group looks,
  // in blocks; 0: there is no such group.
  void find(std::span<const kv::BlockHash> names, int tail_blocks, int64_t now_ns,
            std::span<int> hits);
  // The same of what they have said themselves that they hold.
  void find_held(std::span<const kv::BlockHash> names, int tail_blocks, std::span<int> hits);

  size_t size() const { return widest_.size() + tail_.size(); }  // names
  int64_t evictions() const { return widest_.evictions() + tail_.evictions(); }
  int64_t updates() const { return widest_.updates() + tail_.updates(); }
  size_t held_by(int worker) const { return widest_.held_by(worker); }  // of the widest group
  size_t bytes() const;                                                 // of all tables

 private:
  struct Expected {
    Dispatch dispatch;
    std::vector<kv::BlockHash> names;
  };

  void expire(int64_t now_ns);
  void end_expectation(const Expected& over);
  static std::span<const kv::BlockHash> tail_of(std::span<const kv::BlockHash> names,
                                                const Dispatch& dispatch);
  struct Tail {
    int blocks = 0;
    int worker = 0;
    PrefixIndex* expected = nullptr;  // null: what is on its way does not count
  };
  int with_tail(std::span<const kv::BlockHash> names, const Tail& tail, int widest);

  PrefixIndex widest_;
  PrefixIndex tail_;
  PrefixIndex expected_;       // of requests on their way
  PrefixIndex expected_tail_;  // the same of the tail group
  std::deque<Expected> dispatched_;
};

}  // namespace pelton::gateway
