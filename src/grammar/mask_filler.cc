#include "grammar/mask_filler.h"

#include <algorithm>

namespace pelton::grammar {
namespace {

constexpr uint32_t kWordsAStep = 64;  // of masks

void set_bit(std::span<uint64_t> mask, TokenId token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

bool has_bit(std::span<const uint64_t> mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

// Which of a tree's tokens a mask lacks, asked in the tree's order: each is looked at once.
class MissingTokens {
 public:
  MissingTokens(const ByteTrie& trie, std::span<const uint64_t> mask) : trie_(trie), mask_(mask) {}

  bool any_below(uint32_t node) {
    const std::span<const TokenId> tokens = trie_.tokens_below(node);
    if (next_ < tokens.data()) next_ = tokens.data();
    const TokenId* const end = tokens.data() + tokens.size();
    const TokenId* const before = next_;
    while (next_ < end && has_bit(mask_, *next_)) ++next_;
    looked_at_ += static_cast<uint64_t>(next_ - before);
    return next_ < end;
  }
  uint64_t looked_at() const { return looked_at_; }

 private:
  const ByteTrie& trie_;
  std::span<const uint64_t> mask_;
  const TokenId* next_ = nullptr;  // those before it are in the mask, or were passed over
  uint64_t looked_at_ = 0;
};

}  // namespace

struct MaskFiller::Build {
  std::vector<TokenId> tokens;
  std::vector<TrieRest> rests;
  std::unique_ptr<ByteTrie> after;  // some of them are of this tree
  uint64_t chars_before = 0;
  uint64_t chars_max = 0;
  bool may_end_at_once = false;
  int64_t done_before = 0;  // of the budget

  void add(std::span<const TokenId> ids) { tokens.insert(tokens.end(), ids.begin(), ids.end()); }
};

MaskFiller::MaskFiller(const TokenGrammar& grammar, WorkBudget& budget)
    : grammar_(grammar),
      budget_(budget),
      machine_(grammar.grammar(), budget),
      trie_(grammar.trie()),
      cache_(grammar.cache()) {
  levels_.resize(trie_.all().depth_max() + 2);
  marks_.resize(levels_.size());
  for (size_t byte = 0; byte < 256; ++byte) {
    after_number_[byte] = machine_.may_follow_number(static_cast<uint8_t>(byte));
  }
}

void MaskFiller::fill(const Position& position, std::span<uint64_t> mask) {
  mask_ = mask;
  machine_.load(position);
  walks_.clear();
  const std::vector<uint32_t> tops(machine_.tops().begin(), machine_.tops().end());
  for (const uint32_t top : tops) {
    if (budget_.exhausted()) return;
    note_top(top);
  }
  const Machine::Mark mark = machine_.mark();
  for (const Walk& walk : walks_) {
    if (budget_.exhausted()) return;
    if (walk.entry) {
      add_rests(*walk.entry, walk.top);
    } else {
      fill_by_walk(*walk.trie, std::span(&walk.top, 1));
    }
    machine_.take_back(mark);
  }
}

// The budget hears of them by the thousand, while it may still end the walk.
void MaskFiller::count_visit(uint64_t& visited) {
  if (++visited < 1024) return;
  budget_.spend(visited / kNodesAStep);
  visited = 0;
}

void MaskFiller::note_top(uint32_t top) {
  const Frame& frame = machine_.frame(top);
  switch (frame.kind) {
    case FrameKind::kString:
      return frame.watched != 0 ? note_watched(top) : note_text(top);
    case FrameKind::kKey:
      return note_key(top);
    case FrameKind::kValue:
    case FrameKind::kNumber:
    case FrameKind::kLiteral:
      if (frame.watched != 0) break;
      [[fallthrough]];
    case FrameKind::kRule:
    case FrameKind::kLexeme:
      return note_probed(top);
    default:
      break;
  }
  note_walk(tokens(), top);
}

const ByteTrie& MaskFiller::tokens() {
  if (tokens_ == nullptr) tokens_ = &grammar_.tokens(budget_);
  return *tokens_;
}

void MaskFiller::fill_by_walk(const ByteTrie& trie, std::span<const uint32_t> tops) {
  const ByteTrie::Node* nodes = trie.nodes();
  const uint32_t end = trie.node_count();
  levels_[0].assign(tops.begin(), tops.end());
  marks_[0] = machine_.mark();
  MissingTokens missing(trie, mask_);
  for (uint32_t i = 1; i < end && !budget_.exhausted();) {
    const ByteTrie::Node& node = nodes[i];
    const size_t depth = node.depth;
    machine_.take_back(marks_[depth - 1]);
    std::vector<uint32_t>& here = levels_[depth];
    here.clear();
    machine_.step(levels_[depth - 1], node.byte, here, 0);
    if (here.empty() || !missing.any_below(i)) {
      i = node.subtree_end;
      continue;
    }
    marks_[depth] = machine_.mark();
    for (const TokenId token : trie.tokens_of(i)) set_bit(mask_, token);
    ++i;
  }
  budget_.spend(missing.looked_at() / kNodesAStep);
  machine_.take_back(marks_[0]);
}

void MaskFiller::add_entry(const MaskEntry& entry) {
  budget_.spend(entry.bits.size() / kWordsAStep + entry.tokens.size() / kNodesAStep);
  for (size_t i = 0; i < entry.bits.size(); ++i) mask_[i] |= entry.bits[i];
  for (const TokenId token : entry.tokens) set_bit(mask_, token);
}

void MaskFiller::add_inside(const MaskEntry& entry) {
  const std::span<const uint64_t> quoted = trie_.quoted_mask();
  budget_.spend(entry.bits.size() / kWordsAStep + entry.tokens.size() / kNodesAStep);
  for (size_t i = 0; i < entry.bits.size(); ++i) mask_[i] |= entry.bits[i] & ~quoted[i];
  for (const TokenId token : entry.tokens) {
    const size_t word = static_cast<size_t>(token) / 64;
    mask_[word] |= uint64_t{1} << (token % 64) & ~quoted[word];
  }
}

// The tokens that leave the frame go on in what stands below it.
void MaskFiller::add_rests(const MaskEntry& entry, uint32_t top) {
  std::vector<uint32_t> below;
  machine_.resume_parents(top, 0, below, 0);
  if (below.empty()) return;
  if (entry.rests.node_count() > 1) fill_by_walk(entry.rests, below);
  if (entry.may_end_at_once) fill_by_walk(tokens(), below);
}

void MaskFiller::note_text(uint32_t top) {
  const Frame frame = machine_.frame(top);
  const StringSpec& spec = machine_.string_spec(frame);
  const uint64_t need = spec.chars_min > frame.count ? spec.chars_min - frame.count : 0;
  const uint64_t room = spec.chars_max == kNoBound ? kNoBound : spec.chars_max - frame.count;
  const Entry entry = text_entry(*spec.text, frame, need, room);
  if (!entry) return;
  add_entry(*entry);
  note_rests(top, entry);
}

// Which tokens may end it depends on what they make of it; so does which go on, but for those that
// leave room for enough texts to have a new one among them.
void MaskFiller::note_watched(uint32_t top) {
  const Frame frame = machine_.frame(top);
  const StringSpec& spec = machine_.string_spec(frame);
  const uint32_t spare = spec.counts ? spec.counts->bytes_to_enough_max : TextCounts::kNever;
  if (spare == TextCounts::kNever || frame.phase != 0 ||
      machine_.items_around(top) >= TextCounts::kEnough) {
    return note_walk(trie_.all(), top);
  }
  const bool bounded = spec.chars_max != kNoBound;
  const uint64_t room = bounded ? spec.chars_max - frame.count : kNoBound;
  const uint64_t taken = spare + spec.chars_min;
  if (bounded && room <= taken) return note_walk(trie_.all(), top);
  const Entry entry = text_entry(*spec.text, frame, 0, bounded ? room - taken : kNoBound);
  if (entry) add_inside(*entry);
  const bool may_fill = bounded && room <= trie_.all().depth_max() + taken;
  note_walk(may_fill ? trie_.all() : trie_.quoted(), top);
}

// A key: as another key, inside; as a property with a name; whatever closes it, by a walk.
void MaskFiller::note_key(uint32_t top) {
  const Frame frame = machine_.frame(top);
  if (!machine_.others_allowed(frame)) return note_walk(trie_.all(), top);
  if (!machine_.any_key_is_new(frame) || (frame.watched != 0 && !machine_.key_has_many(top))) {
    return note_walk(trie_.all(), top);
  }
  const StringDfa& others = machine_.other_keys(frame);
  if (const Entry entry = text_entry(others, frame, 0, kNoBound)) add_inside(*entry);
  note_walk(trie_.quoted(), top);
  if (others.any_char[frame.state] != 0 && others.chars_to_end_max == 0) return;
  note_walk(trie_.all(), machine_.named_keys_only(top));
}

void MaskFiller::note_rests(uint32_t top, const Entry& entry) {
  if (entry->rests.node_count() <= 1 && !entry->may_end_at_once) return;
  walks_.push_back({.top = top, .entry = entry});
}

// A mask that took 300 steps is charged as 300 whether it is computed (done) or found (saved): with
// a total of 400 both requests have 100 left, and end at the same token.
MaskFiller::Entry MaskFiller::find(MaskCache& cache, const MaskKey& key) {
  Entry entry = cache.find(key);
  if (entry) budget_.save(entry->work);
  return entry;
}

MaskFiller::Entry MaskFiller::keep(MaskCache& cache, const MaskKey& key, Entry entry) {
  if (budget_.exhausted()) return nullptr;
  cache.insert(key, entry);
  return entry;
}

MaskFiller::Entry MaskFiller::text_entry(const StringDfa& dfa, const Frame& frame, uint64_t need,
                                         uint64_t room) {
  need = std::min<uint64_t>(need, trie_.all().depth_max() + 1);
  StringSpec spec = {.text = std::shared_ptr<const StringDfa>(std::shared_ptr<void>(), &dfa),
                     .chars_min = need};
  MaskKey key = {.content = dfa.content,
                 .state = uint64_t{frame.state} << 32 | frame.aux2,
                 .length = need << 40 | uint64_t{frame.phase} << 32};
  Entry entry = find(trie_.shared_masks(), key);
  if (!entry) entry = keep(trie_.shared_masks(), key, build_text(spec, frame));
  if (!entry || room == kNoBound || entry->chars_max + dfa.chars_to_end_max <= room) return entry;
  key.length |= room + 1;
  Entry close = find(trie_.shared_masks(), key);
  if (close) return close;
  spec.chars_max = room;
  return keep(trie_.shared_masks(), key, build_text(spec, frame));
}

MaskFiller::Entry MaskFiller::build_text(const StringSpec& spec, const Frame& frame) {
  Frame alone = frame;
  alone.kind = FrameKind::kString;
  alone.spec = kNoValue;
  alone.watched = 0;
  alone.count = 0;
  alone.extras = 0;
  machine_.set_probe_text(&spec);
  const Machine::Mark mark = machine_.mark();
  Build build = {.done_before = budget_.done()};
  if (alone.phase == 0) {
    walk_text(build, spec, alone);
  } else {
    const uint32_t top = machine_.probe(alone);
    walk_probe(build, {trie_.all(), 1, trie_.all().node_count()}, std::span(&top, 1));
  }
  machine_.take_back(mark);
  machine_.set_probe_text(nullptr);
  return finish(build);
}

// Most of a vocabulary is plain text: there only the automaton goes along. What comes after a
// backslash is left to the machine. In a free string of which 5 characters are left: "a" leads back
// to where it began (a loop on all lower letters), and if all tokens below it are lower letters,
// the longest of 4, all are added at once (TokenTrie::below); were the longest of 6, the walk goes
// down node by node. At a quotation mark the text may end: that token is added, and what others
// have behind the mark is a rest.
void MaskFiller::walk_text(Build& build, const StringSpec& spec, const Frame& frame) {
  struct Place {
    DfaState state = 0;
    uint32_t count = 0;
  };
  const StringDfa& text = *spec.text;
  const ByteTrie& trie = trie_.all();
  const ByteTrie::Node* nodes = trie.nodes();
  const uint32_t end = trie.node_count();
  std::vector<Place> places(trie.depth_max() + 1);
  places[0].state = frame.state;
  const bool bounded = spec.chars_max != kNoBound;
  uint64_t visited = 0;
  for (uint32_t i = 1; i < end && !budget_.exhausted();) {
    count_visit(visited);
    const ByteTrie::Node& node = nodes[i];
    Place place = places[node.depth - 1];
    if (node.byte == '"') {
      if (text.accepts(place.state) && place.count >= spec.chars_min) {
        build.add(trie.tokens_of(i));
        build.rests.push_back({.trie = &trie, .node = i});
      }
      i = node.subtree_end;
      continue;
    }
    if (node.byte == '\\') {
      Frame here = frame;
      here.state = place.state;
      here.count = place.count;
      const Machine::Mark mark = machine_.mark();
      const uint32_t top = machine_.probe(here);
      levels_[node.depth - 1].assign(1, top);
      walk_probe(build, {trie, i, node.subtree_end}, levels_[node.depth - 1]);
      machine_.take_back(mark);
      i = node.subtree_end;
      continue;
    }
    const DfaState next = node.byte < 0x20 ? kDeadState : text.next(place.state, node.byte);
    place.count += (node.byte & 0xC0) != 0x80 ? 1 : 0;
    if (next == kDeadState || (bounded && place.count + text.chars_to_end[next] > spec.chars_max)) {
      i = node.subtree_end;
      continue;
    }
    place.state = next;
    const TokenTrie::Below& below = trie_.below(i);
    // (A loop is taken back to itself by this byte already, unless a character is in the middle.)
    const Place& before = places[node.depth - 1u];
    if (below.kinds != 0 && (below.kinds & ~text.loops[before.state]) == 0 &&
        (!bounded ||
         before.count + below.chars_max + text.chars_to_end[before.state] <= spec.chars_max)) {
      build.add(trie.tokens_below(i));
      build.chars_max = std::max<uint64_t>(build.chars_max, before.count + below.chars_max);
      i = node.subtree_end;
      continue;
    }
    places[node.depth] = place;
    const std::span<const TokenId> tokens = trie.tokens_of(i);
    if (!tokens.empty()) {
      build.add(tokens);
      build.chars_max = std::max<uint64_t>(build.chars_max, place.count);
    }
    ++i;
  }
  budget_.spend(visited / kNodesAStep);
}

MaskFiller::Entry MaskFiller::probed_entry(const Frame& frame) {
  Build build = {.done_before = budget_.done()};
  const uint32_t top = machine_.probe(frame);
  walk_probe(build, {tokens(), 1, tokens().node_count()}, std::span(&top, 1));
  return finish(build);
}

// In a text of an automaton only that goes along; what follows its texts begins where one ends.
MaskFiller::Entry MaskFiller::lexeme_entry(const Frame& frame) {
  Build build = {.done_before = budget_.done()};
  const uint32_t top = machine_.probe(frame);
  std::vector<uint32_t> ends;  // nodes
  walk_lexeme(build, frame, ends);
  if (!ends.empty()) walk_after(build, top, ends);
  return finish(build);
}

// What goes on behind the lexeme `top`, where its texts end.
void MaskFiller::walk_after(Build& build, uint32_t top, std::span<const uint32_t> ends) {
  std::vector<uint32_t> after;
  machine_.leave_lexeme(top, after);
  const bool exits = std::any_of(after.begin(), after.end(), [&](uint32_t one) {
    return machine_.frame(one).kind == FrameKind::kExit;
  });
  // By which bytes it goes on.
  std::bitset<256> first;
  std::vector<uint32_t> out;
  for (int byte = 0; byte < 256; ++byte) {
    const Machine::Mark mark = machine_.mark();
    out.clear();
    machine_.step(after, static_cast<uint8_t>(byte), out, 0);
    first[static_cast<size_t>(byte)] = !out.empty();
    machine_.take_back(mark);
  }
  std::vector<TrieRest> rests;
  for (const uint32_t end : ends) {
    if (exits) build.rests.push_back({.trie = &trie_.all(), .node = end});
    if (first.any()) rests.push_back({.trie = &trie_.all(), .node = end, .first = &first});
  }
  if (rests.empty()) return;
  build.after = std::make_unique<ByteTrie>(
      merge_rests(rests, grammar_.aliases(), mask_of(build.tokens), budget_));
  walk_probe(build, {*build.after, 1, build.after->node_count()}, after);
}

void MaskFiller::walk_lexeme(Build& build, const Frame& frame, std::vector<uint32_t>& ends) {
  const Grammar& grammar = grammar_.grammar();
  const ByteDfa& dfa = grammar.rules()->dfas[frame.spec];
  const ByteTrie& trie = trie_.all();
  const ByteTrie::Node* const nodes = trie.nodes();
  const uint32_t count = trie.node_count();
  std::vector<DfaState> states(trie.depth_max() + 1, kDeadState);
  states[0] = frame.state;
  uint64_t visited = 0;
  for (uint32_t i = 1; i < count && !budget_.exhausted();) {
    count_visit(visited);
    const ByteTrie::Node& node = nodes[i];
    const DfaState before = states[node.depth - 1u];
    const DfaState state = dfa.next(before, node.byte);
    if (state == kDeadState) {
      i = node.subtree_end;
      continue;
    }
    // All that is below is text of it: where else it could go is no matter.
    const uint8_t kinds = trie_.below(i).kinds;
    if (kinds != 0 && (kinds & ~grammar.loops(frame.spec, before)) == 0) {
      build.add(trie.tokens_below(i));
      i = node.subtree_end;
      continue;
    }
    states[node.depth] = state;
    build.add(trie.tokens_of(i));
    if (dfa.accepts(state)) ends.push_back(i);
    ++i;
  }
  budget_.spend(visited / kNodesAStep);
}

void MaskFiller::walk_probe(Build& build, const Nodes& range, std::span<const uint32_t> tops) {
  const ByteTrie& trie = range.trie;
  const ByteTrie::Node* nodes = trie.nodes();
  if (range.begin >= range.end) return;
  const size_t base = nodes[range.begin].depth - 1u;
  levels_[base].assign(tops.begin(), tops.end());
  marks_[base] = machine_.mark();
  if (base == 0) {
    for (const uint32_t top : tops) {
      const Frame& frame = machine_.frame(top);
      if (frame.kind == FrameKind::kNumber && machine_.number_may_end(frame)) {
        build.may_end_at_once = true;
      }
    }
  }
  for (uint32_t i = range.begin; i < range.end && !budget_.exhausted();) {
    const ByteTrie::Node& node = nodes[i];
    const size_t depth = node.depth;
    machine_.take_back(marks_[depth - 1]);
    std::vector<uint32_t>& here = levels_[depth];
    here.clear();
    machine_.step(levels_[depth - 1], node.byte, here, 0);
    if (here.empty()) {
      i = node.subtree_end;
      continue;
    }
    marks_[depth] = machine_.mark();
    build.add(trie.tokens_of(i));
    bool goes_on = false;
    for (const uint32_t top : here) {
      const Frame& frame = machine_.frame(top);
      if (frame.kind == FrameKind::kExit) {
        build.rests.push_back({.trie = &trie, .node = i});
        continue;
      }
      goes_on = true;
      if (frame.kind == FrameKind::kString)
        build.chars_max = std::max(build.chars_max, frame.count);
      if (frame.kind != FrameKind::kNumber || !machine_.number_may_end(frame)) continue;
      if (!machine_.stands_on_probe(frame)) continue;
      build.rests.push_back({.trie = &trie, .node = i, .first = &after_number_});
    }
    i = goes_on ? i + 1 : node.subtree_end;
  }
  machine_.take_back(marks_[base]);
}

MaskFiller::Entry MaskFiller::finish(Build& build) {
  const std::shared_ptr<MaskEntry> entry = std::make_shared<MaskEntry>();
  if (budget_.exhausted()) return entry;  // nobody keeps it
  if (build.tokens.size() * sizeof(TokenId) > mask_.size() * sizeof(uint64_t)) {
    entry->bits.resize(mask_.size(), 0);
    for (const TokenId token : build.tokens) set_bit(entry->bits, token);
  } else {
    entry->tokens.assign(build.tokens.begin(), build.tokens.end());
  }
  // A token that is allowed already need not be looked at again.
  budget_.spend(build.tokens.size() / kNodesAStep);
  entry->rests = merge_rests(build.rests, grammar_.aliases(), mask_of(build.tokens), budget_);
  entry->chars_max = static_cast<uint32_t>(build.chars_max);
  entry->may_end_at_once = build.may_end_at_once;
  entry->work = budget_.done() - build.done_before;
  return entry;
}

std::vector<uint64_t> MaskFiller::mask_of(std::span<const TokenId> tokens) const {
  std::vector<uint64_t> mask(mask_.size(), 0);
  for (const TokenId token : tokens) set_bit(mask, token);
  return mask;
}

// Frames of a kind that look alike to their tokens have one key. Values of scalars alone, and the
// numbers in them, are alike in all grammars.
void MaskFiller::note_probed(uint32_t top) {
  const Frame frame = machine_.frame(top);
  MaskKey key = {.content = uint64_t{frame.spec} << 8 | static_cast<uint64_t>(frame.kind),
                 .state = uint64_t{frame.state} << 32 | frame.aux,
                 .length = frame.count << 8 | frame.spaces};
  const bool is_lexeme = frame.kind == FrameKind::kLexeme;
  if (is_lexeme) {
    key.state = uint64_t{grammar_.lexeme_class(frame.spec, frame.state)} << 32 | frame.aux;
  }
  MaskCache* cache = &cache_;
  if (const uint64_t content = machine_.shared_content(frame); content != 0) {
    cache = &trie_.shared_masks();
    // A string and a number may be of one language, and yet allow different tokens.
    key.content = content + static_cast<uint64_t>(frame.kind);
    key.length = machine_.spaces_left(frame);
  }
  Entry entry = find(*cache, key);
  if (!entry) {
    const Machine::Mark mark = machine_.mark();
    entry = keep(*cache, key, is_lexeme ? lexeme_entry(frame) : probed_entry(frame));
    machine_.take_back(mark);
  }
  if (!entry) return;
  add_entry(*entry);
  note_rests(top, entry);
}

}  // namespace pelton::grammar
