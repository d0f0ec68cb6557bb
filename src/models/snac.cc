#include "models/snac.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "families/config_fields.h"

namespace pelton::models {
namespace {

using families::ConfigFields;
using Output = kernels::Kernels::Output;

constexpr int kSizeMax = 1 << 14;
constexpr size_t kListMax = 8;
constexpr int kTaps = 7;
constexpr int kDilations[] = {1, 3, 9};
constexpr int64_t kFrameSamplesMax = 1 << 14;
constexpr int64_t kFramesMax = 1 << 16;  // latent ones of one decode: half an hour and more

Result<std::vector<int>> read_list(const ConfigFields& fields, const char* key, int most) {
  const Json* list = fields.find(key);
  if (list == nullptr || !list->is_array() || list->as_array().empty() ||
      list->as_array().size() > kListMax) {
    return fields.bad(key, fmt::format("must be a list of 1 to {} numbers", kListMax));
  }
  std::vector<int> values;
  for (const Json& item : list->as_array()) {
    if (!item.is_integer() || item.as_integer() < 1 || item.as_integer() > most) {
      return fields.bad(
          key, fmt::format("holds {}; numbers from 1 to {} are read", families::shown(item), most));
    }
    values.push_back(static_cast<int>(item.as_integer()));
  }
  return values;
}

// x[i] += sin^2(alpha[i] x[i]) / alpha[i]. sin^2 repeats itself every pi, so the angle is taken to
// [-pi/2, pi/2], where eight terms of the series are exact to 1e-11. Adding and taking away 1.5 *
// 2^52 rounds to a whole number, in vectors too, which std::sin is not computed in.
void add_squared_sines(float* x, const float* alpha, int count) {
  constexpr double kRound = 6755399441055744.0;
  constexpr double kInversePi = 0.31830988618379067154;
  constexpr double kPi = 3.14159265358979323846;
  for (int i = 0; i < count; ++i) {
    const double a = alpha[i];
    const double angle = a * double{x[i]};
    const double turns = (angle * kInversePi + kRound) - kRound;
    const double r = angle - turns * kPi;
    const double s = r * r;
    double sine = -7.6471637318198164759e-13;  // -1 / 15!
    sine = sine * s + 1.6059043836821614599e-10;
    sine = sine * s - 2.5052108385441718775e-08;
    sine = sine * s + 2.7557319223985890653e-06;
    sine = sine * s - 1.9841269841269841253e-04;
    sine = sine * s + 8.3333333333333332177e-03;
    sine = sine * s - 1.6666666666666665741e-01;
    sine = r + r * s * sine;
    x[i] = static_cast<float>(double{x[i]} + sine * sine / (a + 1e-9));
  }
}

kernels::Matrix float_matrix(const float* data, int rows, int cols) {
  return {.data = data, .rows = rows, .cols = cols, .format = kernels::Format::kF32};
}

}  // namespace

int SnacConfig::samples_per_frame() const {
  int samples = 1;
  for (const int rate : rates) samples *= rate;
  return samples;
}

Result<SnacConfig> parse_snac_config(const Json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SnacConfig config;
  TRY(fields.only("attn_window_size", Json(nullptr)));
  TRY_ASSIGN(config.sample_rate, fields.integer("sampling_rate", {1, 768'000}));
  TRY_ASSIGN(config.decoder_size, fields.integer("decoder_dim", {1, kSizeMax}));
  TRY_ASSIGN(const int encoder_size, fields.integer("encoder_dim", {1, kSizeMax}));
  TRY_ASSIGN(const std::vector<int> encoder_rates, read_list(fields, "encoder_rates", 64));
  TRY_ASSIGN(config.rates, read_list(fields, "decoder_rates", 64));
  TRY_ASSIGN(config.strides, read_list(fields, "vq_strides", 64));
  TRY_ASSIGN(config.book_size, fields.integer("codebook_size", {1, 1 << 20}));
  TRY_ASSIGN(config.code_size, fields.integer("codebook_dim", {1, 1024}));
  TRY_ASSIGN(config.depthwise, fields.boolean("depthwise", true));
  const int inferred = encoder_size << encoder_rates.size();
  TRY_ASSIGN(config.latent_size, fields.integer_or("latent_dim", inferred, {1, kSizeMax}));
  int64_t samples = 1;
  for (const int rate : config.rates) samples *= rate;
  if (samples > kFrameSamplesMax) {
    return fields.bad("decoder_rates", fmt::format("make {} samples of a latent frame; at most {} "
                                                   "are read",
                                                   samples, kFrameSamplesMax));
  }
  const int narrowest = config.decoder_size >> config.rates.size();
  if (narrowest < 1 || narrowest << config.rates.size() != config.decoder_size) {
    return fields.bad("decoder_dim", fmt::format("({}) must be halved {} times",
                                                 config.decoder_size, config.rates.size()));
  }
  return config;
}

Snac::Snac(SnacConfig config, checkpoint::TensorFile file, kernels::Kernels& kernels)
    : config_(std::move(config)), file_(std::move(file)), kernels_(kernels) {}

Result<SnacConfig> read_snac_config(const std::string& folder) {
  const std::string name = folder + "/config.json";
  TRY_ASSIGN(const std::string text, base::read_file(name, size_t{1} << 20));
  const Result<Json> json = Json::parse(text);
  if (!json.ok() || !json->is_object()) {
    return Error{
        ErrorCode::kBadCheckpoint,
        fmt::format("{}: {}", name, json.ok() ? "must be an object" : json.error().message)};
  }
  return parse_snac_config(*json, name);
}

Result<checkpoint::TensorFile> open_snac_weights(const std::string& folder) {
  const std::string safetensors = folder + "/model.safetensors";
  const std::string published = folder + "/pytorch_model.bin";
  std::error_code ignored;
  const bool is_published =
      !std::filesystem::exists(safetensors, ignored) && std::filesystem::exists(published, ignored);
  return is_published ? checkpoint::TensorFile::open_torch(published)
                      : checkpoint::TensorFile::open(safetensors);
}

Result<std::unique_ptr<Snac>> Snac::load(const std::string& folder, kernels::Kernels& kernels) {
  TRY_ASSIGN(SnacConfig config, read_snac_config(folder));
  TRY_ASSIGN(checkpoint::TensorFile file, open_snac_weights(folder));
  std::unique_ptr<Snac> model(new Snac(std::move(config), std::move(file), kernels));
  TRY(model->load_all());
  return model;
}

Result<const float*> Snac::vector(const std::string& name, std::vector<int64_t> shape) {
  TRY_ASSIGN(const tensor::TensorView view, file_.tensor(name, shape));
  return layers::vector_of(view, name, vectors_);
}

// The names of torch's weight norm, now and before 2.0.
Result<const float*> Snac::normed(const std::string& name, std::vector<int64_t> shape) {
  const std::string now = name + "parametrizations.weight.original";
  const bool is_old = !file_.has(now + "0") && file_.has(name + "weight_g");
  const std::string gain_name = is_old ? name + "weight_g" : now + "0";
  const std::string direction_name = is_old ? name + "weight_v" : now + "1";
  TRY_ASSIGN(const float* gains, vector(gain_name, {shape[0], 1, 1}));
  TRY_ASSIGN(const float* directions, vector(direction_name, shape));
  const int64_t row = shape[1] * shape[2];
  float* const made = vectors_.add(shape[0] * row);
  for (int64_t i = 0; i < shape[0]; ++i) {
    double squares = 0.0;
    for (int64_t k = 0; k < row; ++k) {
      squares += double{directions[i * row + k]} * double{directions[i * row + k]};
    }
    const double scale = squares > 0.0 ? double{gains[i]} / std::sqrt(squares) : 0.0;
    for (int64_t k = 0; k < row; ++k) {
      made[i * row + k] = static_cast<float>(double{directions[i * row + k]} * scale);
    }
  }
  return made;
}

Result<Snac::Pointwise> Snac::pointwise(const std::string& name, int out, int in) {
  Pointwise part;
  TRY_ASSIGN(const float* weight, normed(name, {out, in, 1}));
  part.linear.weight = float_matrix(weight, out, in);
  TRY_ASSIGN(part.linear.bias, vector(name + "bias", {out}));
  return part;
}

Result<Snac::Taps> Snac::taps(const std::string& name, int out, int in, bool depthwise) {
  Taps part{.in = in, .out = out, .taps = kTaps, .depthwise = depthwise};
  TRY_ASSIGN(const float* weight, normed(name, {out, depthwise ? 1 : in, kTaps}));
  // Channels side by side, as the frames have them.
  float* const by_taps = vectors_.add(int64_t{out} * (depthwise ? 1 : in) * kTaps);
  for (int o = 0; o < out; ++o) {
    for (int k = 0; k < kTaps; ++k) {
      if (depthwise) {
        by_taps[int64_t{k} * out + o] = weight[int64_t{o} * kTaps + k];
        continue;
      }
      for (int c = 0; c < in; ++c) {
        by_taps[(int64_t{o} * kTaps + k) * in + c] = weight[(int64_t{o} * in + c) * kTaps + k];
      }
    }
  }
  part.weight = by_taps;
  TRY_ASSIGN(part.bias, vector(name + "bias", {out}));
  return part;
}

Result<Snac::Residual> Snac::load_residual(const std::string& name, int channels, int dilation) {
  Residual part{.dilation = dilation};
  TRY_ASSIGN(part.first_alpha, vector(name + "block.0.alpha", {1, channels, 1}));
  TRY_ASSIGN(part.taps, taps(name + "block.1.", channels, channels, config_.depthwise));
  TRY_ASSIGN(part.second_alpha, vector(name + "block.2.alpha", {1, channels, 1}));
  TRY_ASSIGN(part.mix, pointwise(name + "block.3.", channels, channels));
  return part;
}

Result<Snac::Block> Snac::load_block(int index, int in, int out, int rate) {
  const std::string name = fmt::format("decoder.model.{}.block.", index);
  Block block{.in = in, .out = out, .rate = rate};
  TRY_ASSIGN(block.alpha, vector(name + "0.alpha", {1, in, 1}));
  const int taps = 2 * rate;
  TRY_ASSIGN(const float* weight, normed(name + "1.", {in, out, taps}));
  TRY_ASSIGN(block.bias, vector(name + "1.bias", {out}));
  // (in, out, taps) -> (taps, out, in), so that a row is one number of one finer frame.
  float* const rows = vectors_.add(int64_t{in} * out * taps);
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t k = 0; k < taps; ++k)
        rows[(k * out + o) * in + i] = weight[(i * out + o) * taps + k];
    }
  }
  block.up.weight = float_matrix(rows, out * taps, in);
  // Behind the noise, which is left out.
  const int first = file_.has(name + "2.linear.parametrizations.weight.original0") ||
                            file_.has(name + "2.linear.weight_g")
                        ? 3
                        : 2;
  for (size_t r = 0; r < std::size(kDilations); ++r) {
    TRY_ASSIGN(
        Residual residual,
        load_residual(fmt::format("{}{}.", name, first + static_cast<int>(r)), out, kDilations[r]));
    block.residuals.push_back(residual);
  }
  return block;
}

Result<void> Snac::load_books() {
  for (size_t b = 0; b < config_.strides.size(); ++b) {
    const std::string name = fmt::format("quantizer.quantizers.{}.", b);
    Book book;
    TRY_ASSIGN(book.codes,
               vector(name + "codebook.weight", {config_.book_size, config_.code_size}));
    TRY_ASSIGN(book.out, pointwise(name + "out_proj.", config_.latent_size, config_.code_size));
    books_.push_back(book);
  }
  return {};
}

Result<void> Snac::load_all() {
  TRY(load_books());
  const int latent = config_.latent_size;
  int index = 0;
  if (config_.depthwise) {
    TRY_ASSIGN(first_, taps("decoder.model.0.", latent, latent, true));
    TRY_ASSIGN(second_, pointwise("decoder.model.1.", config_.decoder_size, latent));
    index = 2;
  } else {
    TRY_ASSIGN(first_, taps("decoder.model.0.", config_.decoder_size, latent, false));
    index = 1;
  }
  int channels = config_.decoder_size;
  for (const int rate : config_.rates) {
    TRY_ASSIGN(Block block, load_block(index++, channels, channels / 2, rate));
    blocks_.push_back(std::move(block));
    channels /= 2;
  }
  TRY_ASSIGN(last_alpha_, vector(fmt::format("decoder.model.{}.alpha", index), {1, channels, 1}));
  TRY_ASSIGN(last_, taps(fmt::format("decoder.model.{}.", index + 1), 1, channels, false));
  return {};
}

Snac::Range Snac::Range::widened(int64_t by, int64_t frames) const {
  return {.begin = std::max<int64_t>(begin - by, 0), .end = std::min(end + by, frames)};
}

std::vector<float> Snac::run(const Pointwise& part, const std::vector<float>& x,
                             kernels::Kernels& kernels) {
  const auto in = static_cast<size_t>(part.linear.weight.cols);
  const size_t frames = x.size() / in;
  std::vector<float> out(frames * static_cast<size_t>(part.linear.weight.rows));
  kernels.linear(out.data(), x.data(), part.linear, static_cast<int>(frames), Output::kOverwrite);
  return out;
}

// As long as before: zeros stand beyond either end of the level.
Snac::Signal Snac::run(const Taps& part, const Signal& x, int dilation, Range wanted,
                       int64_t frames) {
  Signal out{.range = wanted, .x = {}};
  out.x.resize(static_cast<size_t>(wanted.size() * part.out));
  const int64_t reach = int64_t{part.taps / 2} * dilation;
  std::vector<double> sums(static_cast<size_t>(part.out));
  for (int64_t t = wanted.begin; t < wanted.end; ++t) {
    std::copy_n(part.bias, part.out, sums.data());
    for (int k = 0; k < part.taps; ++k) {
      const int64_t from = t + int64_t{k} * dilation - reach;
      if (from < 0 || from >= frames) continue;
      const float* const frame = x.x.data() + (from - x.range.begin) * part.in;
      if (part.depthwise) {
        const float* const weight = part.weight + int64_t{k} * part.in;
        for (int c = 0; c < part.in; ++c) {
          sums[static_cast<size_t>(c)] += double{weight[c]} * double{frame[c]};
        }
        continue;
      }
      for (int o = 0; o < part.out; ++o) {
        const float* const weight = part.weight + (int64_t{o} * part.taps + k) * part.in;
        for (int c = 0; c < part.in; ++c) {
          sums[static_cast<size_t>(o)] += double{weight[c]} * double{frame[c]};
        }
      }
    }
    float* const to = out.x.data() + (t - wanted.begin) * part.out;
    for (int o = 0; o < part.out; ++o) to[o] = static_cast<float>(sums[static_cast<size_t>(o)]);
  }
  return out;
}

// x + sin^2(alpha x) / alpha
void Snac::snake(std::vector<float>& x, const float* alpha, int channels) {
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(channels)) {
    add_squared_sines(x.data() + i, alpha, channels);
  }
}

Snac::Needs Snac::needs_of(const Block& block, Range wanted, int64_t frames) {
  const int64_t finer = frames * block.rate;
  Range fine = wanted;
  for (const Residual& residual : block.residuals) {
    fine = fine.widened(int64_t{residual.taps.taps / 2} * residual.dilation, finer);
  }
  // Coarse frame t adds to the finer ones from t * rate - padding on, 2 rate of them.
  const int64_t padding = (block.rate + 1) / 2;
  const Range coarse{.begin = (fine.begin + padding) / block.rate - 1,
                     .end = (fine.end - 1 + padding) / block.rate + 1};
  return {.coarse = coarse.widened(0, frames), .fine = fine};
}

Snac::Signal Snac::upsample(const Block& block, const Signal& x, Range wanted, int64_t frames,
                            kernels::Kernels& kernels) {
  const int taps = 2 * block.rate;
  const int64_t coarse = x.range.size();
  std::vector<float> parts(static_cast<size_t>(coarse * block.out * taps));
  kernels.linear(parts.data(), x.x.data(), block.up, static_cast<int>(coarse), Output::kOverwrite);
  const int64_t padding = (block.rate + 1) / 2;
  Signal y{.range = wanted, .x = {}};
  y.x.resize(static_cast<size_t>(wanted.size() * block.out));
  std::vector<double> sums(static_cast<size_t>(block.out));
  for (int64_t to = wanted.begin; to < wanted.end; ++to) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const int64_t last = (to + padding) / block.rate;
    for (int64_t t = std::max<int64_t>(last - 1, 0); t <= std::min(last, frames - 1); ++t) {
      const int64_t k = to + padding - t * block.rate;
      const float* const part = parts.data() + ((t - x.range.begin) * taps + k) * block.out;
      for (int o = 0; o < block.out; ++o) sums[static_cast<size_t>(o)] += double{part[o]};
    }
    float* const out = y.x.data() + (to - wanted.begin) * block.out;
    for (int o = 0; o < block.out; ++o) {
      out[o] = static_cast<float>(sums[static_cast<size_t>(o)] + double{block.bias[o]});
    }
  }
  return y;
}

Snac::Signal Snac::run(const Block& block, Signal x, Range wanted, int64_t frames,
                       kernels::Kernels& kernels) {
  snake(x.x, block.alpha, block.in);
  const int64_t finer = frames * block.rate;
  Signal y = upsample(block, x, needs_of(block, wanted, frames).fine, frames, kernels);
  for (size_t r = 0; r < block.residuals.size(); ++r) {
    const Residual& residual = block.residuals[r];
    Range left = wanted;  // what those behind this one need
    for (size_t later = r + 1; later < block.residuals.size(); ++later) {
      const Residual& other = block.residuals[later];
      left = left.widened(int64_t{other.taps.taps / 2} * other.dilation, finer);
    }
    Signal inner = y;
    snake(inner.x, residual.first_alpha, block.out);
    inner = run(residual.taps, inner, residual.dilation, left, finer);
    snake(inner.x, residual.second_alpha, block.out);
    inner.x = run(residual.mix, inner.x, kernels);
    const float* const kept = y.x.data() + (left.begin - y.range.begin) * block.out;
    for (size_t i = 0; i < inner.x.size(); ++i) inner.x[i] += kept[i];
    y = std::move(inner);
  }
  return y;
}

Result<int64_t> Snac::check_codes(std::span<const std::vector<int>> codes) const {
  const auto refuse = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what, "codes"};
  };
  if (codes.size() != books_.size()) {
    return refuse(fmt::format("codes of {} books; the model has {}", codes.size(), books_.size()));
  }
  const auto frames = static_cast<int64_t>(codes[0].size()) * config_.strides[0];
  if (frames == 0 || frames > kFramesMax) {
    return refuse(fmt::format("{} codes of book 0; 1 to {} are decoded at once", codes[0].size(),
                              kFramesMax / config_.strides[0]));
  }
  for (size_t b = 0; b < books_.size(); ++b) {
    const int stride = config_.strides[b];
    if (static_cast<int64_t>(codes[b].size()) * stride != frames) {
      return refuse(fmt::format("book {} has {} codes, where {} are as long as book 0's", b,
                                codes[b].size(), frames / stride));
    }
    for (const int code : codes[b]) {
      if (code >= 0 && code < config_.book_size) continue;
      return refuse(fmt::format("book {} has the code {}; codes go from 0 to {}", b, code,
                                config_.book_size - 1));
    }
  }
  return frames;
}

std::vector<float> Snac::latent_of(std::span<const std::vector<int>> codes, int64_t frames,
                                   kernels::Kernels& kernels) const {
  const auto latent = static_cast<size_t>(config_.latent_size);
  std::vector<float> x(static_cast<size_t>(frames) * latent);
  for (size_t b = 0; b < books_.size(); ++b) {
    std::vector<float> picked;
    for (const int code : codes[b]) {
      const float* const row = books_[b].codes + int64_t{code} * config_.code_size;
      picked.insert(picked.end(), row, row + config_.code_size);
    }
    const std::vector<float> made = run(books_[b].out, picked, kernels);
    const auto stride = static_cast<size_t>(config_.strides[b]);
    for (size_t t = 0; t < static_cast<size_t>(frames); ++t) {
      const float* const from = made.data() + t / stride * latent;
      for (size_t i = 0; i < latent; ++i) x[t * latent + i] += from[i];
    }
  }
  return x;
}

Result<std::vector<float>> Snac::decode(std::span<const std::vector<int>> codes) const {
  TRY_ASSIGN(const int64_t frames, check_codes(codes));
  return decode(codes, {.begin = 0, .count = frames * config_.samples_per_frame()}, kernels_);
}

Result<std::vector<float>> Snac::decode(std::span<const std::vector<int>> codes, Samples wanted,
                                        kernels::Kernels& kernels) const {
  TRY_ASSIGN(const int64_t frames, check_codes(codes));
  const int64_t samples = frames * config_.samples_per_frame();
  if (wanted.begin < 0 || wanted.count < 1 || wanted.count > samples - wanted.begin) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("samples from {} on, {} of them; there are {}", wanted.begin,
                             wanted.count, samples),
                 "samples"};
  }
  // From the samples back to the latent frames: what each level must have.
  const Range last{.begin = wanted.begin, .end = wanted.begin + wanted.count};
  std::vector<Range> ranges(blocks_.size());  // that block b is to give
  std::vector<int64_t> levels(blocks_.size());
  int64_t level = frames;
  for (size_t b = 0; b < blocks_.size(); ++b)
    levels[b] = std::exchange(level, level * blocks_[b].rate);
  Range needed = last.widened(last_.taps / 2, samples);
  for (size_t b = blocks_.size(); b-- > 0;) {
    ranges[b] = needed;
    needed = needs_of(blocks_[b], needed, levels[b]).coarse;
  }
  const Signal latent{.range = {.begin = 0, .end = frames}, .x = latent_of(codes, frames, kernels)};
  Signal x = run(first_, latent, 1, needed, frames);
  if (config_.depthwise) x.x = run(second_, x.x, kernels);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    x = run(blocks_[b], std::move(x), ranges[b], levels[b], kernels);
  }
  snake(x.x, last_alpha_, last_.in);
  x = run(last_, x, 1, last, samples);
  for (float& sample : x.x) sample = static_cast<float>(std::tanh(double{sample}));
  return std::move(x.x);
}

}  // namespace pelton::models
