// An EAGLE-3 head beside a plain twin in double precision, in every published variant, and the
// proposer that keeps its slots: whatever way a sequence comes to it, it guesses what the twin
// does. The weights are random; the target's states, too.
#include "speculative/eagle3.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gtest/gtest.h>

#include "base/random.h"
#include "checkpoint/tensor_file.h"
#include "speculative/random_eagle3.h"
#include "tensor/bits.h"

namespace pelton::speculative {
namespace {

using Doubles = std::vector<double>;
using Tokens = std::vector<TokenId>;

const checkpoint::Checkpoint& target() {
  static const auto* const made = new checkpoint::Checkpoint(
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value());
  return *made;
}

// As tiny as the target: hidden 128, vocabulary 512.
Json small_config() {
  Json config = random_eagle3_config(
      Json::parse(R"({"hidden_size":128,"vocab_size":512,"num_attention_heads":4,
                      "num_key_value_heads":2,"head_dim":32,"max_position_embeddings":4096,
                      "rms_norm_eps":1e-5,"rope_theta":10000,
                      "rope_scaling":{"rope_type":"yarn","factor":8.0,"beta_fast":32.0,
                                      "beta_slow":1.0,"original_max_position_embeddings":64,
                                      "truncate":false}})")
          .value());
  config.set("intermediate_size", 160);
  config.set("draft_vocab_size", 200);
  config.set("eagle_config",
             Json::parse(R"({"eagle_aux_hidden_state_layer_ids":[0,1,2]})").value());
  return config;
}

std::string write_head(const Json& config, uint64_t seed) {
  static int heads = 0;
  const std::string folder = testing::TempDir() + "eagle3_test_" + std::to_string(getpid()) + "_" +
                             std::to_string(heads++);
  const Result<void> written = write_random_eagle3(config, target().config(), seed, folder);
  EXPECT_TRUE(written.ok()) << written.error().message;
  return folder;
}

// The published arithmetic, a slot at a time, everything in double.
class Twin {
 public:
  explicit Twin(const std::string& folder)
      : file_(checkpoint::TensorFile::open(folder + "/model.safetensors").value()),
        config_(Eagle3Head::read_config(folder, target().config()).value()) {}

  Doubles tensor(const std::string& name) const { return values(file_.tensors().at(name)); }

  static Doubles values(const tensor::TensorView& view) {
    Doubles out;
    for (int64_t i = 0; i < view.element_count(); ++i) {
      out.push_back(view.dtype == tensor::DType::kI64
                        ? static_cast<double>(view.as<int64_t>()[i])
                        : tensor::bf16_to_float(view.as<uint16_t>()[i]));
    }
    return out;
  }

  Doubles norm(Doubles x, const std::string& name) const {
    const Doubles weight = tensor(name + ".weight");
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + config_.layer.rms_norm_epsilon);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
    return x;
  }

  Doubles linear(const std::string& name, const Doubles& x) const {
    const Doubles weight = tensor(name + ".weight");
    Doubles out =
        file_.has(name + ".bias") ? tensor(name + ".bias") : Doubles(weight.size() / x.size(), 0.0);
    for (size_t row = 0; row < out.size(); ++row) {
      for (size_t i = 0; i < x.size(); ++i) out[row] += weight[row * x.size() + i] * x[i];
    }
    return out;
  }

  // g of three taps, one after the other.
  Doubles feature(std::span<const float> taps) const {
    Doubles x(taps.begin(), taps.end());
    if (config_.norm_before_fc) x = norm(x, "input_norm");
    const size_t hidden = x.size() / 3;
    for (size_t i = 0; config_.fc_norm && i < 3; ++i) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(i * hidden);
      const Doubles normed = norm(Doubles(begin, begin + static_cast<std::ptrdiff_t>(hidden)),
                                  "fc_norm." + std::to_string(i));
      std::copy(normed.begin(), normed.end(), begin);
    }
    return linear("fc", x);
  }

  struct Slot {
    Doubles keys, values;
  };
  // The slot behind `before`: its logits, and the feature that the next one begins with.
  struct Out {
    Slot slot;
    Doubles logits, next;
  };
  Out forward(TokenId token, const Doubles& g, const std::vector<Slot>& before,
              int position) const {
    const Doubles normed_g = norm(g, "midlayer.hidden_norm");
    Doubles x = norm(embedding(token), "midlayer.input_layernorm");
    x.insert(x.end(), normed_g.begin(), normed_g.end());
    Out out;
    out.slot.keys = rotated(linear("midlayer.self_attn.k_proj", x), position);
    out.slot.values = linear("midlayer.self_attn.v_proj", x);
    std::vector<Slot> seen = before;
    seen.push_back(out.slot);
    const Doubles mixed =
        attention(rotated(linear("midlayer.self_attn.q_proj", x), position), seen);
    Doubles y = config_.norm_before_residual ? normed_g : g;
    add(y, linear("midlayer.self_attn.o_proj", mixed));
    const Doubles z = norm(y, "midlayer.post_attention_layernorm");
    Doubles gate = linear("midlayer.mlp.gate_proj", z);
    const Doubles up = linear("midlayer.mlp.up_proj", z);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    add(y, linear("midlayer.mlp.down_proj", gate));
    const Doubles last = norm(y, "norm");
    out.logits = linear("lm_head", last);
    out.next = config_.norm_output ? last : y;
    return out;
  }

  // Positions that the target has computed, but for those of a hole; and the token that was behind
  // the last one before it.
  struct Seen {
    Seen(int from) : first(from) {}
    size_t is_missing(int position) const { return hole <= position && position < behind; }
    int first;
    int hole = 0, behind = 0;
    TokenId last = 0;
  };

  // The likeliest guesses behind `tokens`, of which the target has computed [seen.first,
  // tokens.size() - 1): taps of position p at `taps + 3 * hidden * p`. logits: those of each guess,
  // if wanted.
  Tokens guesses(const Tokens& tokens, std::span<const float> taps, const Seen& seen, int count,
                 std::vector<Doubles>* logits = nullptr) const {
    const size_t width = 3 * static_cast<size_t>(config_.layer.hidden_size);
    std::vector<Slot> slots;
    Out out;
    int position = seen.first;
    for (; position + 1 < static_cast<int>(tokens.size()); ++position) {
      if (seen.is_missing(position)) continue;
      const auto p = static_cast<size_t>(position);
      const TokenId next = position + 1 == seen.hole ? seen.last : tokens[p + 1];
      out = forward(next, feature(taps.subspan(p * width, width)), slots, position);
      slots.push_back(out.slot);
    }
    Tokens guesses;
    while (true) {
      if (logits != nullptr) logits->push_back(out.logits);
      const auto best = std::max_element(out.logits.begin(), out.logits.end());
      guesses.push_back(target_id(best - out.logits.begin()));
      if (static_cast<int>(guesses.size()) == count) return guesses;
      out = forward(guesses.back(), out.next, slots, position++);
      slots.push_back(out.slot);
    }
  }

 private:
  static void add(Doubles& to, const Doubles& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  TokenId target_id(std::ptrdiff_t id) const {
    if (!file_.has("d2t")) return static_cast<TokenId>(id);
    return static_cast<TokenId>(static_cast<double>(id) + tensor("d2t")[static_cast<size_t>(id)]);
  }

  Doubles embedding(TokenId token) const {
    const auto hidden = static_cast<size_t>(config_.layer.hidden_size);
    const tensor::TensorView& view = file_.has("embed_tokens.weight")
                                         ? file_.tensors().at("embed_tokens.weight")
                                         : target().tensors().at("model.embed_tokens.weight");
    Doubles out;
    for (size_t i = 0; i < hidden; ++i) {
      out.push_back(
          tensor::bf16_to_float(view.as<uint16_t>()[static_cast<size_t>(token) * hidden + i]));
    }
    return out;
  }

  // YaRN with truncate false, its ramp not cut off, and its concentration, or plain; by halves.
  Doubles rotated(Doubles x, int position) const {
    const families::RopeConfig& rope = config_.layer.rope;
    const auto size = static_cast<size_t>(config_.layer.head_size);
    const bool yarn = rope.scaling == families::RopeScaling::kYarn;
    const auto pair_with_turns = [&](double turns) {
      return static_cast<double>(size) / 2 * std::log(rope.original_context / (turns * 2 * M_PI)) /
             std::log(rope.theta);
    };
    // As heads of gpt-oss are evaluated: the ramp begins before the first pair where 32 turns do.
    const double low = yarn ? pair_with_turns(rope.beta_fast) : 0;
    const double high = yarn ? pair_with_turns(rope.beta_slow) : 0;
    const double concentration = yarn ? 0.1 * std::log(rope.factor) + 1 : 1;
    for (size_t head = 0; head < x.size() / size; ++head) {
      for (size_t i = 0; i < size / 2; ++i) {
        double frequency =
            std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        if (yarn) {
          const double share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
          frequency = share * frequency / rope.factor + (1 - share) * frequency;
        }
        const double c = concentration * std::cos(position * frequency);
        const double s = concentration * std::sin(position * frequency);
        double& a = x[head * size + i];
        double& b = x[head * size + size / 2 + i];
        const double first = a * c - b * s;
        b = b * c + a * s;
        a = first;
      }
    }
    return x;
  }

  Doubles attention(const Doubles& q, const std::vector<Slot>& slots) const {
    const auto size = static_cast<size_t>(config_.layer.head_size);
    const size_t heads = q.size() / size;
    const size_t group = heads / (slots[0].keys.size() / size);
    Doubles out(q.size(), 0.0);
    for (size_t head = 0; head < heads; ++head) {
      const size_t at = head / group * size;
      Doubles weights;
      for (const Slot& slot : slots) {
        double score = 0;
        for (size_t i = 0; i < size; ++i) score += q[head * size + i] * slot.keys[at + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t slot = 0; slot < slots.size(); ++slot) {
        for (size_t i = 0; i < size; ++i) {
          out[head * size + i] += weights[slot] / sum * slots[slot].values[at + i];
        }
      }
    }
    return out;
  }

  const checkpoint::TensorFile file_;
  const Eagle3Config config_;
};

constexpr int kHidden = 128;
constexpr int kWidth = 3 * kHidden;

// A text of random tokens, and what a target might hold of them.
struct Text {
  explicit Text(int length, uint64_t seed = 1) {
    for (int i = 0; i < length; ++i) {
      tokens.push_back(static_cast<TokenId>(base::random_bits(seed, uint64_t(i)) % 500));
    }
    for (uint64_t i = 0; i < static_cast<uint64_t>(length) * kWidth; ++i) {
      taps.push_back(static_cast<float>(2 * base::random_unit(seed + 1, i) - 1));
    }
  }
  Tokens known(size_t count) const { return {tokens.begin(), tokens.begin() + ptrdiff_t(count)}; }

  Tokens tokens;
  std::vector<float> taps;  // (tokens, 3 * hidden)
};

// Relative error of a row, its mean taken off, as the golden data have it.
double relative_error(std::span<const float> got, const Doubles& exact) {
  const double mean =
      std::accumulate(exact.begin(), exact.end(), 0.0) / static_cast<double>(exact.size());
  double got_mean = 0;
  for (const float v : got) got_mean += v / static_cast<double>(got.size());
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    off += std::pow((got[i] - got_mean) - (exact[i] - mean), 2);
    all += std::pow(exact[i] - mean, 2);
  }
  return std::sqrt(off / all);
}

struct Variant {
  const char* name;
  const char* fields;  // set in config.json
};

std::ostream& operator<<(std::ostream& out, const Variant& variant) {
  return out << variant.name;
}

Json config_of(const Variant& variant) {
  Json config = small_config();
  const Json fields = Json::parse(variant.fields).value();
  for (const Json::Member& member : fields.as_object()) {
    config.set(member.key, member.value);
  }
  return config;
}

class Eagle3Variants : public testing::TestWithParam<Variant> {};

// Guess after guess, with either kernels.
TEST_P(Eagle3Variants, computes_what_its_twin_does) {
  const std::string folder = write_head(config_of(GetParam()), 7);
  const Twin twin(folder);
  const Text text(12);
  std::vector<Doubles> exact;
  const Tokens expected = twin.guesses(text.tokens, text.taps, 0, 4, &exact);
  base::ThreadPool pool({.threads = 1});
  for (const bool reference : {true, false}) {
    SCOPED_TRACE(reference ? "reference" : "fast");
    const auto kernels =
        kernels::make_kernels(
            reference ? kernels::KernelChoice::kReference : kernels::KernelChoice::kAuto, pool)
            .value();
    auto head = Eagle3Head::load(folder, target(), *kernels);
    ASSERT_TRUE(head.ok()) << head.error().message;
    models::KvStorage::Options storage{.dtype = kernels->kv_dtype()};
    storage.block_counts.push_back(2);
    models::KvStorage kv = models::KvStorage::allocate(head->config().layer, storage).value();
    const std::vector<int32_t> blocks = {1, 0};
    std::vector<float> taps = text.taps;
    std::vector<float> features(text.tokens.size() * kHidden);
    head->combine(features.data(), taps.data(), static_cast<int>(text.tokens.size()));
    std::vector<Eagle3Head::Row> rows;
    for (size_t p = 0; p + 1 < text.tokens.size(); ++p) {
      rows.push_back({.token = text.tokens[p + 1],
                      .feature = features.data() + p * kHidden,
                      .position = static_cast<int>(p),
                      .place = static_cast<int>(p),
                      .blocks = blocks.data()});
    }
    head->remember(rows, kv.layer(0));
    std::vector<float> next(kHidden);
    Eagle3Head::Row row = rows.back();
    for (size_t guess = 0; guess < expected.size(); ++guess) {
      const float* const logits = head->forward({&row, 1}, kv.layer(0), next.data());
      EXPECT_LT(relative_error({logits, exact[guess].size()}, exact[guess]),
                reference ? 1e-5 : 2e-2);
      row = {.token = expected[guess],
             .feature = next.data(),
             .position = row.position + 1,
             .place = row.place + 1,
             .blocks = blocks.data()};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Eagle3Variants,
    testing::Values(Variant{"plain", "{}"}, Variant{"norm_before_fc", R"({"norm_before_fc":true})"},
                    Variant{"fc_norm_and_norm_output", R"({"fc_norm":true,"norm_output":true})"},
                    Variant{"whole_vocabulary_with_biases",
                            R"({"draft_vocab_size":512,"attention_bias":true,"embed_tokens":true,
                                "norm_before_residual":true,"rope_scaling":null})"}),
    [](const auto& info) { return std::string(info.param.name); });

// A proposer, and the steps of a target that it sees.
class Watched {
 public:
  explicit Watched(const std::string& folder, int slots = 2, int tokens_max = 256)
      : pool_({.threads = 1}) {
    auto made = Eagle3::load({.head = folder,
                              .slot_count = slots,
                              .sampled_vocab = 512,
                              .tokens_max = tokens_max,
                              .batch_tokens_max = 512,
                              .guesses_max = 8,
                              .kernels = kernels::KernelChoice::kReference},
                             target(), pool_);
    EXPECT_TRUE(made.ok()) << made.error().message;
    proposer = *made;
  }

  // Greedy, so that guesses are the likeliest.
  void begin(int slot, const Tokens& tokens, uint64_t origin = 0) {
    request::SamplingParams sampling;
    sampling.temperature = 0;
    proposer->begin(
        {.slot = slot, .tokens = tokens, .sampling = &sampling, .origin = {.low = origin}});
  }

  // Steps over positions [start, start + count) of the text, in front of which lie `others` rows of
  // something else; `wrong` rows of wrong guesses follow.
  void compute(const Text& text, const Tokens& known, int slot, int start, int count, int wrong = 0,
               int others = 0) {
    const int rows = others + count + wrong;
    std::vector<float> x(static_cast<size_t>(rows) * kHidden, 9.0f);
    for (size_t tap = 0; tap < 3; ++tap) {
      for (int i = 0; i < count; ++i) {
        std::copy_n(text.taps.data() + size_t(start + i) * kWidth + tap * kHidden, kHidden,
                    x.data() + size_t(others + i) * kHidden);
      }
      proposer->see(tap, x.data(), rows);
    }
    const ComputedRows computed{
        .slot = slot, .first_row = others, .start = start, .count = count, .tokens = known};
    proposer->observe({&computed, 1});
  }

  Tokens guesses(const Tokens& known, int slot, int most) {
    DraftRequest request{.slot = slot, .tokens = known, .tokens_max = most};
    EXPECT_TRUE(proposer->draft({&request, 1}).ok());
    return request.guesses;
  }

  std::shared_ptr<Eagle3> proposer;

 private:
  base::ThreadPool pool_;
};

class Eagle3Proposer : public testing::Test {
 protected:
  static const std::string& folder() {
    static const std::string made = write_head(small_config(), 11);
    return made;
  }
};

TEST_F(Eagle3Proposer, guesses_the_same_however_a_sequence_comes) {
  const Text text(40);
  const Twin twin(folder());
  const Tokens known = text.known(31);
  const Tokens expected = twin.guesses(known, text.taps, 0, 5);
  {
    Watched whole(folder());
    whole.begin(0, known);
    whole.compute(text, known, 0, 0, 30, 0, 7);
    EXPECT_EQ(whole.guesses(known, 0, 5), expected);
    EXPECT_EQ(whole.guesses(known, 0, 2), (Tokens{expected[0], expected[1]}));
    EXPECT_EQ(whole.guesses(known, 0, 5), expected);  // its own guesses leave nothing behind
  }
  Watched pieces(folder());
  pieces.begin(1, text.known(11));
  pieces.compute(text, text.known(11), 1, 0, 4);
  pieces.compute(text, text.known(11), 1, 4, 6);
  for (int at = 10; at < 30;) {  // decoding: a token is known behind each step, guesses were wrong
    const int accepted = 1 + at % 3;
    const Tokens so_far = text.known(size_t(at + 1));
    (void)pieces.guesses(so_far, 1, 8);
    const int count = std::min(accepted, 30 - at);
    pieces.compute(text, text.known(size_t(at + count + 1)), 1, at, count, 3, at % 5);
    at += count;
  }
  EXPECT_EQ(pieces.guesses(known, 1, 5), expected);
}

TEST_F(Eagle3Proposer, knows_what_it_has_seen_and_no_more) {
  const Text text(40);
  const Twin twin(folder());
  Watched watched(folder());
  const Tokens known = text.known(31);
  watched.begin(0, known);
  EXPECT_EQ(watched.guesses(known, 0, 4), Tokens{});  // nothing of it
  watched.compute(text, known, 0, 16, 10);            // the cache had what is before
  EXPECT_EQ(watched.guesses(known, 0, 4), Tokens{});  // not its newest tokens
  watched.compute(text, known, 0, 26, 4);
  EXPECT_EQ(watched.guesses(known, 0, 4), twin.guesses(known, text.taps, 16, 4));
  // A hole: from there on.
  const Tokens later = text.known(40);
  watched.compute(text, later, 0, 34, 5);
  EXPECT_EQ(watched.guesses(later, 0, 3), twin.guesses(later, text.taps, 34, 3));
  // Computed again from an earlier place: what is before it stays.
  watched.compute(text, text.known(39), 0, 36, 2);
  EXPECT_EQ(watched.guesses(text.known(39), 0, 3), twin.guesses(text.known(39), text.taps, 34, 3));
  // Another sequence in its slot.
  watched.begin(0, known);
  EXPECT_EQ(watched.guesses(later, 0, 4), Tokens{});
}

// What the target does not compute again, because its prefix cache has it, a slot of the head's
// may.
TEST_F(Eagle3Proposer, a_beginning_that_a_slot_holds_is_taken_over) {
  const Text first(40);
  Text second = first;  // other tokens, and so other states, from position 20 on
  const Text other(40, 9);
  std::copy(other.tokens.begin() + 20, other.tokens.end(), second.tokens.begin() + 20);
  std::copy(other.taps.begin() + 20 * kWidth, other.taps.end(), second.taps.begin() + 20 * kWidth);
  const Twin twin(folder());
  const Tokens known = second.known(31);
  const Tokens expected = twin.guesses(known, second.taps, 0, 5);
  ASSERT_NE(expected, twin.guesses(known, second.taps, 16, 5));
  for (const int slot : {0, 1, 2}) {  // the slot that holds it, and others
    Watched watched(folder(), 3);
    watched.begin(1, other.known(31), 7);  // nothing of it
    watched.compute(other, other.known(31), 1, 0, 30);
    watched.begin(0, first.known(31), 7);
    watched.compute(first, first.known(31), 0, 0, 30);
    const int64_t bytes = watched.proposer->bytes();
    watched.begin(slot, known, 7);
    EXPECT_EQ(watched.guesses(second.known(21), slot, 5), Tokens{});  // no state to go on from
    watched.compute(second, known, slot, 16, 14);
    EXPECT_EQ(watched.guesses(known, slot, 5), expected) << slot;
    EXPECT_EQ(watched.proposer->bytes(), bytes);
  }
  // A hit that ends where the two part: one slot was written with the other's token behind it.
  Watched watched(folder());
  watched.begin(0, first.known(31), 7);
  watched.compute(first, first.known(31), 0, 0, 30);
  watched.begin(1, known, 7);
  watched.compute(second, known, 1, 20, 10);
  EXPECT_EQ(watched.guesses(known, 1, 5).size(), 5u);
  // A hit beyond what any slot holds.
  Watched beyond(folder());
  beyond.begin(0, first.known(31), 7);
  beyond.compute(first, first.known(31), 0, 0, 30);
  beyond.begin(1, known, 7);
  beyond.compute(second, known, 1, 25, 5);
  Twin::Seen seen(0);
  seen.hole = 20;
  seen.behind = 25;
  seen.last = first.tokens[20];
  const Tokens behind_hole = twin.guesses(known, second.taps, seen, 5);
  EXPECT_EQ(beyond.guesses(known, 1, 5), behind_hole);
  EXPECT_NE(behind_hole, twin.guesses(known, second.taps, 25, 5));
  // From within the hole and from before it again: it is closed.
  beyond.compute(second, known, 1, 22, 8);
  seen.behind = 22;
  EXPECT_EQ(beyond.guesses(known, 1, 5), twin.guesses(known, second.taps, seen, 5));
  beyond.compute(second, known, 1, 18, 12);
  EXPECT_EQ(beyond.guesses(known, 1, 5), expected);
  // Others begin with what is before a hole, and with no more.
  beyond.begin(0, known, 7);
  beyond.compute(second, known, 0, 20, 10);
  EXPECT_EQ(beyond.guesses(known, 0, 5), expected);
}

// One user with several conversations always has the same slot; a sequence that was swapped out
// comes back in any: all it computed is still held, and it goes on as if it had never left.
TEST_F(Eagle3Proposer, what_was_left_is_found_again) {
  const Text text(40);
  const Twin twin(folder());
  const Tokens known = text.known(31);
  Watched watched(folder(), 4);
  watched.begin(0, known, 7);
  watched.compute(text, known, 0, 0, 30);
  for (uint64_t other = 1; other <= 3; ++other) {  // as many as there are other stores
    const Text others(40, 100 + other);
    watched.begin(0, others.known(31), 7);
    watched.compute(others, others.known(31), 0, 0, 30);
  }
  const Tokens later = text.known(36);
  watched.begin(2, later, 7);
  watched.compute(text, later, 2, 30, 5);
  EXPECT_EQ(watched.guesses(later, 2, 5), twin.guesses(later, text.taps, 0, 5));
  // One more, and what was left longest ago is gone: the first of the others.
  const Text last(40, 200);
  watched.begin(0, last.known(31), 7);
  const Text others(40, 101);
  watched.begin(0, others.known(31), 7);
  watched.compute(others, others.known(31), 0, 25, 5);
  EXPECT_EQ(watched.guesses(others.known(31), 0, 5),
            twin.guesses(others.known(31), others.taps, 25, 5));
}

// Neither from a sequence with another salt, nor from any where nothing may be shared.
TEST_F(Eagle3Proposer, TN_07_nothing_is_taken_over_from_who_has_another_salt) {
  const Text text(40);
  const Twin twin(folder());
  const Tokens known = text.known(31);
  for (const auto& [mine, theirs] : {std::pair{7, 8}, std::pair{0, 0}, std::pair{0, 7}}) {
    Watched watched(folder(), 2);
    watched.begin(0, known, static_cast<uint64_t>(theirs));
    watched.compute(text, known, 0, 0, 30);
    for (const int slot : {1, 0}) {
      watched.begin(slot, known, static_cast<uint64_t>(mine));
      watched.compute(text, known, slot, 16, 14);
      EXPECT_EQ(watched.guesses(known, slot, 5), twin.guesses(known, text.taps, 16, 5));
    }
  }
}

TEST_F(Eagle3Proposer, looks_back_at_the_latest_part_of_a_long_sequence) {
  const Text text(140);
  const Twin twin(folder());
  Watched watched(folder(), 1, 64);  // 56 of them, and 8 for guesses
  const int64_t bytes = watched.proposer->bytes();
  const Tokens known = text.known(101);
  watched.begin(0, known);
  watched.compute(text, known, 0, 0, 100);
  EXPECT_EQ(watched.guesses(known, 0, 8), twin.guesses(known, text.taps, 44, 8));
  const Tokens longer = text.known(103);
  watched.compute(text, longer, 0, 100, 2);  // no room: it begins anew
  EXPECT_EQ(watched.guesses(longer, 0, 2), twin.guesses(longer, text.taps, 100, 2));
  EXPECT_EQ(watched.proposer->bytes(), bytes);
}

TEST_F(Eagle3Proposer, several_sequences_are_drafted_together) {
  const Twin twin(folder());
  Watched watched(folder(), 70, 64);
  std::vector<Text> texts;
  std::vector<Tokens> known;
  std::vector<DraftRequest> requests;
  for (int slot = 0; slot < 70; ++slot) {
    texts.emplace_back(6, 100 + static_cast<uint64_t>(slot));
    known.push_back(texts.back().known(6));
    watched.begin(slot, known.back());
    watched.compute(texts.back(), known.back(), slot, 0, 5);
  }
  for (int slot = 0; slot < 70; ++slot) {
    requests.push_back({.slot = slot, .tokens = known[size_t(slot)], .tokens_max = 1 + slot % 4});
  }
  ASSERT_TRUE(watched.proposer->draft(requests).ok());
  for (const int slot : {0, 1, 2, 3, 33, 63, 64, 69}) {
    const DraftRequest& request = requests[size_t(slot)];
    EXPECT_EQ(request.guesses,
              twin.guesses(known[size_t(slot)], texts[size_t(slot)].taps, 0, request.tokens_max))
        << slot;
  }
}

TEST_F(Eagle3Proposer, takes_as_many_bytes_as_was_said) {
  for (const char* fields : {"{}", R"({"attention_bias":true,"fc_norm":true,"norm_before_fc":true,
                                       "embed_tokens":true})"}) {
    const std::string head = write_head(config_of({"", fields}), 3);
    for (const int threads : {1, 2}) {
      base::ThreadPool pool({.threads = threads});
      for (const bool reference : {true, false}) {
        const Eagle3::Options options{.head = head,
                                      .slot_count = 3,
                                      .sampled_vocab = 512,
                                      .tokens_max = 200,
                                      .batch_tokens_max = 33,
                                      .kernels = reference ? kernels::KernelChoice::kReference
                                                           : kernels::KernelChoice::kAuto};
        const auto kernels = kernels::make_kernels(options.kernels, pool).value();
        const auto made = Eagle3::load(options, target(), pool);
        ASSERT_TRUE(made.ok());
        const bool plain = kernels->name() == "reference";
        EXPECT_EQ((*made)->bytes(), *Eagle3::bytes_for(options, target().config(),
                                                       {.is_reference = plain,
                                                        .kv_dtype = kernels->kv_dtype(),
                                                        .threads = threads}));
      }
    }
  }
}

// What is refused, and what is said of it.
TEST_F(Eagle3Proposer, heads_of_other_models_are_refused) {
  const auto said = [](const char* fields) {
    const auto config = parse_eagle3_config(config_of({"", fields}), target().config(), "FILE");
    return config.ok() ? "" : config.error().message;
  };
  const auto names = [&](const char* fields, std::string_view what) {
    EXPECT_NE(said(fields).find(what), std::string::npos) << said(fields);
  };
  EXPECT_EQ(said("{}"), "");
  names(R"({"architectures":["LlamaForCausalLM"]})", "architectures");
  names(R"({"hidden_size":256})", "hidden_size");
  names(R"({"vocab_size":1024})", "vocab_size");
  names(R"({"draft_vocab_size":513})", "draft_vocab_size");
  names(R"({"num_hidden_layers":2})", "num_hidden_layers");
  names(R"({"hidden_act":"gelu"})", "hidden_act");
  names(R"({"head_dim":33})", "head_dim");
  names(R"({"eagle_config":{"eagle_aux_hidden_state_layer_ids":[0,1,3]}})", "0 to 2");
  names(R"({"eagle_config":{"eagle_aux_hidden_state_layer_ids":[0,1]}})", "3 integers");
  names(R"({"eagle_config":null})", "without eagle_aux");  // 2, 1, -1 of two layers
  names(R"({"eagle_config":7})", "eagle_config");
  names(R"({"logit_scale":2.0})", "logit_scale");
}

TEST_F(Eagle3Proposer, another_rotation_than_the_targets_is_said) {
  EXPECT_NE(Watched(folder()).proposer->warning(), "");  // tiny's YaRN is another
  Json config = small_config();
  config.set("rope_theta", 150000);
  config.set("rope_scaling", Json::parse(R"({"rope_type":"yarn","factor":32.0,"beta_fast":32.0,
      "beta_slow":1.0,"original_max_position_embeddings":4096,"truncate":false})")
                                 .value());
  EXPECT_EQ(Watched(write_head(config, 5)).proposer->warning(), "");
}

TEST_F(Eagle3Proposer, broken_files_are_refused) {
  base::ThreadPool pool({.threads = 1});
  const auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool).value();
  const auto said = [&](const std::string& head) {
    const auto loaded = Eagle3Head::load(head, target(), *kernels);
    return loaded.ok() ? std::string() : loaded.error().message;
  };
  EXPECT_NE(said("/nowhere").find("config.json"), std::string::npos);
  // Tensors of one variant, the configuration of another.
  const std::string head = write_head(config_of({"", R"({"fc_norm":true})"}), 1);
  const auto configure = [&](const Json& config) {
    std::ofstream(head + "/config.json") << config.dump();
  };
  configure(small_config());
  EXPECT_NE(said(head).find("fc_norm.0.weight"), std::string::npos) << said(head);
  configure(config_of({"", R"({"norm_before_fc":true})"}));
  EXPECT_NE(said(head).find("input_norm.weight"), std::string::npos) << said(head);
  configure(config_of({"", R"({"fc_norm":true,"intermediate_size":192})"}));
  EXPECT_NE(said(head).find("midlayer.mlp"), std::string::npos) << said(head);
  configure(config_of({"", R"({"fc_norm":true})"}));
  EXPECT_EQ(said(head), "");
}

}  // namespace
}  // namespace pelton::speculative
