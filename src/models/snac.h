// The decoder of SNAC (Siuzdak 2024, arXiv 2410.14411): codes of several books, each at a rate of
// its own, to sound. Noise is left out, so that the same codes make the same samples. Weights are
// weight-normed, and kept as float32. Immutable once loaded: any thread may decode, with kernels of
// its own.
//
// A sample depends on few others: of each level only those frames are computed that the wanted
// samples need, and they are the same to the bit whatever else is wanted. Of a window of 8192
// samples from which 2048 are kept that is about two fifths of the work.
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

// Of a folder with config.json, and model.safetensors, or pytorch_model.bin as SNAC is published
// (checkpoint/torch_file.h). Errors: as above.
Result<SnacConfig> read_snac_config(const std::string& folder);
Result<checkpoint::TensorFile> open_snac_weights(const std::string& folder);

class Snac {
 public:
  // Of such a folder. `kernels` outlives it.
  static Result<std::unique_ptr<Snac>> load(const std::string& folder, kernels::Kernels& kernels);

  const SnacConfig& config() const { return config_; }

  // codes[b]: those of book b. All books last equally long: codes[b].size() * strides[b] is the
  // same. Errors: kInvalidArgument, naming book and code.
  Result<std::vector<float>> decode(std::span<const std::vector<int>> codes) const;

  // The same, of which only these samples are wanted; within those that the codes have.
  struct Samples {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Result<std::vector<float>> decode(std::span<const std::vector<int>> codes, Samples wanted,
                                    kernels::Kernels& kernels) const;

 private:
  // Frames [begin, end) of a level's time.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;

    int64_t size() const { return end - begin; }
    // And `by` more on either side, as far as there are any of `frames`.
    Range widened(int64_t by, int64_t frames) const;
  };
  // Some of a level's frames. x: float (range.size(), channels)
  struct Signal {
    Range range;
    std::vector<float> x;
  };
  // A convolution over time of one tap, as a product; of several taps by its channel.
  struct Pointwise {
    kernels::Linear linear;
  };
  struct Taps {
    const float* weight = nullptr;  // (taps, channels) depthwise, or (out, taps, channels)
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
  static std::vector<float> run(const Pointwise& part, const std::vector<float>& x,
                                kernels::Kernels& kernels);
  // Of a level of `frames`; those of `wanted`.
  static Signal run(const Taps& part, const Signal& x, int dilation, Range wanted, int64_t frames);
  static void snake(std::vector<float>& x, const float* alpha, int channels);
  // `frames`: of the coarser level, which `x` is some of; `wanted`: of the finer one.
  static Signal run(const Block& block, Signal x, Range wanted, int64_t frames,
                    kernels::Kernels& kernels);
  static Signal upsample(const Block& block, const Signal& x, Range wanted, int64_t frames,
                         kernels::Kernels& kernels);
  // What of the coarser level, and behind the upsampling of the finer one, `wanted` needs.
  struct Needs {
    Range coarse;
    Range fine;
  };
  static Needs needs_of(const Block& block, Range wanted, int64_t frames);
  Result<int64_t> check_codes(std::span<const std::vector<int>> codes) const;
  // The books' vectors, summed: (frames, latent), all of them.
  std::vector<float> latent_of(std::span<const std::vector<int>> codes, int64_t frames,
                               kernels::Kernels& kernels) const;

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
