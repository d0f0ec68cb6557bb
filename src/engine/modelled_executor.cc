#include "engine/modelled_executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace pelton::engine {

namespace {

uint64_t checksum(uint64_t state, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    state = base::mix64(state + static_cast<uint64_t>(tokens[i]) * 0x9E3779B97F4A7C15ull + i);
  }
  return base::mix64(state + tokens.size());
}

ModelledExecutor::Options with_defaults(ModelledExecutor::Options options) {
  if (!options.embed) options.embed = word_vectors();
  if (!options.score) options.score = checksum_scores(options.capacity.vocab_size);
  return options;
}

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

ModelledExecutor::ModelledExecutor(Options options)
    : options_(with_defaults(std::move(options))),
      widest_(kv::widest_group(options_.capacity.groups)) {
  const ExecutorCapacity& capacity = options_.capacity;
  CHECK(options_.next_token != nullptr);
  CHECK(!options_.timing || (options_.timing->clock && options_.timing->step_ns));
  CHECK(!capacity.groups.empty(), "a model without KV groups");
  for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount && holds(); ++tier) {
    for (int group = 0; group < group_count(); ++group) {
      cells_[static_cast<size_t>(tier)].push_back(std::vector<Cell>(
          static_cast<size_t>(capacity.blocks(group, tier) * capacity.block_tokens)));
    }
  }
  for (int group = 0; group < group_count(); ++group) {
    has_disk_ = has_disk_ || capacity.blocks(group, kv::kDisk) > 0;
  }
  slots_.resize(static_cast<size_t>(capacity.slot_count()));
}

// What is damaged or not read leaves rubbish on the host.
void ModelledExecutor::begin(std::vector<kv::BlockTransfer> transfers) {
  using Outcome = kv::TransferResult::Outcome;
  const size_t block_tokens = static_cast<size_t>(options_.capacity.block_tokens);
  for (const kv::BlockTransfer& what : transfers) {
    const Outcome outcome =
        options_.transfer_outcome ? options_.transfer_outcome(what) : Outcome::kDone;
    transferred_.push_back({.id = what.id, .outcome = outcome});
    if (!holds()) continue;
    const bool reads = what.direction == kv::BlockTransfer::Direction::kRead;
    const std::vector<Cell>& from = cells(what.group, reads ? kv::kDisk : kv::kHost);
    std::vector<Cell>& to = cells(what.group, reads ? kv::kHost : kv::kDisk);
    const size_t read_at = static_cast<size_t>(reads ? what.slot : what.host) * block_tokens;
    const size_t write_at = static_cast<size_t>(reads ? what.host : what.slot) * block_tokens;
    for (size_t i = 0; i < block_tokens; ++i) {
      to[write_at + i] = outcome == Outcome::kDone ? from[read_at + i] : Cell{};
    }
  }
}

void ModelledExecutor::submit(StepPlan plan) {
  CHECK(pending_.size() < 2, "at most two steps may be submitted and not collected");
  CHECK(!plan.empty(), "an empty step");
  Pending pending;
  pending.result.step = plan.step;
  if (options_.timing) {
    const int64_t start = std::max(busy_until_ns_, options_.timing->clock->now_ns());
    busy_until_ns_ = start + options_.timing->step_ns(plan);
    pending.ready_ns = busy_until_ns_;
  }
  check_plan(plan);
  if (options_.fail_step) pending.result.error = options_.fail_step(plan);
  copy_blocks(plan, pending.result.error.has_value());
  seat_arrivals(plan);
  pending.result.sequences.reserve(plan.sequences.size());
  pending.result.tokens.reserve(plan.sequences.size());
  for (const ScheduledRow& row : plan.sequences) {
    if (pending.result.error) {
      slots_[static_cast<size_t>(row.slot)].lost = true;
    } else {
      compute(plan, row, pending.result);
    }
  }
  pending_.push_back(std::move(pending));
}

StepResult ModelledExecutor::collect() {
  CHECK(!pending_.empty(), "nothing to collect");
  Pending pending = std::move(pending_.front());
  pending_.erase(pending_.begin());
  if (options_.timing) {
    const int64_t left = pending.ready_ns - options_.timing->clock->now_ns();
    if (left > 0) options_.timing->pass(left);
  }
  return std::move(pending.result);
}

void ModelledExecutor::check_plan(const StepPlan& plan) {
  int token_count = 0;
  int draft_rows = 0;
  for (const ScheduledRow& row : plan.sequences) {
    CHECK(row.slot >= 0 && row.slot < options_.capacity.slot_count(), "no such slot");
    Occupant& occupant = slots_[static_cast<size_t>(row.slot)];
    CHECK(occupant.planned_in != plan.step, "two rows in one slot");
    occupant.planned_in = plan.step;
    if (holds()) occupant.tables.follow(plan, row);
    if (options_.checks) check_row(row);
    token_count += row.token_count() + row.draft_max;
    draft_rows += row.draft_max;
  }
  CHECK(draft_rows <= options_.capacity.draft_rows_max, "the step has too many guesses");
  CHECK(token_count <= options_.capacity.batch_tokens_max, "the step is over its token budget");
  if (options_.checks) check_unshared(plan);
}

void ModelledExecutor::check_row(const ScheduledRow& row) const {
  const ExecutorCapacity& capacity = options_.capacity;
  const int32_t end = row.start + row.token_count() + row.draft_max;
  CHECK(row.start >= 0 && end <= capacity.context_tokens_max, "a position outside the context");
  CHECK(row.draft_max >= 0 && row.draft_max <= capacity.draft_tokens_max, "too many guesses");
  CHECK(row.draft_max == 0 || (row.sample && row.tokens.count > 0),
        "guesses behind what is unknown");
  CHECK(row.sample || row.tokens.count > 0, "a decode that does not sample");
  CHECK(!row.sample || row.slot < capacity.sequences_max, "no logits are computed for this slot");
  CHECK(!row.embed || row.slot >= capacity.sequences_max, "this slot makes no embeddings");
  const auto covers = [&](const std::vector<BlockId>& blocks, int32_t begin, int block_count) {
    for (int32_t i = std::max(begin, 0) / capacity.block_tokens; i * capacity.block_tokens < end;
         ++i) {
      if (static_cast<size_t>(i) >= blocks.size()) return false;
      const BlockId block = blocks[static_cast<size_t>(i)];
      if (block < 0 || block >= block_count) return false;
    }
    return true;
  };
  for (int group = 0; group < group_count(); ++group) {
    CHECK(covers(tables(row).of(group), spec(group).first_seen(row.start),
                 capacity.blocks(group, kv::kDevice)),
          "a position that is seen without a " + spec(group).name + " block");
  }
}

// A block that one row writes must be in no other row's table.
void ModelledExecutor::check_unshared(const StepPlan& plan) const {
  for (int group = 0; group < group_count(); ++group) {
    const int block_count = options_.capacity.blocks(group, kv::kDevice);
    std::vector<int> ref_counts(static_cast<size_t>(block_count), 0);
    for (const ScheduledRow& row : plan.sequences) {
      for (const BlockId block : tables(row).of(group)) {
        if (block != kNoBlock) ++ref_counts[static_cast<size_t>(block)];
      }
    }
    for (const ScheduledRow& row : plan.sequences) {
      const int32_t first = row.start / options_.capacity.block_tokens;
      const int32_t last =
          (row.start + row.token_count() + row.draft_max - 1) / options_.capacity.block_tokens;
      for (int32_t i = first; i <= last; ++i) {
        const BlockId block = tables(row).of(group)[static_cast<size_t>(i)];
        CHECK(ref_counts[static_cast<size_t>(block)] == 1, "a block that is written is shared");
      }
    }
  }
}

// Nobody may rely on what a failed step has copied: it leaves rubbish.
void ModelledExecutor::take_over(ModelledExecutor& from, const kv::PeerOffer::Block& block,
                                 kv::BlockId host) {
  const auto tokens = static_cast<size_t>(options_.capacity.block_tokens);
  const std::vector<Cell>& source = from.cells(block.group, block.tier);
  std::copy_n(
      source.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(block.block) * tokens),
      tokens,
      cells(block.group, kv::kHost).begin() +
          static_cast<std::ptrdiff_t>(static_cast<size_t>(host) * tokens));
}

void ModelledExecutor::copy_blocks(const StepPlan& plan, bool failed) {
  if (!holds()) return;
  const size_t block_tokens = static_cast<size_t>(options_.capacity.block_tokens);
  for (const BlockCopy& copy : plan.copies) {
    const std::vector<Cell>& from = cells(copy.group, copy.from_tier);
    std::vector<Cell>& to = cells(copy.group, copy.to_tier);
    const size_t read_at = static_cast<size_t>(copy.from) * block_tokens;
    const size_t write_at = static_cast<size_t>(copy.to) * block_tokens;
    CHECK(copy.from >= 0 && read_at + block_tokens <= from.size(), "copying from no block");
    CHECK(copy.to >= 0 && write_at + block_tokens <= to.size(), "copying to no block");
    for (size_t i = 0; i < block_tokens; ++i) {
      to[write_at + i] = failed ? Cell{} : from[read_at + i];
    }
  }
}

void ModelledExecutor::seat_arrivals(const StepPlan& plan) {
  for (const ScheduledRow& row : plan.sequences) {
    const Arrival* const arrival = plan.arrival_of(row);
    if (arrival == nullptr) continue;
    Occupant& occupant = slots_[static_cast<size_t>(row.slot)];
    occupant = Occupant{.tables = std::move(occupant.tables), .planned_in = plan.step};
    occupant.lost = false;
    occupant.sampling = arrival->sampling;
    occupant.prompt_count = arrival->prompt_count;
    occupant.history = arrival->history;
    if (!holds()) occupant.seen = arrival->history;
    occupant.pooling = arrival->pooling;
    occupant.label_count = static_cast<int>(arrival->label_tokens.size());
    occupant.guide = arrival->guide;
    if (occupant.guide) {
      for (size_t i = static_cast<size_t>(arrival->prompt_count); i < arrival->history.size();
           ++i) {
        CHECK(occupant.guide->accept(arrival->history[i]), "a token that its guide refuses");
      }
    }
    occupant.first = row.start;
    occupant.computed = row.start;
    occupant.arrival = ++arrivals_;
  }
}

void ModelledExecutor::compute(const StepPlan& plan, const ScheduledRow& row, StepResult& result) {
  Occupant& occupant = slots_[static_cast<size_t>(row.slot)];
  SequenceResult& reported = result.sequences.emplace_back();
  reported.slot = row.slot;
  const bool samples = row.sample && row.start + row.token_count() >= occupant.known;
  if (samples) {
    reported.tokens = {static_cast<int32_t>(result.tokens.size()), 1};
    result.tokens.emplace_back();
  }
  if (row.embed) {
    const int size = vector_size(occupant);
    reported.embedding = {static_cast<int32_t>(result.floats.size()), size};
    result.floats.resize(result.floats.size() + static_cast<size_t>(size));
  }
  reported.scored = {static_cast<int32_t>(result.prompt_tokens.size()), row.targets.count};
  result.prompt_tokens.resize(result.prompt_tokens.size() + static_cast<size_t>(row.targets.count));
  // Planned while the step before was running, which failed: the scheduler will discard this row.
  if (occupant.lost) return;
  if (row.tokens.count > 0) occupant.deferral = nullptr;
  if (occupant.deferral != nullptr) return defer(occupant.deferral, result);  // a void row
  CHECK(row.start == occupant.computed, "positions of a slot must follow each other");
  std::span<const TokenId> tokens = row.tokens.of(plan.tokens);
  if (tokens.empty()) {
    CHECK(occupant.sampled_in == plan.step - 1, "the step before sampled nothing in this slot");
    tokens = {&occupant.sampled, 1};
  }
  if (holds()) {
    write(row, row.start, tokens);
    if (spec(widest_).slides()) {
      // What no later query sees is read back from nowhere, and a mean adds it up all the same.
      occupant.seen.resize(static_cast<size_t>(row.start), kUnseen);
      occupant.seen.insert(occupant.seen.end(), tokens.begin(), tokens.end());
    }
  } else {
    const auto start = static_cast<size_t>(row.start);
    if (occupant.seen.size() < start) occupant.seen.resize(start);  // found: nobody said so
    const size_t known = std::min(occupant.seen.size() - start, tokens.size());
    occupant.seen.insert(occupant.seen.end(), tokens.begin() + static_cast<ptrdiff_t>(known),
                         tokens.end());
  }
  occupant.computed += row.token_count();
  if (row.targets.count > 0) score(plan, row, occupant, result);
  if (row.embed) {
    embed(row, occupant,
          std::span(result.floats).last(static_cast<size_t>(reported.embedding.count)));
  }
  if (samples && occupant.guide && options_.defer) occupant.deferral = options_.defer(row);
  if (occupant.deferral != nullptr) {
    --occupant.computed;
    return defer(occupant.deferral, result);
  }
  if (samples) sample_row(plan, row, occupant, result);
}

// As a sampler does: the likeliest, then what is asked for by id.
void ModelledExecutor::report(const Occupant& occupant, int top, SampledToken& sampled) const {
  const auto seen = visible(occupant.seen);
  sampled = options_.score(seen, occupant.sampled, top).scored;
  const size_t best = sampled.top.size();
  for (const TokenId token : occupant.sampling.logprob_tokens) {
    const bool is_listed =
        std::any_of(sampled.top.begin(), sampled.top.begin() + std::ptrdiff_t(best),
                    [&](const auto& known) { return known.first == token; });
    if (!is_listed) sampled.top.emplace_back(token, options_.score(seen, token, 0).scored.logprob);
  }
}

// Token by token, as long as the guess behind each is right; the cells of wrong ones hold what was
// guessed.
void ModelledExecutor::sample_row(const StepPlan& plan, const ScheduledRow& row, Occupant& occupant,
                                  StepResult& result) {
  SequenceResult& emitted = result.sequences.back();
  emitted.drafted = row.draft_max;
  occupant.sampled_in = plan.step;
  while (true) {
    occupant.sampled = sample(plan, row, occupant, emitted);
    result.tokens.back().token = occupant.sampled;
    if (emitted.error) return;
    if (const int top = occupant.sampling.logprobs; top >= 0) {
      report(occupant, top, result.tokens.back());
    }
    jump(row, occupant, result);
    if (emitted.accepted == emitted.drafted || emitted.tokens.count > 1 + emitted.accepted) break;
    const bool right = is_right(occupant, emitted.accepted);
    const TokenId guess =
        right ? occupant.sampled : (occupant.sampled + 1) % options_.capacity.vocab_size;
    if (!right) {
      if (holds()) {
        const auto left = static_cast<size_t>(emitted.drafted - emitted.accepted);
        write(row, occupant.computed, std::vector<TokenId>(left, guess));
      }
      break;
    }
    if (holds()) write(row, occupant.computed, {&guess, 1});
    if (!holds() || spec(widest_).slides()) occupant.seen.push_back(guess);
    ++occupant.computed;
    ++emitted.accepted;
    ++emitted.tokens.count;
    result.tokens.emplace_back();
  }
}

bool ModelledExecutor::is_right(const Occupant& occupant, int place) const {
  if (occupant.guide && occupant.guide->over()) return false;
  const auto position = static_cast<uint64_t>(occupant.computed);
  const double share = options_.draft_acceptance_of
                           ? options_.draft_acceptance_of(occupant.sampling.seed, place)
                           : options_.draft_acceptance;
  return base::random_unit(options_.draft_seed + occupant.sampling.seed, position) < share;
}

void ModelledExecutor::defer(std::shared_ptr<const Deferral> deferral, StepResult& result) {
  result.sequences.back().deferral = std::move(deferral);
  result.sequences.back().tokens.count = 0;
  result.tokens.pop_back();
}

void ModelledExecutor::jump(const ScheduledRow& row, Occupant& occupant, StepResult& result) {
  const bool may = options_.jump_tokens_max > 0 && occupant.guide && row.forced == kNotForced &&
                   occupant.sampling.logprobs < 0;
  if (!may) return;
  const auto most = static_cast<size_t>(std::min(options_.jump_tokens_max, kJumpTokensMax));
  for (const TokenId token : occupant.guide->forced(most)) {
    CHECK(occupant.guide->accept(token), "a forced token that its guide refuses");
    if (occupant.sampling.reads_history()) occupant.history.push_back(token);
    result.tokens.push_back({.token = token});
    ++result.sequences.back().tokens.count;
    occupant.known = row.start + row.token_count() + result.sequences.back().tokens.count;
  }
}

void ModelledExecutor::write(const ScheduledRow& row, int32_t start,
                             std::span<const TokenId> tokens) {
  const int block_tokens = options_.capacity.block_tokens;
  const auto cell_of = [&](const std::vector<BlockId>& blocks, int32_t position) {
    const BlockId block = blocks[static_cast<size_t>(position / block_tokens)];
    return static_cast<size_t>(block * block_tokens + position % block_tokens);
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t position = start + static_cast<int32_t>(i);
    const Cell cell{.token = tokens[i], .position = position};
    for (int group = 0; group < group_count(); ++group) {
      cells(group, kv::kDevice)[cell_of(tables(row).of(group), position)] = cell;
    }
  }
}

void ModelledExecutor::read(std::vector<TokenId>& into, int group, const SlotTables& tables,
                            int32_t begin, int32_t end) {
  const int block_tokens = options_.capacity.block_tokens;
  const std::vector<BlockId>& blocks = tables.of(group);
  const std::vector<Cell>& held = cells(group, kv::kDevice);
  for (int32_t position = begin; position < end; ++position) {
    const BlockId block = blocks[static_cast<size_t>(position / block_tokens)];
    const Cell& cell = held[static_cast<size_t>(block * block_tokens + position % block_tokens)];
    CHECK(cell.position == position, "a block holds other positions than its table says");
    into[static_cast<size_t>(position)] = cell.token;
  }
}

// What lies where attention of a row that begins at `start` would look, into occupant.seen.
void ModelledExecutor::read_seen(Occupant& occupant, int32_t start) {
  if (!holds()) return;
  const int32_t end = occupant.computed;
  std::vector<TokenId>& seen = occupant.seen;
  const auto known = static_cast<int32_t>(seen.size());
  const bool slides = spec(widest_).slides();
  const int32_t from = options_.checks || slides ? 0 : known;
  if (options_.checks && !slides) seen.clear();
  seen.resize(static_cast<size_t>(end), kUnseen);
  read(seen, widest_, occupant.tables, std::max(from, spec(widest_).first_seen(start)), end);
  if (options_.checks) check_groups_agree(occupant);
}

void ModelledExecutor::check_groups_agree(const Occupant& occupant) {
  const int32_t end = occupant.computed;
  seen_again_.resize(static_cast<size_t>(end));
  for (int group = 0; group < group_count(); ++group) {
    if (group == widest_) continue;
    const int32_t from = spec(group).first_seen(end - 1);
    read(seen_again_, group, occupant.tables, from, end);
    CHECK(std::equal(seen_again_.begin() + from, seen_again_.begin() + end,
                     occupant.seen.begin() + from, occupant.seen.begin() + end),
          "two groups hold different tokens");
  }
}

std::span<const TokenId> ModelledExecutor::visible(std::span<const TokenId> tokens) const {
  return tokens.subspan(
      static_cast<size_t>(spec(widest_).first_seen(static_cast<int>(tokens.size()) - 1)));
}

int ModelledExecutor::vector_size(const Occupant& occupant) const {
  const int size = options_.capacity.embedding_size;
  if (occupant.pooling == request::Pooling::kAll) return size * occupant.prompt_count;
  return occupant.pooling == request::Pooling::kTokens ? occupant.label_count : size;
}

void ModelledExecutor::embed(const ScheduledRow& row, Occupant& occupant,
                             std::span<float> embedding) {
  CHECK(occupant.pooling.has_value(), "an embedding of what was not announced as one");
  CHECK(occupant.computed == occupant.prompt_count, "an embedding before the prompt's end");
  using request::Pooling;
  const Pooling pooling = *occupant.pooling;
  const bool of_all = pooling == Pooling::kMean || pooling == Pooling::kAll;
  CHECK(of_all || pooling == Pooling::kLast || pooling == Pooling::kTokens,
        "only these are modelled: it is no encoder, and has no heads");
  CHECK(!of_all || occupant.first == 0, "vectors of tokens that were not computed here");
  read_seen(occupant, row.start);
  if (pooling == Pooling::kAll) {
    const auto size = static_cast<size_t>(options_.capacity.embedding_size);
    for (size_t i = 0; i * size < embedding.size(); ++i) {
      options_.embed(visible(std::span(occupant.seen).first(i + 1)), Pooling::kLast,
                     embedding.subspan(i * size, size));
    }
    return;
  }
  // A mean adds up what each token of the prompt has seen. Logits are numbers like others.
  options_.embed(of_all ? occupant.seen : visible(occupant.seen), of_all ? pooling : Pooling::kLast,
                 embedding);
}

void ModelledExecutor::score(const StepPlan& plan, const ScheduledRow& row, Occupant& occupant,
                             StepResult& result) {
  CHECK(occupant.sampling.prompt_logprobs >= 0, "nobody asked for the prompt's log-probabilities");
  CHECK(row.targets.count <= row.token_count() &&
            row.start + row.targets.count < occupant.prompt_count,
        "targets beyond the prompt");
  read_seen(occupant, row.start);
  size_t before = static_cast<size_t>(row.start);
  size_t at = static_cast<size_t>(result.sequences.back().scored.first);
  for (const TokenId target : row.targets.of(plan.tokens)) {
    ++before;
    CHECK(before == occupant.seen.size() || occupant.seen[before] == target,
          "a target that is not the prompt's next token");
    result.prompt_tokens[at++] = options_.score(visible(std::span(occupant.seen).first(before)),
                                                target, occupant.sampling.prompt_logprobs);
  }
}

TokenId ModelledExecutor::sample(const StepPlan& plan, const ScheduledRow& row, Occupant& occupant,
                                 SequenceResult& reported) {
  read_seen(occupant, row.start);
  if (options_.checks && occupant.sampling.reads_history()) {
    const std::span<const TokenId> known = visible(occupant.history);
    const std::span<const TokenId> seen = visible(occupant.seen);
    CHECK(std::equal(known.begin(), known.end(), seen.begin(), seen.end()),
          "the sampling's history is not what was computed");
  }
  std::span<const uint64_t> allowed;
  if (occupant.guide) allowed = occupant.guide->mask(mask_);
  const bool forced = row.forced != kNotForced && grammar::may_be(allowed, row.forced);
  kv::PerGroup<std::span<const TokenId>> by_group;
  const auto last = static_cast<int>(occupant.seen.size()) - 1;
  for (int group = 0; group < group_count(); ++group) {
    by_group.push_back(
        std::span(occupant.seen).subspan(static_cast<size_t>(spec(group).first_seen(last))));
  }
  const bool bans = occupant.computed < row.banned_end;
  const std::span<const TokenId> banned =
      bans ? row.banned.of(plan.banned) : std::span<const TokenId>();
  const TokenId token = forced ? row.forced
                               : options_.next_token({.tokens = occupant.seen,
                                                      .by_group = by_group,
                                                      .prompt_count = occupant.prompt_count,
                                                      .sampling = occupant.sampling,
                                                      .banned = banned,
                                                      .allowed = allowed,
                                                      .slot = row.slot,
                                                      .arrival = occupant.arrival});
  // A model by the book may say what its request forbids; no other answer will do then.
  if (occupant.guide && !occupant.guide->accept(token)) {
    reported.error = std::make_unique<Error>(
        Error{ErrorCode::kInternal, "the modelled answer does not follow the request's grammar"});
    reported.tokens.count = 0;
  }
  if (occupant.sampling.reads_history()) occupant.history.push_back(token);
  return token;
}

ModelledExecutor::TokenFunction checksum_tokens(int vocabulary) {
  CHECK(vocabulary >= 2);
  return [vocabulary](const ModelledExecutor::Seen& seen) {
    uint64_t state = base::mix64(seen.sampling.seed + static_cast<uint64_t>(seen.prompt_count));
    for (const std::span<const TokenId> tokens : seen.by_group) state = checksum(state, tokens);
    TokenId token = static_cast<TokenId>(state % static_cast<uint64_t>(vocabulary));
    const auto may_come = [&](TokenId one) {
      const auto word = static_cast<size_t>(one) / 64;
      const bool allowed = seen.allowed.empty() || (word < seen.allowed.size() &&
                                                    (seen.allowed[word] >> (one % 64) & 1) != 0);
      return allowed && !contains(seen.banned, one);
    };
    for (int i = 0; i < vocabulary && !may_come(token); ++i) {
      token = (token + 1) % vocabulary;
    }
    return token;
  };
}

ModelledExecutor::ScoreFunction checksum_scores(int vocabulary) {
  return [vocabulary](std::span<const TokenId> before, TokenId token, int top) {
    const uint64_t seen = checksum(1, before);
    // Eighths, so that sums and texts of them are exact.
    const auto drop = [](uint64_t bits) { return static_cast<float>(bits % 32 + 1) / 8.0f; };
    PromptToken reported;
    float logprob = 0.0f;
    std::vector<std::pair<TokenId, float>> likely;
    for (int i = 0; i <= std::max(top, 8) && i < vocabulary; ++i) {
      logprob -= drop(base::mix64(seen + static_cast<uint64_t>(i)));
      const auto id = static_cast<TokenId>((seen + static_cast<uint64_t>(i)) %
                                           static_cast<uint64_t>(vocabulary));
      likely.emplace_back(id, logprob);
    }
    // It is one of these, or less likely than all.
    const auto rank =
        static_cast<size_t>(std::find_if(likely.begin(), likely.end(),
                                         [&](const auto& one) { return one.first == token; }) -
                            likely.begin());
    reported.rank = static_cast<int32_t>(rank) + 1;
    reported.scored.token = token;
    reported.scored.logprob =
        rank < likely.size() ? likely[rank].second
                             : logprob - drop(base::mix64(seen ^ static_cast<uint64_t>(token)));
    likely.resize(std::min(likely.size(), static_cast<size_t>(top)));
    reported.scored.top = std::move(likely);
    return reported;
  };
}

ModelledExecutor::EmbeddingFunction word_vectors() {
  // Uniform in [-1, 1).
  const auto component = [](TokenId token, size_t i) {
    const uint64_t bits = base::mix64(static_cast<uint64_t>(token) * 0x9E3779B97F4A7C15ull + i);
    return static_cast<double>(bits >> 11) * 0x1p-52 - 1.0;
  };
  return [component](std::span<const TokenId> prompt, request::Pooling pooling,
                     std::span<float> embedding) {
    for (size_t i = 0; i < embedding.size(); ++i) {
      double sum = 0.0;
      for (const TokenId token : prompt) sum += component(token, i);
      sum /= static_cast<double>(prompt.size());
      if (pooling == request::Pooling::kLast) sum += component(prompt.back(), i);
      embedding[i] = static_cast<float>(sum);
    }
  };
}

ModelledExecutor::TokenFunction scripted_tokens(std::map<uint64_t, std::vector<TokenId>> scripts) {
  return [scripts = std::move(scripts)](const ModelledExecutor::Seen& seen) {
    const auto script = scripts.find(seen.sampling.seed);
    CHECK(script != scripts.end() && !script->second.empty(), "no script for this seed");
    const size_t line = seen.tokens.size() - static_cast<size_t>(seen.prompt_count);
    return script->second[std::min(line, script->second.size() - 1)];
  };
}

}  // namespace pelton::engine
