// The decoder of SNAC (Siuzdak 2024, arXiv 2410.14411): codes of several books, each at a rate of
// its own, to sound. Noise is left out, so that the same codes make the same samples. Weights are
// weight-normed, and kept as float32. One thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_file.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::models {

struct SnacConfig {
  int sample_rate = 24'000;
  int latent_size = 0;
  int decoder_size = 0;
  std::vector<int> rates;    // by which the decoder's blocks make the time finer
  std::vector<int> strides;  // latent frames for each code, by book
  int book_size = 0;         // codes in a book
  int code_size = 8;         // numbers of a code
  bool depthwise = true;

  int samples_per_frame() const;  // of a latent frame
};
// Errors: kBadCheckpoint, kUnsupported, naming the key.
Result<SnacConfig> parse_snac_config(const Json& json, const std::string& file);

class Snac {
 public:
  // Of a folder with config.json and model.safetensors. `kernels` outlives it.
  static Result<std::unique_ptr<Snac>> load(const std::string& folder, kernels::Kernels& kernels);

  const SnacConfig& config() const { return config_; }

  // codes[b]: those of book b. All books last equally long: codes[b].size() * strides[b] is the
  // same. Errors: kInvalidArgument, naming book and code.
  Result<std::vector<float>> decode(std::span<const std::vector<int>> codes);

 private:
  // A convolution over time of one tap, as a product; of several taps by its channel.
  struct Pointwise {
    kernels::Linear linear;
  };
  struct Taps {
    const float* weight = nullptr;  // (channels, taps) depthwise, or (out, channels, taps)
    const float* bias = nullptr;
    int in = 0;
    int out = 0;
    int taps = 7;
    bool depthwise = true;
  };
  struct Residual {
    const float* first_alpha = nullptr;
    Taps taps;
    const float* second_alpha = nullptr;
    Pointwise mix;
    int dilation = 1;
  };
  struct Block {
    const float* alpha = nullptr;
    kernels::Linear up;  // (out * 2 rate, in): what each frame adds to 2 rate finer ones
    const float* bias = nullptr;
    int in = 0;
    int out = 0;
    int rate = 0;
    std::vector<Residual> residuals;
  };
  struct Book {
    const float* codes = nullptr;  // (book_size, code_size)
    Pointwise out;                 // (latent, code_size)
  };

  Snac(SnacConfig config, checkpoint::TensorFile file, kernels::Kernels& kernels);
  Result<void> load_all();
  Result<void> load_books();
  Result<Block> load_block(int index, int in, int out, int rate);
  Result<Residual> load_residual(const std::string& name, int channels, int dilation);
  // `name`'s weight g v / |v|, over all dimensions but the first.
  Result<const float*> normed(const std::string& name, std::vector<int64_t> shape);
  Result<const float*> vector(const std::string& name, std::vector<int64_t> shape);
  Result<Pointwise> pointwise(const std::string& name, int out, int in);
  Result<Taps> taps(const std::string& name, int out, int in, bool depthwise);

  // x: float (frames, channels)
  std::vector<float> run(const Pointwise& part, const std::vector<float>& x) const;
  static std::vector<float> run(const Taps& part, const std::vector<float>& x, int dilation);
  static void snake(std::vector<float>& x, const float* alpha, int channels);
  std::vector<float> run(const Block& block, std::vector<float> x) const;

  const SnacConfig config_;
  checkpoint::TensorFile file_;
  kernels::Kernels& kernels_;
  layers::FloatVectors vectors_;
  std::vector<Book> books_;
  Taps first_;
  Pointwise second_;
  std::vector<Block> blocks_;
  const float* last_alpha_ = nullptr;
  Taps last_;
};

}  // namespace pelton::models
