#include "speculative/eagle3.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::speculative {
namespace {

constexpr int kBlockTokens = 16;  // what fast kernels read at a time
constexpr int64_t kFloatBytes = sizeof(float);

int blocks_of(int tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

// Ids of a draft vocabulary are others than the target's.
request::SamplingParams params_of(const request::SamplingParams& sampling) {
  request::SamplingParams params = guess_params(sampling);
  params.logit_bias.clear();
  params.allowed_tokens.clear();
  return params;
}

}  // namespace

Result<std::shared_ptr<Eagle3>> Eagle3::load(const Options& options,
                                             const checkpoint::Checkpoint& target,
                                             base::ThreadPool& pool) {
  CHECK(options.tokens_max > options.guesses_max);
  std::shared_ptr<Eagle3> made(new Eagle3(options, pool));
  TRY(made->allocate(target));
  return made;
}

Result<void> Eagle3::allocate(const checkpoint::Checkpoint& target) {
  TRY_ASSIGN(kernels_, kernels::make_kernels(options_.kernels, pool_));
  TRY_ASSIGN(Eagle3Head head, Eagle3Head::load(options_.head, target, *kernels_));
  head_ = std::make_unique<Eagle3Head>(std::move(head));
  const int slot_blocks = blocks_of(options_.tokens_max);
  models::KvStorage::Options storage{.dtype = kernels_->kv_dtype(), .block_tokens = kBlockTokens};
  storage.block_counts.push_back(options_.slot_count * slot_blocks);
  TRY_ASSIGN(models::KvStorage kv, models::KvStorage::allocate(head_->config().layer, storage));
  kv_ = std::make_unique<models::KvStorage>(std::move(kv));
  sampler_ = std::make_unique<GuessSampler>(pool_, head_->draft_vocab());
  const auto hidden = static_cast<size_t>(head_->hidden());
  const auto slots = static_cast<size_t>(options_.slot_count);
  blocks_.resize(slots * static_cast<size_t>(slot_blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  slot_features_.resize(slots * hidden);
  taps_.resize(static_cast<size_t>(options_.batch_tokens_max) * kEagle3Taps * hidden);
  features_.resize(Eagle3Head::kRowsMax * hidden);
  slots_.resize(slots);
  stores_.resize(slots);
  for (size_t i = 0; i < slots; ++i) {
    slots_[i].feature = slot_features_.data() + i * hidden;
    stores_[i].blocks = blocks_.data() + i * static_cast<size_t>(slot_blocks);
    stores_[i].tokens.reserve(static_cast<size_t>(options_.tokens_max));
  }
  return {};
}

Result<int64_t> Eagle3::bytes_for(const Options& options, const families::ModelConfig& target,
                                  const BytesFacts& facts) {
  TRY_ASSIGN(const Eagle3Config config, Eagle3Head::read_config(options.head, target));
  TRY_ASSIGN(const Eagle3Head::Bytes head,
             Eagle3Head::bytes_for(options.head, target, facts.is_reference));
  const families::KvGroups groups =
      families::kv_groups(config.layer, {.dtype = facts.kv_dtype, .block_tokens = kBlockTokens});
  const int64_t hidden = config.layer.hidden_size;
  const int64_t rows =
      options.slot_count + int64_t{kEagle3Taps} * options.batch_tokens_max + Eagle3Head::kRowsMax;
  return head.weights + head.workspace +
         groups.specs[0].block_bytes * options.slot_count * blocks_of(options.tokens_max) +
         int64_t{sizeof(TokenId)} * options.slot_count * options.tokens_max +
         kFloatBytes * hidden * rows +
         GuessSampler::bytes_for(facts.threads, config.draft_vocab_size);
}

int64_t Eagle3::bytes() const {
  const size_t floats = slot_features_.capacity() + taps_.capacity() + features_.capacity();
  int64_t tokens = 0;
  for (const Store& store : stores_) tokens += static_cast<int64_t>(store.tokens.capacity());
  return head_->weight_bytes() + head_->workspace_bytes() + kv_->bytes() + sampler_->bytes() +
         tokens * int64_t{sizeof(TokenId)} + static_cast<int64_t>(floats) * kFloatBytes;
}

std::string Eagle3::warning() const {
  if (head_->config().turns_as_target) return "";
  return fmt::format(
      "the EAGLE-3 head {} has other rotary embeddings than the model: its guesses "
      "grow worse as the context grows beyond what it was trained on",
      options_.head);
}

void Eagle3::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  change_store(slot);
  take_beginning(*slot.store, sequence);
  slot.has_feature = false;
  if (sequence.sampling != nullptr) slot.sampling = params_of(*sequence.sampling);
}

// The slot's store is left to whoever begins alike, and the slot gets the one that was left longest
// ago. There is one: there are as many stores as slots.
void Eagle3::change_store(Slot& slot) {
  ++begun_;
  if (slot.store != nullptr) slot.store->left = begun_;
  for (Store& store : stores_) {
    if (store.left == kHeld) continue;
    const bool is_older = slot.store == nullptr || store.left < slot.store->left;
    if (is_older) slot.store = &store;
  }
  CHECK(slot.store != nullptr);
  slot.store->left = kHeld;
}

// The longest beginning of the sequence that any store holds, of those it may share with, becomes
// the store's. Bounded: tokens_max tokens of each store are looked at, and as many keys and values
// copied.
void Eagle3::take_beginning(Store& store, const NewSequence& sequence) {
  const std::span<const TokenId> tokens = sequence.tokens;
  const Store* longest = &store;
  size_t common = 0;
  for (const Store& other : stores_) {
    if (sequence.origin == kv::BlockHash{} || !(other.origin == sequence.origin)) continue;
    const auto end =
        std::mismatch(other.tokens.begin(), other.tokens.end(), tokens.begin(), tokens.end());
    const auto length = static_cast<size_t>(end.first - other.tokens.begin());
    if (length > common || (length == common && &other == &store)) {
      longest = &other;
      common = length;
    }
  }
  if (longest != &store) {
    for (int block = 0; block < blocks_of(static_cast<int>(common)); ++block) {
      kv_->copy_block(*kv_, {.from = longest->blocks[block], .to = store.blocks[block]}, 0);
    }
  }
  store.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(common));
  store.origin = sequence.origin;
  store.beginning = 0;
  store.first = 0;
  store.next = static_cast<int>(common);
}

// (rows, hidden) of one tap into (rows, taps, hidden).
void Eagle3::see(size_t tap, const float* x, int rows) {
  const int64_t hidden = head_->hidden();
  CHECK(rows <= options_.batch_tokens_max);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(x + row * hidden, hidden,
                taps_.data() + (row * kEagle3Taps + static_cast<int64_t>(tap)) * hidden);
  }
}

// Up to the rows' start what is kept stays; behind a hole they go on (of an earlier hole only what
// is before it stays); where there is no room it begins anew.
void Eagle3::make_room(Store& store, const ComputedRows& rows) const {
  const int room = options_.tokens_max - options_.guesses_max;
  const bool has_hole = store.first > 0;
  const int whole = has_hole ? store.beginning : store.next;
  if (rows.start <= whole) {
    store.beginning = store.first = 0;
  } else if (!has_hole || rows.start < store.first || rows.start > store.next) {
    store.beginning = whole;
    store.first = rows.start;
  }
  store.next = rows.start;
  if (store.places() + rows.count > room) {
    store.beginning = 0;
    store.first = std::max(rows.start, rows.start + rows.count - room);
    store.next = store.first;
  }
  // What is kept from position 0 on another sequence may begin with.
  const int kept = store.first == 0 ? rows.start + rows.count : store.beginning;
  const int same =
      std::min(store.first == 0 ? store.next : kept, static_cast<int>(store.tokens.size()));
  store.tokens.resize(static_cast<size_t>(same));
  store.tokens.insert(store.tokens.end(), rows.tokens.begin() + same, rows.tokens.begin() + kept);
}

void Eagle3::observe(std::span<const ComputedRows> computed) {
  kept_.clear();
  for (const ComputedRows& rows : computed) {
    Slot& slot = slots_[static_cast<size_t>(rows.slot)];
    make_room(*slot.store, rows);
    for (int position = slot.store->next; position < rows.start + rows.count; ++position) {
      kept_.push_back({.slot = &slot,
                       .row = rows.first_row + position - rows.start,
                       .position = position,
                       .next = rows.tokens[static_cast<size_t>(position) + 1]});
      if (kept_.size() == Eagle3Head::kRowsMax) keep();
    }
  }
  keep();
}

// Rows come in order, so what is moved to the front of the taps covers only rows that are done.
void Eagle3::keep() {
  if (kept_.empty()) return;
  const int64_t hidden = head_->hidden();
  const int64_t width = kEagle3Taps * hidden;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const float* const from = taps_.data() + kept_[i].row * width;
    float* const to = taps_.data() + static_cast<int64_t>(i) * width;
    if (from != to) std::copy_n(from, width, to);
  }
  head_->combine(features_.data(), taps_.data(), static_cast<int>(kept_.size()));
  rows_.clear();
  for (size_t i = 0; i < kept_.size(); ++i) {
    Slot& slot = *kept_[i].slot;
    const float* const feature = features_.data() + static_cast<int64_t>(i) * hidden;
    Store& store = *slot.store;
    rows_.push_back({.token = kept_[i].next,
                     .feature = feature,
                     .position = kept_[i].position,
                     .place = store.places(),
                     .blocks = store.blocks});
    std::copy_n(feature, hidden, slot.feature);
    store.next = kept_[i].position + 1;
    slot.has_feature = true;
  }
  head_->remember(rows_, kv_->layer(0));
  kept_.clear();
}

// The target has computed all tokens but the newest, and its state of the last of them is kept.
bool Eagle3::can_draft(const DraftRequest& request) const {
  const Slot& slot = slots_[static_cast<size_t>(request.slot)];
  return slot.has_feature && slot.store->next + 1 == static_cast<int>(request.tokens.size());
}

Result<void> Eagle3::draft(std::span<DraftRequest> requests) {
  std::vector<Chain> chains;
  for (DraftRequest& request : requests) {
    if (!can_draft(request)) continue;
    chains.push_back({&request, &slots_[static_cast<size_t>(request.slot)]});
    if (chains.size() < Eagle3Head::kRowsMax) continue;
    draft_chains(chains);
    chains.clear();
  }
  draft_chains(chains);
  return {};
}

// Guess by guess, all chains together; features_ holds what each goes on from.
void Eagle3::draft_chains(std::span<Chain> chains) {
  const int64_t hidden = head_->hidden();
  for (size_t i = 0; i < chains.size(); ++i) {
    std::copy_n(chains[i].slot->feature, hidden,
                features_.data() + static_cast<int64_t>(i) * hidden);
  }
  while (!chains.empty()) {
    rows_.clear();
    for (size_t i = 0; i < chains.size(); ++i) {
      const DraftRequest& request = *chains[i].request;
      const Store& store = *chains[i].slot->store;
      const std::vector<TokenId>& guesses = request.guesses;
      const auto newest = static_cast<int>(guesses.size()) - 1;
      rows_.push_back({.token = guesses.empty() ? request.tokens.back() : guesses.back(),
                       .feature = features_.data() + static_cast<int64_t>(i) * hidden,
                       .position = store.next + newest,
                       .place = store.places() + newest,
                       .blocks = store.blocks});
    }
    guess(chains, head_->forward(rows_, kv_->layer(0), features_.data()));
    size_t left = 0;
    for (size_t i = 0; i < chains.size(); ++i) {
      const DraftRequest& request = *chains[i].request;
      const int most = std::min(request.tokens_max, options_.guesses_max);
      const bool goes_on = draws_[i].usable && static_cast<int>(request.guesses.size()) < most;
      if (!goes_on) continue;
      chains[left] = chains[i];
      if (left != i) {
        std::copy_n(features_.data() + static_cast<int64_t>(i) * hidden, hidden,
                    features_.data() + static_cast<int64_t>(left) * hidden);
      }
      ++left;
    }
    chains = chains.first(left);
  }
}

// logits: float (chains, draft vocabulary). A chain ends where the head says no number, or names
// what is never sampled.
void Eagle3::guess(std::span<Chain> chains, float* logits) {
  draws_.clear();
  for (const Chain& chain : chains) {
    const DraftRequest& request = *chain.request;
    draws_.push_back(
        {.params = &chain.slot->sampling,
         .position = static_cast<int>(request.tokens.size() + request.guesses.size())});
  }
  sampler_->draw(draws_, logits, head_->draft_vocab(), head_->draft_vocab());
  for (size_t i = 0; i < chains.size(); ++i) {
    if (!draws_[i].usable) continue;
    const TokenId guess = head_->target_id(draws_[i].guess);
    draws_[i].usable = guess < options_.sampled_vocab;
    if (draws_[i].usable) chains[i].request->guesses.push_back(guess);
  }
}

}  // namespace pelton::speculative
