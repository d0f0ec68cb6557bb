#include "models/snac.h"

#include <algorithm>
#include <array>
#include <cmath>
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
  const int narrowest = config.decoder_size >> config.rates.size();
  if (narrowest < 1 || narrowest << config.rates.size() != config.decoder_size) {
    return fields.bad("decoder_dim", fmt::format("({}) must be halved {} times",
                                                 config.decoder_size, config.rates.size()));
  }
  return config;
}

Snac::Snac(SnacConfig config, checkpoint::TensorFile file, kernels::Kernels& kernels)
    : config_(std::move(config)), file_(std::move(file)), kernels_(kernels) {}

Result<std::unique_ptr<Snac>> Snac::load(const std::string& folder, kernels::Kernels& kernels) {
  const std::string name = folder + "/config.json";
  TRY_ASSIGN(const std::string text, base::read_file(name, size_t{1} << 20));
  const Result<Json> json = Json::parse(text);
  if (!json.ok() || !json->is_object()) {
    return Error{
        ErrorCode::kBadCheckpoint,
        fmt::format("{}: {}", name, json.ok() ? "must be an object" : json.error().message)};
  }
  TRY_ASSIGN(SnacConfig config, parse_snac_config(*json, name));
  TRY_ASSIGN(checkpoint::TensorFile file,
             checkpoint::TensorFile::open(folder + "/model.safetensors"));
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
  TRY_ASSIGN(part.weight, normed(name, {out, depthwise ? 1 : in, kTaps}));
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

std::vector<float> Snac::run(const Pointwise& part, const std::vector<float>& x) const {
  const auto in = static_cast<size_t>(part.linear.weight.cols);
  const size_t frames = x.size() / in;
  std::vector<float> out(frames * static_cast<size_t>(part.linear.weight.rows));
  kernels_.linear(out.data(), x.data(), part.linear, static_cast<int>(frames), Output::kOverwrite);
  return out;
}

// As long as before: zeros stand beyond either end.
std::vector<float> Snac::run(const Taps& part, const std::vector<float>& x, int dilation) {
  const auto frames = static_cast<int64_t>(x.size()) / part.in;
  std::vector<float> out(static_cast<size_t>(frames * part.out));
  const int64_t reach = int64_t{part.taps / 2} * dilation;
  for (int64_t t = 0; t < frames; ++t) {
    for (int o = 0; o < part.out; ++o) {
      double sum = part.bias[o];
      for (int k = 0; k < part.taps; ++k) {
        const int64_t from = t + int64_t{k} * dilation - reach;
        if (from < 0 || from >= frames) continue;
        if (part.depthwise) {
          sum +=
              double{part.weight[o * part.taps + k]} * x[static_cast<size_t>(from * part.in + o)];
          continue;
        }
        for (int c = 0; c < part.in; ++c) {
          sum += double{part.weight[(int64_t{o} * part.in + c) * part.taps + k]} *
                 x[static_cast<size_t>(from * part.in + c)];
        }
      }
      out[static_cast<size_t>(t * part.out + o)] = static_cast<float>(sum);
    }
  }
  return out;
}

// x + sin^2(alpha x) / alpha
void Snac::snake(std::vector<float>& x, const float* alpha, int channels) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = alpha[i % static_cast<size_t>(channels)];
    const double sine = std::sin(a * x[i]);
    x[i] = static_cast<float>(x[i] + sine * sine / (a + 1e-9));
  }
}

std::vector<float> Snac::run(const Block& block, std::vector<float> x) const {
  snake(x, block.alpha, block.in);
  const auto frames = static_cast<int64_t>(x.size()) / block.in;
  const int taps = 2 * block.rate;
  std::vector<float> parts(static_cast<size_t>(frames * block.out * taps));
  kernels_.linear(parts.data(), x.data(), block.up, static_cast<int>(frames), Output::kOverwrite);
  // Frame t adds to the finer ones from t * rate - padding on.
  const int64_t finer = frames * block.rate;
  const int64_t padding = (block.rate + 1) / 2;
  std::vector<double> sums(static_cast<size_t>(finer * block.out));
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t to = t * block.rate + k - padding;
      if (to < 0 || to >= finer) continue;
      for (int64_t o = 0; o < block.out; ++o) {
        sums[static_cast<size_t>(to * block.out + o)] +=
            parts[static_cast<size_t>((t * taps + k) * block.out + o)];
      }
    }
  }
  std::vector<float> y(sums.size());
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = static_cast<float>(sums[i] + block.bias[i % static_cast<size_t>(block.out)]);
  }
  for (const Residual& residual : block.residuals) {
    std::vector<float> inner = y;
    snake(inner, residual.first_alpha, block.out);
    inner = run(residual.taps, inner, residual.dilation);
    snake(inner, residual.second_alpha, block.out);
    inner = run(residual.mix, inner);
    for (size_t i = 0; i < y.size(); ++i) y[i] += inner[i];
  }
  return y;
}

Result<std::vector<float>> Snac::decode(std::span<const std::vector<int>> codes) {
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
  const auto latent = static_cast<size_t>(config_.latent_size);
  std::vector<float> x(static_cast<size_t>(frames) * latent);
  for (size_t b = 0; b < books_.size(); ++b) {
    const int stride = config_.strides[b];
    if (static_cast<int64_t>(codes[b].size()) * stride != frames) {
      return refuse(fmt::format("book {} has {} codes, where {} are as long as book 0's", b,
                                codes[b].size(), frames / stride));
    }
    std::vector<float> picked;
    for (const int code : codes[b]) {
      if (code < 0 || code >= config_.book_size) {
        return refuse(fmt::format("book {} has the code {}; codes go from 0 to {}", b, code,
                                  config_.book_size - 1));
      }
      const float* const row = books_[b].codes + int64_t{code} * config_.code_size;
      picked.insert(picked.end(), row, row + config_.code_size);
    }
    const std::vector<float> made = run(books_[b].out, picked);
    for (size_t t = 0; t < static_cast<size_t>(frames); ++t) {
      const float* const from = made.data() + t / static_cast<size_t>(stride) * latent;
      for (size_t i = 0; i < latent; ++i) x[t * latent + i] += from[i];
    }
  }
  x = run(first_, x, 1);
  if (config_.depthwise) x = run(second_, x);
  for (const Block& block : blocks_) x = run(block, std::move(x));
  snake(x, last_alpha_, last_.in);
  x = run(last_, x, 1);
  for (float& sample : x) sample = static_cast<float>(std::tanh(double{sample}));
  return x;
}

}  // namespace pelton::models
