// Medusa heads beside a plain twin in double precision, in every published layout, and the proposer
// that keeps a state of each slot. The weights are random; the target's states, too.
#include "speculative/medusa.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/random.h"
#include "speculative/random_medusa.h"
#include "tensor/bits.h"

namespace pelton::speculative {
namespace {

using Doubles = std::vector<double>;
using Tokens = std::vector<TokenId>;

constexpr int kHidden = 128;
constexpr int kVocab = 512;

const checkpoint::Checkpoint& target() {
  static const auto* const made = new checkpoint::Checkpoint(
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value());
  return *made;
}

Doubles values(const tensor::TensorView& view) {
  Doubles out;
  for (int64_t i = 0; i < view.element_count(); ++i) {
    out.push_back(view.dtype == tensor::DType::kI64
                      ? static_cast<double>(view.as<int64_t>()[i])
                      : tensor::bf16_to_float(view.as<uint16_t>()[i]));
  }
  return out;
}

Doubles product(const Doubles& weight, const Doubles& x) {
  Doubles out(weight.size() / x.size(), 0.0);
  for (size_t row = 0; row < out.size(); ++row) {
    for (size_t i = 0; i < x.size(); ++i) out[row] += weight[row * x.size() + i] * x[i];
  }
  return out;
}

// The target's output head, in double.
void plain_target_head(float* logits, const float* x, int rows) {
  static const Doubles weight = values(target().tensors().at("lm_head.weight"));
  for (int row = 0; row < rows; ++row) {
    const Doubles out = product(weight, Doubles(x + row * kHidden, x + (row + 1) * kHidden));
    for (size_t i = 0; i < out.size(); ++i) *logits++ = static_cast<float>(out[i]);
  }
}

Json config_of(const char* fields) {
  Json config =
      random_medusa_config(Json::parse(R"({"hidden_size":128,"vocab_size":512})").value());
  const Json more = Json::parse(fields).value();
  for (const Json::Member& member : more.as_object()) config.set(member.key, member.value);
  return config;
}

std::string write_heads(const char* fields, uint64_t seed) {
  static int written = 0;
  const std::string folder = testing::TempDir() + "medusa_test_" + std::to_string(getpid()) + "_" +
                             std::to_string(written++);
  const Result<void> result =
      write_random_medusa(config_of(fields), target().config(), seed, folder);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return folder;
}

// The published arithmetic.
class Twin {
 public:
  explicit Twin(const std::string& folder)
      : file_(checkpoint::TensorFile::open(folder + "/model.safetensors").value()) {}

  static Doubles normed(std::span<const float> x) {
    const Doubles weight = values(target().tensors().at("model.norm.weight"));
    double squares = 0;
    for (const float v : x) squares += double{v} * v;
    const double scale = 1 / std::sqrt(squares / kHidden + target().config().rms_norm_epsilon);
    Doubles out;
    for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * scale * weight[i]);
    return out;
  }

  // Of a state that the target's last layer left.
  Doubles logits(std::span<const float> x, int head, int blocks) const {
    Doubles state = normed(x);
    for (int block = 0; block < blocks; ++block) {
      const std::string name = std::to_string(head) + "." + std::to_string(block) + ".linear.";
      Doubles gate = product(values(file_.tensors().at(name + "weight")), state);
      const Doubles bias = file_.has(name + "bias") ? values(file_.tensors().at(name + "bias"))
                                                    : Doubles(gate.size(), 0.0);
      for (size_t i = 0; i < gate.size(); ++i) {
        const double z = gate[i] + bias[i];
        state[i] += z / (1 + std::exp(-z));
      }
    }
    const std::string own = std::to_string(head) + "." + std::to_string(blocks) + ".weight";
    const tensor::TensorView& output = file_.has("lm_head.weight") ? view("lm_head.weight")
                                       : file_.has(own)            ? view(own)
                                                        : target().tensors().at("lm_head.weight");
    return product(values(output), state);
  }

  // The likeliest ones.
  Tokens guesses(std::span<const float> x, int heads, int blocks) const {
    Tokens out;
    for (int head = 0; head < heads; ++head) {
      const Doubles row = logits(x, head, blocks);
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      out.push_back(file_.has("token_map")
                        ? static_cast<TokenId>(values(view("token_map"))[static_cast<size_t>(best)])
                        : static_cast<TokenId>(best));
    }
    return out;
  }

 private:
  const tensor::TensorView& view(const std::string& name) const { return file_.tensors().at(name); }
  const checkpoint::TensorFile file_;
};

// What a target's last layer might leave of a position.
std::vector<float> state_of(int position, uint64_t seed = 1) {
  std::vector<float> x;
  for (int i = 0; i < kHidden; ++i) {
    const auto at = static_cast<uint64_t>(position) * kHidden + static_cast<uint64_t>(i);
    x.push_back(static_cast<float>(4 * base::random_unit(seed, at) - 2));
  }
  return x;
}

Tokens some_tokens(int count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 3);
  return tokens;
}

double relative_error(std::span<const float> got, const Doubles& exact) {
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    off += std::pow(got[i] - exact[i], 2);
    all += std::pow(exact[i], 2);
  }
  return std::sqrt(off / all);
}

struct Variant {
  const char* name;
  const char* fields;  // set in config.json
  int blocks;
};
constexpr Variant kVariants[] = {
    {"targets_output_head", "{}", 1},
    {"two_blocks", R"({"medusa_num_layers":2,"medusa_num_heads":5})", 2},
    {"own_output_heads", R"({"shared_lm_head":false})", 1},
    {"one_output_head_without_bias",
     R"({"shared_lm_head":false,"original_lm_head":true,"medusa_fc_bias":false})", 1},
    {"fewer_tokens", R"({"shared_lm_head":false,"truncated_vocab_size":200,"medusa_fc_bias":true})",
     1}};

std::ostream& operator<<(std::ostream& out, const Variant& variant) {
  return out << variant.name;
}

class MedusaVariants : public testing::TestWithParam<Variant> {};

// Several states together, with either kernels.
TEST_P(MedusaVariants, computes_what_its_twin_does) {
  const std::string folder = write_heads(GetParam().fields, 7);
  const Twin twin(folder);
  base::ThreadPool pool({.threads = 1});
  for (const bool reference : {true, false}) {
    SCOPED_TRACE(reference ? "reference" : "fast");
    const auto kernels =
        kernels::make_kernels(
            reference ? kernels::KernelChoice::kReference : kernels::KernelChoice::kAuto, pool)
            .value();
    auto heads = MedusaHeads::load(folder, target(), plain_target_head, *kernels);
    ASSERT_TRUE(heads.ok()) << heads.error().message;
    constexpr int kStates = 3;
    std::vector<float> states;
    for (int i = 0; i < kStates; ++i) {
      const std::vector<float> one = state_of(i);
      states.insert(states.end(), one.begin(), one.end());
    }
    heads->norm(states.data(), kStates);
    const int count = heads->count();
    const float* logits = heads->forward(states.data(), kStates, count);
    for (int head = 0; head < count; ++head) {
      for (int i = 0; i < kStates; ++i) {
        const Doubles exact = twin.logits(state_of(i), head, GetParam().blocks);
        EXPECT_LT(relative_error({logits, exact.size()}, exact), reference ? 1e-5 : 2e-2);
        logits += exact.size();
      }
    }
  }
}

// The names of vLLM's files, and those of heads that are part of a larger file.
TEST_P(MedusaVariants, other_names_are_the_same_tensors) {
  const std::string folder = write_heads(GetParam().fields, 7);
  const std::string text = [&] {
    std::ifstream in(folder + "/model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const bool is_one = text.find("\"lm_head.weight\"") != std::string::npos;
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof(header));
  const Json names = Json::parse(text.substr(8, header)).value();
  base::ThreadPool pool({.threads = 1});
  const auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool).value();
  const auto logits_in = [&] {
    auto heads = MedusaHeads::load(folder, target(), plain_target_head, *kernels);
    EXPECT_TRUE(heads.ok()) << heads.error().message;
    std::vector<float> state = state_of(1);
    heads->norm(state.data(), 1);
    const float* const out = heads->forward(state.data(), 1, heads->count());
    return std::vector<float>(out, out + heads->count() * heads->draft_vocab());
  };
  const std::vector<float> expected = logits_in();
  const auto of_vllm = [&](const std::string& name) -> std::string {
    int head = 0;
    int block = 0;
    char rest[16] = "";
    if (std::sscanf(name.c_str(), "%d.%d.linear.%15s", &head, &block, rest) == 3) {
      return "blocks." + std::to_string(head) + ".layers." + std::to_string(block) + "." + rest;
    }
    if (std::sscanf(name.c_str(), "%d.%d.weight", &head, &block) == 2) {
      return "lm_heads." + std::to_string(head) + ".weight";
    }
    return is_one && name == "lm_head.weight" ? "lm_heads.0.weight" : name;
  };
  const auto prefixed = [](const std::string& name) {
    return name == "token_map" ? name : "medusa_heads." + name;
  };
  const auto rename = [&](const auto& renamed) {
    Json json;
    for (const Json::Member& member : names.as_object()) {
      json.set(member.key == "__metadata__" ? member.key : renamed(member.key), member.value);
    }
    std::string head = json.dump();
    head.resize((head.size() + 7) / 8 * 8, ' ');
    const uint64_t size = head.size();
    std::ofstream out(folder + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof(size));
    out << head << text.substr(8 + header);
  };
  rename(of_vllm);
  EXPECT_EQ(logits_in(), expected);
  rename([&](const std::string& name) { return prefixed(of_vllm(name)); });
  EXPECT_EQ(logits_in(), expected);
  std::filesystem::rename(folder + "/model.safetensors", folder + "/medusa_lm_head.safetensors");
  EXPECT_EQ(logits_in(), expected);
}

INSTANTIATE_TEST_SUITE_P(All, MedusaVariants, testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });

// A proposer, and the steps of a target that it sees.
class Watched {
 public:
  explicit Watched(const std::string& folder, int slots = 2, int sampled_vocab = kVocab)
      : pool_({.threads = 1}) {
    auto made = Medusa::load({.heads = folder,
                              .slot_count = slots,
                              .sampled_vocab = sampled_vocab,
                              .kernels = kernels::KernelChoice::kReference},
                             target(), plain_target_head, pool_);
    EXPECT_TRUE(made.ok()) << made.error().message;
    proposer = *made;
  }

  void begin(int slot, const Tokens& tokens, float temperature = 0) {
    request::SamplingParams sampling;
    sampling.temperature = temperature;
    sampling.seed = 5;
    proposer->begin({.slot = slot, .tokens = tokens, .sampling = &sampling});
  }

  // A step over positions [start, start + count), in front of which lie `others` rows of something
  // else; `wrong` rows of wrong guesses follow.
  void compute(const Tokens& known, int slot, int start, int count, int wrong = 0, int others = 0,
               uint64_t seed = 1) {
    std::vector<float> x(static_cast<size_t>(others) * kHidden, 9.0f);
    for (int i = 0; i < count; ++i) {
      const std::vector<float> one = state_of(start + i, seed);
      x.insert(x.end(), one.begin(), one.end());
    }
    x.resize(x.size() + static_cast<size_t>(wrong) * kHidden, -7.0f);
    proposer->see(0, x.data(), others + count + wrong);
    const ComputedRows computed{
        .slot = slot, .first_row = others, .start = start, .count = count, .tokens = known};
    proposer->observe({&computed, 1});
  }

  Tokens guesses(const Tokens& known, int slot, int most) {
    DraftRequest request{.slot = slot, .tokens = known, .tokens_max = most};
    EXPECT_TRUE(proposer->draft({&request, 1}).ok());
    return request.guesses;
  }

  std::shared_ptr<Medusa> proposer;

 private:
  base::ThreadPool pool_;
};

TEST(MedusaProposer, guesses_from_the_last_state_that_counted) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    const std::string folder = write_heads(variant.fields, 11);
    const Twin twin(folder);
    Watched watched(folder);
    EXPECT_EQ(watched.proposer->taps()[0], target().config().layer_count());
    const Tokens known = some_tokens(11);
    watched.begin(1, known);
    EXPECT_EQ(watched.guesses(known, 1, 3), Tokens{});  // nothing of it
    watched.compute(known, 1, 4, 3);
    EXPECT_EQ(watched.guesses(known, 1, 3), Tokens{});  // not its newest tokens
    watched.compute(known, 1, 7, 3, 2, 5);
    const Tokens expected = twin.guesses(state_of(9), 3, variant.blocks);
    EXPECT_EQ(watched.guesses(known, 1, 3), expected);
    EXPECT_EQ(watched.guesses(known, 1, 2), (Tokens{expected[0], expected[1]}));
    EXPECT_EQ(watched.guesses(known, 0, 3), Tokens{});
    watched.begin(1, known);  // another sequence in its slot
    EXPECT_EQ(watched.guesses(known, 1, 3), Tokens{});
  }
}

TEST(MedusaProposer, has_as_many_guesses_as_heads) {
  Watched watched(write_heads("{}", 3));
  const Tokens known = some_tokens(4);
  watched.begin(0, known);
  watched.compute(known, 0, 0, 3);
  EXPECT_EQ(watched.guesses(known, 0, 8).size(), 3u);
}

TEST(MedusaProposer, several_sequences_are_drafted_together) {
  const std::string folder = write_heads(R"({"medusa_num_heads":5})", 11);
  const Twin twin(folder);
  Watched watched(folder, 40);
  const Tokens known = some_tokens(5);
  std::vector<DraftRequest> requests;
  for (int slot = 0; slot < 40; ++slot) {
    watched.begin(slot, known);
    watched.compute(known, slot, 0, 4, 0, slot % 3, 100 + static_cast<uint64_t>(slot));
    requests.push_back({.slot = slot, .tokens = known, .tokens_max = 1 + slot % 6});
  }
  ASSERT_TRUE(watched.proposer->draft(requests).ok());
  for (const int slot : {0, 1, 11, 12, 13, 20, 38, 39}) {
    EXPECT_EQ(
        requests[static_cast<size_t>(slot)].guesses,
        twin.guesses(state_of(3, 100 + static_cast<uint64_t>(slot)), std::min(1 + slot % 6, 5), 1))
        << slot;
  }
}

// With temperature: not the likeliest each time, and the same numbers each time.
TEST(MedusaProposer, draws_with_the_sequences_noise) {
  const std::string folder = write_heads("{}", 11);
  const Tokens known = some_tokens(5);
  std::vector<Tokens> drawn;
  for (int again = 0; again < 2; ++again) {
    Watched watched(folder);
    watched.begin(0, known, 3.0f);
    watched.compute(known, 0, 0, 4);
    drawn.push_back(watched.guesses(known, 0, 3));
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], Twin(folder).guesses(state_of(3), 3, 1));
}

// Ids that the vocabulary does not have are never guessed; a state that is no number gives none.
TEST(MedusaProposer, guesses_what_may_be_sampled) {
  const Tokens known = some_tokens(5);
  for (const char* fields : {"{}", R"({"shared_lm_head":false,"truncated_vocab_size":200})"}) {
    Watched watched(write_heads(fields, 11), 1, 100);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      watched.begin(0, known, 2.0f);
      watched.compute(known, 0, 0, 4, 0, 0, seed);
      for (const TokenId guess : watched.guesses(known, 0, 3)) EXPECT_LT(guess, 100);
    }
    const std::vector<float> broken(4 * kHidden, std::nanf(""));
    watched.proposer->see(0, broken.data(), 4);
    const ComputedRows computed{.slot = 0, .count = 4, .tokens = known};
    watched.proposer->observe({&computed, 1});
    EXPECT_EQ(watched.guesses(known, 0, 3), Tokens{});
  }
}

TEST(MedusaProposer, takes_as_many_bytes_as_was_said) {
  for (const Variant& variant : kVariants) {
    const std::string folder = write_heads(variant.fields, 3);
    for (const int threads : {1, 2}) {
      base::ThreadPool pool({.threads = threads});
      for (const bool reference : {true, false}) {
        SCOPED_TRACE(std::string(variant.name) + (reference ? ", reference" : ", fast"));
        const Medusa::Options options{.heads = folder,
                                      .slot_count = 3,
                                      .sampled_vocab = kVocab,
                                      .batch_tokens_max = 33,
                                      .kernels = reference ? kernels::KernelChoice::kReference
                                                           : kernels::KernelChoice::kAuto};
        const auto kernels = kernels::make_kernels(options.kernels, pool).value();
        const auto made = Medusa::load(options, target(), plain_target_head, pool);
        ASSERT_TRUE(made.ok()) << made.error().message;
        const bool plain = kernels->name() == "reference";
        EXPECT_EQ((*made)->bytes(),
                  *Medusa::bytes_for(options, target().config(),
                                     {.is_reference = plain, .threads = threads}));
      }
    }
  }
}

// What is refused, and what is said of it.
TEST(MedusaProposer, heads_of_other_models_are_refused) {
  const auto names = [](const char* fields, std::string_view what) {
    const auto config = parse_medusa_config(config_of(fields), target().config(), "FILE");
    const std::string said = config.ok() ? "" : config.error().message;
    EXPECT_EQ(what.empty(), config.ok());
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  names("{}", "");
  names(R"({"architectures":null,"model_type":null})", "");  // FasterDecoding's says neither
  names(R"({"architectures":["A"],"model_type":"b","medusa_num_heads":null})", "architectures");
  names(R"({"hidden_size":256})", "hidden_size");
  names(R"({"hidden_size":null,"vocab_size":null})", "");
  names(R"({"vocab_size":513})", "vocab_size");
  names(R"({"medusa_num_heads":0})", "medusa_num_heads");
  names(R"({"medusa_num_heads":65})", "64");
  names(R"({"medusa_num_layers":17})", "16");
  names(R"({"hidden_act":"gelu"})", "hidden_act");
  names(R"({"truncated_vocab_size":513,"shared_lm_head":false})", "512");
  names(R"({"truncated_vocab_size":100})", "truncated_vocab_size");
  names(R"({"logit_scale":2.0})", "logit_scale");
}

TEST(MedusaProposer, broken_files_are_refused) {
  base::ThreadPool pool({.threads = 1});
  const auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool).value();
  const auto said = [&](const std::string& folder) {
    const auto loaded = MedusaHeads::load(folder, target(), plain_target_head, *kernels);
    return loaded.ok() ? std::string() : loaded.error().message;
  };
  EXPECT_NE(said("/nowhere").find("config.json"), std::string::npos);
  const std::string folder = write_heads("{}", 1);
  const auto names = [&](const char* fields, std::string_view what) {
    std::ofstream(folder + "/config.json") << config_of(fields).dump();
    EXPECT_NE(said(folder).find(what), std::string::npos) << said(folder);
  };
  // Tensors of one variant, the configuration of another.
  names(R"({"shared_lm_head":false})", "0.1.weight is missing");
  names(R"({"shared_lm_head":false,"original_lm_head":true})", "lm_head.weight is missing");
  names(R"({"medusa_num_heads":4})", "3.0.linear.weight is missing");
  names(R"({"medusa_num_heads":2})", "2.0.linear");
  names(R"({"medusa_fc_bias":false})", "0.0.linear.bias");
  std::filesystem::rename(folder + "/model.safetensors", folder + "/medusa_lm_head.pt");
  names("{}", "pickle");
  std::filesystem::remove(folder + "/medusa_lm_head.pt");
  names("{}", "model.safetensors");
}

}  // namespace
}  // namespace pelton::speculative
