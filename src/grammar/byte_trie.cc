#include "grammar/byte_trie.h"

#include <algorithm>

namespace pelton::grammar {

// Of "ab" (token 3), "b" (9) and "a" (7); node 4 is the sentinel:
//   node  byte  depth  subtree_end  token_begin
//   0     -     0      4            0             tokens_ = {7, 3, 9}
//   1     a     1      3            0             tokens_of(1) = {7}
//   2     b     2      3            1             tokens_below(1) = {7, 3}
//   3     b     1      4            2             i = subtree_end skips what is below node i
ByteTrie::ByteTrie(std::vector<Text> texts) {
  std::sort(texts.begin(), texts.end(), [](const Text& a, const Text& b) {
    return a.bytes == b.bytes ? a.token < b.token : a.bytes < b.bytes;
  });
  nodes_.push_back({});
  std::vector<uint32_t> path = {0};
  for (const Text& text : texts) add(text, path);
  close(0, path);
  nodes_.push_back({.token_begin = static_cast<uint32_t>(tokens_.size())});
}

ByteTrie::ByteTrie(std::vector<Node> nodes, std::vector<TokenId> tokens)
    : nodes_(std::move(nodes)), tokens_(std::move(tokens)) {
  for (const Node& node : nodes_) depth_max_ = std::max<uint32_t>(depth_max_, node.depth);
  nodes_.push_back({.token_begin = static_cast<uint32_t>(tokens_.size())});
}

// Texts come in order, so the nodes on the path to the last one are those that may still grow.
void ByteTrie::add(const Text& text, std::vector<uint32_t>& path) {
  size_t shared = 0;
  while (shared < text.bytes.size() && shared + 1 < path.size() &&
         nodes_[path[shared + 1]].byte == static_cast<uint8_t>(text.bytes[shared])) {
    ++shared;
  }
  if (shared < text.bytes.size()) close(shared, path);
  for (size_t i = shared; i < text.bytes.size(); ++i) {
    path.push_back(static_cast<uint32_t>(nodes_.size()));
    nodes_.push_back({.byte = static_cast<uint8_t>(text.bytes[i]),
                      .depth = static_cast<uint16_t>(i + 1),
                      .token_begin = static_cast<uint32_t>(tokens_.size())});
  }
  depth_max_ = std::max(depth_max_, static_cast<uint32_t>(text.bytes.size()));
  tokens_.push_back(text.token);
}

// The nodes of the path that are deeper than `depth` have had all their children; with 0, so has
// the root.
void ByteTrie::close(size_t depth, std::vector<uint32_t>& path) {
  const uint32_t end = static_cast<uint32_t>(nodes_.size());
  while (path.size() > depth + 1) {
    nodes_[path.back()].subtree_end = end;
    path.pop_back();
  }
  if (depth == 0) nodes_[0].subtree_end = end;
}

}  // namespace pelton::grammar
