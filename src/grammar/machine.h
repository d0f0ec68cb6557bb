// The pushdown machine that runs a Grammar over bytes. It follows all ways to read the text at
// once: a graph of frames, in which ways that have the same future share it ("tops" are where
// reading stands, parents are what is returned to). Frames never change; a step adds new ones, and
// whoever walks a tree of texts takes them back by the mark. A Machine is scratch, owned by one
// thread.
//
// Behind {"a":[7,1 there is one top: kNumber <- kArray (phase kValue, count 1) <- kObject (kValue)
// <- kRoot, where <- is "has the parent". A ] ends the number first (only what follows a number
// says that it is over), so kArray is copied with count 2, finds that it may close, and its parent
// is copied with phase kAfter: that copy is the new top. Behind [1 of "an array of integers, or one
// of at least two" the two arrays differ, the numbers in them do not: one top kNumber with two
// parents, of which only the first is left behind a ].
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/json_tables.h"
#include "grammar/rule_scratch.h"
#include "grammar/work_budget.h"

namespace pelton::grammar {

enum class FrameKind : uint8_t {
  kRoot,   // below everything: when its child is done, so is the text
  kDone,   // the text is complete
  kExit,   // what stood on a probe is done (mask_cache.h)
  kProbe,  // stands in for parents that are not known
  kValue,  // a JSON value is about to begin
  kString,
  kNumber,
  kLiteral,
  kObject,
  kKey,
  kArray,
  kRule,    // in a rule, at a state
  kCall,    // a rule that waits for another, and goes on at its state
  kLexeme,  // in a text of an automaton
  kMember,  // not on the way: a link in a list of keys or items that were there
};

// What an object or an array waits for.
enum class Phase : uint8_t { kOpened, kComma, kColon, kValue, kAfter };

struct Frame {
  uint32_t parent = 0;  // a frame; or, with kManyParents set, a place in the links
  FrameKind kind = FrameKind::kRoot;
  uint8_t phase = 0;   // Phase, or where in an escape
  uint8_t spaces = 0;  // whitespace so far in this place
  // Not 0: stands in an array of unique items: what it is counts. With kInOrder: an object that a
  // search gives members, those of properties from `aux` on.
  uint8_t watched = 0;
  uint32_t spec = 0;    // which value, string, object, array, rule state, automaton
  uint32_t state = 0;   // of the automaton; an object's witnesses
  uint32_t aux = 0;     // key trie node; what a key stood for; counters of an item; lexeme's target
  uint32_t aux2 = 0;    // a \u escape so far; hash of the key
  uint32_t extras = 0;  // the last of a list of kMember
  uint32_t missing = 0;  // properties that must still come
  uint64_t count = 0;    // characters, members, items
  uint64_t bits = 0;     // properties that were there (inline, or a place in words); counters
  uint64_t hash = 0;     // of the value so far
};

inline constexpr uint32_t kManyParents = 0x8000'0000;
inline constexpr uint32_t kNoNode = 0xffff'ffff;
inline constexpr uint32_t kNoFrame = 0xffff'ffff;
inline constexpr uint8_t kInOrder = 2;
inline constexpr uint8_t kNoSpace = 0xff;  // spaces of a value before which none may be

// What one text may hold, in bounded memory. Past that a step leads nowhere and overflowed(). (What
// following it may cost is WorkBudget's.)
inline constexpr size_t kTopsMax = 4096;
inline constexpr size_t kFramesMax = 1 << 18;
inline constexpr size_t kLinksMax = 1 << 20;
inline constexpr int kRuleDepthMax = 2000;  // calls within calls, before the next byte

// A place in a text, complete in itself: what a Matcher holds and forks. Immutable.
struct Position {
  std::vector<Frame> frames;
  std::vector<uint32_t> links;  // [place] = count, then the parents
  std::vector<uint64_t> words;
  std::vector<uint32_t> tops;
  bool can_end = false;  // the text is complete
};

inline bool is_json_space(uint8_t byte) {
  return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

class Machine {
 public:
  // Where the budget is exhausted, no byte leads anywhere. It outlives the machine.
  Machine(const Grammar& grammar, WorkBudget& budget);

  void start();  // at the beginning of a text
  void load(const Position& position);
  // What can be reached from `tops`, and nothing else.
  Position position(std::span<const uint32_t> tops) const;

  struct Mark {
    size_t frames, links, words;
  };
  Mark mark() const { return {frames_.size(), links_.size(), words_.size()}; }
  void take_back(const Mark& mark);

  // Appends to `out` where `byte` leads from tops; nothing if nowhere. Frames that are alike become
  // one, also with those that stand in `out` since `out_begin`.
  void step(std::span<const uint32_t> tops, uint8_t byte, std::vector<uint32_t>& out,
            size_t out_begin);
  // The last step led nowhere because it exceeded a limit.
  bool overflowed() const { return overflowed_; }
  // What follows once the child of frame `top` (a value, a rule...) is done.
  void resume_parents(uint32_t top, uint64_t hash, std::vector<uint32_t>& out, size_t out_begin);

  // What follows the texts of the automaton in which `top`, a lexeme, stands.
  void leave_lexeme(uint32_t top, std::vector<uint32_t>& out);

  // Whether the text may end with this top as it stands.
  bool can_end(uint32_t top) const;
  // Whether a number may end here (the byte after it says so, not its last), and by which bytes.
  bool number_may_end(const Frame& frame) const;
  bool may_follow_number(uint8_t byte) const {
    return rules_ != nullptr || byte == ',' || byte == '}' || byte == ']' || is_json_space(byte);
  }

  // A frame like `frame`, but on a probe instead of its parents.
  uint32_t probe(const Frame& frame);
  // As `top`, a key, but of the properties with a name alone, or of the other keys alone.
  uint32_t named_keys_only(uint32_t top);
  bool others_allowed(const Frame& key) const;
  // Nothing that its keys begin with leads only to keys that are there already.
  bool any_key_is_new(const Frame& key) const {
    const OtherKeys& others = *object_of(key).others;
    return others.counts->has_enough_everywhere() &&
           frames_[key.parent].count + object_of(key).properties.size() < TextCounts::kEnough;
  }
  const StringDfa& other_keys(const Frame& key) const { return *object_of(key).others->dfa; }
  bool stands_on_probe(const Frame& frame) const;
  // The string that probes without a value of their own are of.
  void set_probe_text(const StringSpec* text) { probe_text_ = text; }
  const StringSpec& string_spec(const Frame& frame) const {
    return frame.spec == kNoValue ? *probe_text_ : json_->values[frame.spec].strings[frame.aux];
  }
  // Not 0: frames with this content allow the same tokens in all grammars.
  uint64_t shared_content(const Frame& frame) const;
  uint64_t spaces_left(const Frame& frame) const;

  // The most items that an array around `top` has whose items are unique.
  uint64_t items_around(uint32_t top) const;
  // Of a key in an array of unique items: enough other keys may come, here or behind this one, so
  // that no beginning of one leads nowhere.
  bool key_has_many(uint32_t top) const;

  // How many different items an array of that spec (unique) can be given one after the other, at
  // most `most`; nothing if that takes too long to find out. Instead of start().
  std::optional<uint64_t> count_items(uint32_t array, uint64_t most);

  const Frame& frame(uint32_t index) const { return frames_[index]; }
  std::span<const uint32_t> tops() const { return tops_; }  // after start() or load()
  const Grammar& grammar() const { return grammar_; }

 private:
  enum class Text { kDead, kAlive, kClosed };
  struct StringFeed;
  struct KeyFeed;

  // Exhausted: what is being computed counts as an overflow.
  void spend(uint64_t steps) const {
    budget_.spend(steps);
    if (budget_.exhausted()) overflowed_ = true;
  }
  void push_top(Frame frame, std::vector<uint32_t>& out, size_t out_begin);
  void join(uint32_t& top, const Frame& frame);
  uint32_t push(const Frame& frame);
  uint32_t add_links(std::span<const uint32_t> parents);
  template <typename F>
  void for_parents(const Frame& frame, F&& visit) const {
    if ((frame.parent & kManyParents) == 0) {
      visit(frame.parent);
      return;
    }
    const uint32_t place = frame.parent & ~kManyParents;
    const uint32_t count = links_[place];
    for (uint32_t i = 1; i <= count; ++i) visit(links_[place + i]);
  }

  void step_tops(std::span<const uint32_t> tops, uint8_t byte, std::vector<uint32_t>& out,
                 size_t out_begin);
  void finish(uint32_t top, uint64_t hash, std::vector<uint32_t>& out, size_t out_begin);
  void resume(uint32_t parent, uint64_t hash, std::vector<uint32_t>& out, size_t out_begin);
  void step_value(const Frame& from, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);
  void step_string(const Frame& from, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);
  void step_number(uint32_t top, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);
  void step_literal(const Frame& from, uint32_t top, uint8_t byte, std::vector<uint32_t>& out,
                    size_t out_begin);
  void step_object(uint32_t top, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);
  void step_key(const Frame& from, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);
  void step_array(uint32_t top, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);

  template <typename Feed>
  Text step_text(Frame& frame, uint8_t byte, const Feed& feed) const;
  void number_digit(Frame& frame, uint8_t byte) const;
  bool number_ends(const Frame& frame, uint8_t byte) const {
    return may_follow_number(byte) && number_may_end(frame);
  }
  static uint64_t number_hash(const Frame& frame);

  void open_object(const Frame& from, uint32_t object, std::vector<uint32_t>& out,
                   size_t out_begin);
  void open_items(const Frame& array, std::vector<uint32_t>& out, size_t out_begin);
  void open_member(const Frame& object, const Choices& choices, std::vector<uint32_t>& out,
                   size_t out_begin);
  void open_key(uint32_t object_top, std::vector<uint32_t>& out, size_t out_begin);
  void close_key(const Frame& key, std::vector<uint32_t>& out, size_t out_begin);

  const ObjectSpec& object_of(const Frame& frame) const { return json_->objects[frame.spec]; }
  uint64_t seen_word(const Frame& object, size_t word) const;
  uint64_t needed_word(const Frame& object, const ObjectSpec& spec, size_t word) const;
  uint64_t open_word(const Frame& object, const ObjectSpec& spec, size_t word) const;
  uint64_t missing_with(const Frame& object, const ObjectSpec& spec, uint32_t property) const;
  void set_seen(Frame& object, const ObjectSpec& spec, uint32_t property);
  bool only_required(const Frame& object, const ObjectSpec& spec) const;
  bool any_open(const Frame& object, const ObjectSpec& spec, uint32_t begin, uint32_t end) const;
  bool can_open_key(const Frame& object) const;
  // Where another key stands: in its automaton, among the properties' names, and its hash.
  struct KeyPlace {
    DfaState state;
    uint32_t node;
    uint64_t hash;
  };
  bool has_new_key(const Frame& object, const KeyPlace& from) const;
  bool finds_new_key(const Frame& object, const KeyPlace& from, int depth, int64_t end) const;
  bool can_close_object(const Frame& object) const;
  bool can_close_array(const Frame& array) const;
  bool leaves_enough(const Frame& array, uint32_t counts, uint64_t left) const;
  const Choices* item_choices(const ArraySpec& spec, uint64_t index) const;
  bool was_there(uint32_t extras, uint64_t hash) const;
  uint32_t member_frame(uint32_t extras, uint64_t hash);
  const Choices& member_choices(const Frame& object) const;

  // Of arrays of unique items (machine_unique.cc). Drops the tops that only lead to items that are
  // there already.
  void keep_new(std::vector<uint32_t>& out, size_t out_begin);
  uint64_t ways_on(const Frame& frame) const;
  uint64_t texts_left(const Frame& frame) const;
  uint64_t keys_left(const Frame& key) const;
  uint64_t values_at_least(const Choices& choices) const;
  uint64_t object_ways(const Frame& object, const Frame* key) const;
  uint64_t array_ways(const Frame& array) const;
  uint64_t unique_array_ways(const ArraySpec& spec, uint64_t next) const;
  bool surely_new(const Frame& child, uint64_t ways) const;
  void add_goals(const Frame& child);
  bool finds_new(uint32_t top);
  bool may_do_without(const Frame& item) const;
  enum class Search { kFound, kNothing, kTooLong };
  Search search(std::span<const uint32_t> tops);
  bool search_on(std::span<const uint32_t> tops, int depth);
  bool any_takes(std::span<const uint32_t> tops, uint8_t byte) const;
  bool skip_space(uint32_t top, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);

  bool ends_below(const Frame& frame) const;
  // Nothing is read there before the rule is done.
  bool returns_at_once(uint32_t state) const {
    return rules_->states[state].accepting && !rules_->states[state].reads();
  }
  void step_rule(const Frame& from, uint8_t byte, std::vector<uint32_t>& out, size_t out_begin);
  void arrive(uint32_t state, uint32_t parent);
  void follow_rules(std::vector<uint32_t>& out, size_t out_begin);
  void add_parent(uint32_t state, uint32_t parent);
  void return_to(uint32_t parent, std::vector<uint32_t>& out, size_t out_begin);
  uint32_t parent_of_arrival(uint32_t index);
  uint32_t frame_of_call(uint32_t index);
  uint32_t call_frame(uint32_t state, uint32_t parent);
  void note_calls();

  const Grammar& grammar_;
  WorkBudget& budget_;
  const JsonTables* json_ = nullptr;
  const RuleNetwork* rules_ = nullptr;
  std::vector<Frame> frames_;
  std::vector<uint32_t> links_;
  std::vector<uint64_t> words_;
  std::vector<uint32_t> tops_;
  std::vector<uint32_t> new_members_;  // of this step: the last items of lists
  const StringSpec* probe_text_ = nullptr;
  RuleScratch ways_;
  int depth_ = 0;  // of frame_of_call
  // A search for a new item: of these arrays, in each other or side by side, one must get it.
  bool is_searching_ = false;
  bool has_found_ = false;
  Frame found_;  // the array with it
  std::vector<uint32_t> goals_;
  int64_t search_end_ = 0;  // of the budget
  // More ways at once than we follow, or work than was granted: the text counts as wrong from here.
  mutable bool overflowed_ = false;
};

}  // namespace pelton::grammar
