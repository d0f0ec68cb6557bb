#include "node/model_verification.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/describe.h"
#include "kernels/kernels.h"
#include "node/sample_text.h"

namespace pelton::node {
namespace {

auto progress_of(const VerificationOptions& options, std::string_view what) {
  return [&options, what](int64_t done, int64_t total) {
    if (options.progress) options.progress(what, done, total);
  };
}

Result<void> check_files(const checkpoint::Checkpoint& checkpoint,
                         const VerificationOptions& options, ModelVerification& findings) {
  TRY_ASSIGN(findings.hashes,
             checkpoint::check_file_hashes(checkpoint, progress_of(options, "hashing")));
  for (const checkpoint::FileHash& hash : findings.hashes) {
    if (!hash.damaged()) continue;
    findings.damage.push_back(fmt::format("{}: SHA-256 is {}, but {} says {}", hash.path,
                                          hash.found, hash.origin, hash.expected));
  }
  return {};
}

void check_numbers(const checkpoint::Checkpoint& checkpoint, const VerificationOptions& options,
                   base::ThreadPool& pool, ModelVerification& findings) {
  findings.faults = checkpoint::check_weights(checkpoint, pool, progress_of(options, "reading"));
  for (const checkpoint::WeightFault& fault : findings.faults) {
    findings.damage.push_back(fmt::format("tensor {}: {} at {} place{}, the first is {}",
                                          fault.tensor, fault.what, fault.count,
                                          fault.count == 1 ? "" : "s", fault.first));
  }
}

Result<void> check_run(const checkpoint::Checkpoint& checkpoint, const VerificationOptions& options,
                       base::ThreadPool& pool, ModelVerification& findings) {
  TRY_ASSIGN(const SampleTokens sample, sample_tokens(checkpoint, options.tokens));
  const std::vector<TokenId>& tokens = sample.tokens;
  findings.real_text = sample.real_text;
  TRY_ASSIGN(const auto reference, kernels::make_kernels(kernels::KernelChoice::kReference, pool));
  TRY_ASSIGN(const auto fast, kernels::make_kernels(kernels::KernelChoice::kAuto, pool));
  findings.kernels = fast->name();
  findings.run_tokens = tokens.size();
  TRY_ASSIGN(findings.run, models::self_check(checkpoint, *reference, *fast, tokens,
                                              progress_of(options, "computing")));
  const double limit = self_check_limit(checkpoint.activation_bits());
  if (auto damage = self_check_damage(*findings.run, findings.kernels, limit)) {
    findings.damage.push_back(*std::move(damage));
  }
  return {};
}

}  // namespace

double self_check_limit(int activation_bits) {
  return activation_bits == 8 ? 1e-1 : 1e-3;
}

std::optional<std::string> self_check_damage(const models::SelfCheck& run, std::string_view kernels,
                                             double limit) {
  const models::BlockDifference& worst = run.blocks[run.worst];
  if (worst.error_median <= limit) return std::nullopt;  // which NaN is not
  return fmt::format("reference and {} kernels differ by {:.1e} after {} (limit {:.0e})", kernels,
                     worst.error_median, worst.name, limit);
}

Result<ModelVerification> verify_model(const checkpoint::Checkpoint& checkpoint,
                                       const VerificationOptions& options, base::ThreadPool& pool) {
  ModelVerification findings;
  if (options.hashes) TRY(check_files(checkpoint, options, findings));
  check_numbers(checkpoint, options, pool, findings);
  if (options.tokens > 0) TRY(check_run(checkpoint, options, pool, findings));
  return findings;
}

std::string verification_text(const checkpoint::Checkpoint& checkpoint,
                              const ModelVerification& findings) {
  std::string out;
  const auto line = [&](std::string_view label, const std::string& text) {
    out += fmt::format("{:<18}{}\n", label, text);
  };
  line("model", fmt::format("{} ({}), {} layers, {} experts", checkpoint.folder(),
                            checkpoint::layout_name(checkpoint.layout()),
                            checkpoint.config().layer_count(), checkpoint.config().expert_count));
  line("tensors",
       fmt::format("{}: names, types and shapes are right", checkpoint.tensors().size()));
  for (const checkpoint::FileHash& hash : findings.hashes) {
    line("hash", hash.expected.empty()
                     ? fmt::format("{}: nothing to compare with", hash.path)
                     : fmt::format("{}: {} {}", hash.path,
                                   hash.damaged() ? "DIFFERS from" : "as in", hash.origin));
  }
  line("numbers", findings.faults.empty()
                      ? "all finite, all scales valid"
                      : fmt::format("{} tensors are DAMAGED", findings.faults.size()));
  if (findings.run) {
    const models::SelfCheck& run = *findings.run;
    const models::BlockDifference& worst = run.blocks[run.worst];
    line("self-consistency",
         fmt::format("reference against {} on {} tokens: worst after {}, {:.1e} (most {:.1e}); the "
                     "same best token at {:.1f} % of positions",
                     findings.kernels, findings.run_tokens, worst.name, worst.error_median,
                     worst.error_max, 100 * run.agreement));
    if (findings.real_text) {
      line("real text", fmt::format("{:.3f} nats per token, perplexity {:.4g}", run.nats_per_token,
                                    std::exp(run.nats_per_token)));
    }
  }
  line("verdict", findings.damage.empty() ? "sound" : "DAMAGED");
  for (const std::string& damage : findings.damage) out += "  " + damage + "\n";
  return out;
}

Json verification_json(const checkpoint::Checkpoint& checkpoint,
                       const ModelVerification& findings) {
  Json json;
  json.set("model", checkpoint::describe_json(checkpoint));
  Json::Array files;
  for (const checkpoint::FileHash& hash : findings.hashes) {
    Json file;
    file.set("path", hash.path).set("bytes", hash.bytes);
    file.set("expected_sha256", hash.expected.empty() ? Json() : Json(hash.expected));
    file.set("found_sha256", hash.found.empty() ? Json() : Json(hash.found));
    files.push_back(file.set("damaged", hash.damaged()));
  }
  json.set("files", std::move(files));
  Json::Array faults;
  for (const checkpoint::WeightFault& fault : findings.faults) {
    Json one;
    one.set("tensor", fault.tensor).set("what", fault.what).set("count", fault.count);
    faults.push_back(one.set("first", fault.first));
  }
  json.set("faults", std::move(faults));
  if (findings.run) {
    // JSON has no infinity.
    const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
    Json::Array blocks;
    for (const models::BlockDifference& block : findings.run->blocks) {
      Json one;
      one.set("block", block.name).set("error_median", number(block.error_median));
      one.set("error_max", number(block.error_max));
      blocks.push_back(one.set("rms", number(block.rms)));
    }
    Json run;
    run.set("kernels", findings.kernels).set("tokens", static_cast<int64_t>(findings.run_tokens));
    run.set("real_text", findings.real_text);
    run.set("worst", findings.run->blocks[findings.run->worst].name);
    run.set("agreement", findings.run->agreement);
    run.set("nats_per_token", number(findings.run->nats_per_token));
    json.set("self_check", run.set("blocks", std::move(blocks)));
  }
  Json::Array damage;
  for (const std::string& sentence : findings.damage) damage.push_back(sentence);
  return json.set("damage", std::move(damage)).set("sound", findings.damage.empty());
}

Result<void> verification_verdict(const std::string& model, const ModelVerification& verification) {
  const std::vector<std::string>& damage = verification.damage;
  if (damage.empty()) return {};
  return Error{
      ErrorCode::kBadCheckpoint,
      fmt::format("{}: is damaged: {}{}", model, damage[0],
                  damage.size() == 1 ? "" : fmt::format(" (and {} more)", damage.size() - 1))};
}

}  // namespace pelton::node
