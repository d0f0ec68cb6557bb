// An adversarial model: draws tokens at random, as one whose logits mean nothing, held by nothing
// but the grammar. After 200 tokens a growing bias to closing tokens brings documents to an end.
//
// usage: generate TOKENIZER SCHEMAS DOCUMENTS SEED >documents.jsonl
//
// SCHEMAS: a JSON array of schemas. Each finished document becomes {"schema": i, "text": "..."};
// one that is stuck, or a schema that is refused, is an error of ours and ends the run with exit
// code 1. So does a share of finished documents below 95 %. Figures go to stderr.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace pelton {
namespace {

constexpr int kFreeTokens = 200;
constexpr int kTokensMax = 2000;
constexpr double kBiasPerToken = 0.1;
constexpr double kBiasMax = 30;

class Model {
 public:
  Model(std::shared_ptr<const grammar::TokenTrie> trie, uint64_t seed)
      : trie_(std::move(trie)), seed_(seed), mask_(trie_->mask_words()), closing_(mask_.size()) {
    for (TokenId token = 0; token < trie_->vocab_size(); ++token) {
      if (is_closing(trie_->bytes(token))) {
        closing_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
      }
    }
  }

  enum class End { kFinished, kTokens, kStuck };
  struct Document {
    End end = End::kTokens;
    std::string text;
    int tokens = 0;
  };

  Document write(const std::shared_ptr<const grammar::TokenGrammar>& grammar) {
    grammar::Matcher matcher(grammar);
    Document document;
    for (; document.tokens < kTokensMax; ++document.tokens) {
      const double began = thread_cpu_us();
      matcher.fill_mask(mask_);
      mask_us_.push_back(thread_cpu_us() - began);
      const double bias =
          std::min(kBiasMax, kBiasPerToken * std::max(0, document.tokens - kFreeTokens));
      const std::optional<TokenId> token = draw(std::exp(bias), matcher.can_end());
      if (!token) {
        document.end = matcher.can_end() ? End::kFinished : End::kStuck;
        return document;
      }
      CHECK(matcher.accept(*token), "a token of the mask is refused");
      document.text += trie_->bytes(*token);
    }
    return document;
  }

  std::vector<double>& mask_us() { return mask_us_; }

  static double thread_cpu_us() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
  }

 private:
  // Only what closes strings, objects, arrays and groups, and blanks.
  static bool is_closing(std::string_view text) {
    bool closes = false;
    for (const char c : text) {
      if (c == '"' || c == '}' || c == ']' || c == ')') {
        closes = true;
      } else if (c != ' ' && c != '\n') {
        return false;
      }
    }
    return closes;
  }

  double unit() { return base::random_unit(seed_, counter_++); }

  // Random logits mean that every allowed token is as likely; closing ones `weight` times as
  // likely. The end of the text is one of those. Nothing: the end, or no token is allowed.
  std::optional<TokenId> draw(double weight, bool can_end) {
    uint64_t closing = 0;
    uint64_t open = 0;
    for (size_t i = 0; i < mask_.size(); ++i) {
      closing += static_cast<uint64_t>(std::popcount(mask_[i] & closing_[i]));
      open += static_cast<uint64_t>(std::popcount(mask_[i] & ~closing_[i]));
    }
    const double heavy = weight * static_cast<double>(closing + (can_end ? 1 : 0));
    const double all = heavy + static_cast<double>(open);
    if (all == 0) return std::nullopt;
    double at = unit() * all;
    if (at < heavy) {
      const uint64_t place = static_cast<uint64_t>(at / weight);
      if (place >= closing) return std::nullopt;
      return nth(place, 0);
    }
    return nth(std::min(static_cast<uint64_t>(at - heavy), open - 1), ~uint64_t{0});
  }

  TokenId nth(uint64_t place, uint64_t flip) const {
    for (size_t i = 0; i < mask_.size(); ++i) {
      uint64_t word = mask_[i] & (closing_[i] ^ flip);
      const uint64_t count = static_cast<uint64_t>(std::popcount(word));
      if (place >= count) {
        place -= count;
        continue;
      }
      for (; place > 0; --place) word &= word - 1;
      return static_cast<TokenId>(i * 64 + static_cast<size_t>(std::countr_zero(word)));
    }
    CHECK(false, "fewer tokens than counted");
    return 0;
  }

  const std::shared_ptr<const grammar::TokenTrie> trie_;
  const uint64_t seed_;
  uint64_t counter_ = 0;
  std::vector<uint64_t> mask_, closing_;
  std::vector<double> mask_us_;
};

int run(const std::string& tokenizer_path, const std::string& schemas_path, int documents,
        uint64_t seed) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(tokenizer_path).value();
  const Json schemas = Json::parse(base::read_file(schemas_path).value()).value();
  const std::shared_ptr<const grammar::TokenTrie> trie = grammar::TokenTrie::of(tokenizer);
  std::vector<std::shared_ptr<const grammar::TokenGrammar>> grammars;
  int errors = 0;
  for (const Json& schema : schemas.as_array()) {
    // Every other one without blanks.
    const bool blanks = grammars.size() % 2 == 0;
    const auto compiled = grammar::compile_json_schema(
        schema, {.whitespace = blanks ? grammar::SchemaOptions::Whitespace::kFlexible
                                      : grammar::SchemaOptions::Whitespace::kNone});
    if (!compiled.ok()) {
      std::fprintf(stderr, "schema %zu is refused: %s: %s\n", grammars.size(),
                   compiled.error().field.c_str(), compiled.error().message.c_str());
      grammars.push_back(nullptr);
      ++errors;
      continue;
    }
    grammars.push_back(grammar::TokenGrammar::make(*compiled, trie).value());
  }

  Model model(trie, seed);
  int finished = 0;
  int64_t tokens = 0;
  std::vector<int> cut(grammars.size(), 0);
  for (int i = 0; i < documents; ++i) {
    const size_t which = static_cast<size_t>(i) % grammars.size();
    if (!grammars[which]) continue;
    const Model::Document document = model.write(grammars[which]);
    tokens += document.tokens;
    if (document.end == Model::End::kFinished) {
      ++finished;
      Json line = Json::Object{};
      line.set("schema", static_cast<int64_t>(which));
      line.set("text", document.text);
      std::printf("%s\n", line.dump().c_str());
    } else if (document.end == Model::End::kStuck) {
      std::fprintf(stderr, "stuck: schema %zu after %s\n", which, document.text.c_str());
      ++errors;
    } else {
      ++cut[which];
    }
  }
  for (size_t i = 0; i < cut.size(); ++i) {
    if (cut[i] > 0) std::fprintf(stderr, "schema %zu: %d documents without an end\n", i, cut[i]);
  }
  std::vector<double>& us = model.mask_us();
  std::sort(us.begin(), us.end());
  double sum = 0;
  for (const double one : us) sum += one;
  std::fprintf(
      stderr,
      "%d of %d documents finished (%.1f %%), %lld tokens; mask us: mean %.1f p50 %.1f p99 "
      "%.1f max %.1f; seed %llu\n",
      finished, documents, 100.0 * finished / documents, static_cast<long long>(tokens),
      sum / static_cast<double>(us.size()), us[us.size() / 2], us[us.size() * 99 / 100], us.back(),
      static_cast<unsigned long long>(seed));
  return errors > 0 || finished * 100 < documents * 95 ? 1 : 0;
}

}  // namespace
}  // namespace pelton

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: generate TOKENIZER SCHEMAS DOCUMENTS SEED\n");
    return 2;
  }
  return pelton::run(argv[1], argv[2], std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10));
}
