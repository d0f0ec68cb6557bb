// A draft model beside its plain twin: the same model, a token at a time, outside of any proposer.
#include "speculative/draft_model.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/random.h"
#include "models/model.h"
#include "models/sequence_runner.h"

namespace pelton::speculative {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kVocab = 512;

std::string folder() {
  return std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
}

Tokens random_text(int length, uint64_t seed) {
  Tokens tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(base::random_bits(seed, uint64_t(i)) % kVocab));
  }
  return tokens;
}

class DraftModelProposer : public testing::Test {
 protected:
  static std::shared_ptr<DraftModel> make(
      int slots, int tokens_max,
      kernels::KernelChoice kernels = kernels::KernelChoice::kReference) {
    auto made = DraftModel::load({.model = folder(),
                                  .slot_count = slots,
                                  .vocab_size = kVocab,
                                  .sampled_vocab = kVocab,
                                  .tokens_max = tokens_max,
                                  .kernels = kernels},
                                 pool());
    CHECK(made.ok(), made.ok() ? "" : made.error().message);
    return *made;
  }

  static base::ThreadPool& pool() {
    static auto* const made = new base::ThreadPool({.threads = 1, .pin = false});
    return *made;
  }

  // Greedy, so that guesses are the likeliest.
  static void begin(DraftModel& proposer, int slot, const Tokens& tokens, uint64_t origin) {
    request::SamplingParams sampling;
    sampling.temperature = 0;
    proposer.begin(
        {.slot = slot, .tokens = tokens, .sampling = &sampling, .origin = {.low = origin}});
  }

  static Tokens guesses(DraftModel& proposer, int slot, const Tokens& tokens, int most) {
    DraftRequest request{.slot = slot, .tokens = tokens, .tokens_max = most};
    EXPECT_TRUE(proposer.draft({&request, 1}).ok());
    return request.guesses;
  }

  // The likeliest token behind each, one after the other.
  static Tokens twin(const Tokens& tokens, int count) {
    const auto checkpoint = checkpoint::Checkpoint::open(folder()).value();
    const auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool()).value();
    const auto model = models::load_model(checkpoint, *kernels, {}).value();
    auto runner = models::SequenceRunner::make(*model, kernels->kv_dtype(),
                                               static_cast<int>(tokens.size()) + count)
                      .value();
    Tokens all = tokens;
    const int row = 0;
    for (size_t at = 0; at + 1 < tokens.size() + static_cast<size_t>(count); ++at) {
      const float* const logits = runner.step({&all[at], 1}, {&row, 1}, nullptr);
      if (at + 1 < all.size()) continue;
      all.push_back(static_cast<TokenId>(std::max_element(logits, logits + kVocab) - logits));
    }
    return {all.begin() + static_cast<std::ptrdiff_t>(tokens.size()), all.end()};
  }
};

TEST_F(DraftModelProposer, guesses_what_its_model_says_however_a_sequence_comes) {
  const Tokens text = random_text(60, 1);
  const Tokens expected = twin(text, 5);
  const auto proposer = make(2, 256);
  begin(*proposer, 0, text, 7);
  EXPECT_EQ(guesses(*proposer, 0, text, 5), expected);
  EXPECT_EQ(guesses(*proposer, 0, text, 2), (Tokens{expected[0], expected[1]}));
  // A token at a time, behind guesses that were wrong; and in a slot that had another sequence.
  for (const uint64_t origin : {7, 9}) {
    begin(*proposer, 1, random_text(30, 5), 7);
    (void)guesses(*proposer, 1, random_text(30, 5), 3);
    Tokens grown(text.begin(), text.begin() + 20);
    begin(*proposer, 1, grown, origin);
    for (size_t at = 20; at < text.size(); ++at) {
      (void)guesses(*proposer, 1, grown, 4);
      grown.push_back(text[at]);
    }
    EXPECT_EQ(guesses(*proposer, 1, grown, 5), expected);
  }
  // Preempted, another sequence in its slot meanwhile, and back in another one.
  begin(*proposer, 1, random_text(30, 6), 7);
  (void)guesses(*proposer, 1, random_text(30, 6), 3);
  begin(*proposer, 0, text, 7);
  EXPECT_EQ(guesses(*proposer, 0, text, 5), expected);
}

// A prompt takes as many steps to read as it takes alone, whatever others have asked in that slot;
// what one itself has asked stays.
TEST_F(DraftModelProposer, TN_07_nothing_is_kept_for_who_has_another_salt) {
  const Tokens text = random_text(600, 2);  // two chunks
  for (const auto& [theirs, mine] : {std::pair{7, 8}, std::pair{0, 0}, std::pair{7, 0}}) {
    const auto proposer = make(1, 1024, kernels::KernelChoice::kAuto);
    for (const int origin : {theirs, mine}) {
      begin(*proposer, 0, text, static_cast<uint64_t>(origin));
      EXPECT_EQ(guesses(*proposer, 0, text, 1).size(), 0u) << theirs << " " << mine;
      EXPECT_EQ(guesses(*proposer, 0, text, 1).size(), 1u);
    }
  }
  const auto proposer = make(1, 1024, kernels::KernelChoice::kAuto);
  begin(*proposer, 0, text, 7);
  (void)guesses(*proposer, 0, text, 1);
  begin(*proposer, 0, text, 7);
  EXPECT_EQ(guesses(*proposer, 0, text, 1).size(), 1u);
}

TEST_F(DraftModelProposer, a_sequence_beyond_its_room_has_no_guesses) {
  const auto proposer = make(1, 64);
  const Tokens text = random_text(65, 3);
  begin(*proposer, 0, text, 7);
  EXPECT_EQ(guesses(*proposer, 0, text, 3), Tokens{});
  const Tokens shorter(text.begin(), text.end() - 2);
  begin(*proposer, 0, shorter, 7);
  EXPECT_LE(guesses(*proposer, 0, shorter, 3).size(), 2u);
}

}  // namespace
}  // namespace pelton::speculative
