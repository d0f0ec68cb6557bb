// Texts with a token each, as a tree of bytes. A node is a prefix that some text has; nodes lie in
// depth-first order, so a subtree is a range and a walk is a loop. Immutable once built; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace pelton::grammar {

class ByteTrie {
 public:
  struct Text {
    std::string_view bytes;  // not empty; read while building only
    TokenId token = 0;
  };
  struct Node {
    uint8_t byte = 0;          // the last byte of the prefix
    uint16_t depth = 0;        // bytes in the prefix; the root, node 0, has none
    uint32_t subtree_end = 0;  // the node after the last one below this
    uint32_t token_begin = 0;  // its tokens: tokens()[token_begin, the next node's token_begin)
  };

  ByteTrie() : ByteTrie(std::vector<Text>()) {}
  explicit ByteTrie(std::vector<Text> texts);
  // Of nodes in depth-first order, without the sentinel.
  ByteTrie(std::vector<Node> nodes, std::vector<TokenId> tokens);

  // A sentinel node stands at the end.
  const Node* nodes() const { return nodes_.data(); }
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  std::span<const TokenId> tokens_of(uint32_t node) const {
    return {tokens_.data() + nodes_[node].token_begin,
            nodes_[node + 1].token_begin - nodes_[node].token_begin};
  }
  // Those of a node and of all below it.
  std::span<const TokenId> tokens_below(uint32_t node) const {
    return {tokens_.data() + nodes_[node].token_begin,
            nodes_[nodes_[node].subtree_end].token_begin - nodes_[node].token_begin};
  }
  uint32_t depth_max() const { return depth_max_; }
  size_t bytes_held() const { return nodes_.capacity() * sizeof(Node) + tokens_.capacity() * 4; }

 private:
  void add(const Text& text, std::vector<uint32_t>& path);
  void close(size_t depth, std::vector<uint32_t>& path);

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  uint32_t depth_max_ = 0;
};

}  // namespace pelton::grammar
