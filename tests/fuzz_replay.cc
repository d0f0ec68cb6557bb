// Without libFuzzer (presets release, debug, asan with g++): runs a fuzz target on its corpus, and
// on mutations of it and random bytes from a printed seed, so that plain ./test exercises every
// target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> read_corpus(const std::string& folder) {
  std::vector<Bytes> corpus;
  if (!std::filesystem::is_directory(folder)) return corpus;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

Bytes mutated(Bytes bytes, std::mt19937_64& random) {
  if (bytes.empty()) bytes.resize(1 + random() % 64);
  for (uint64_t edits = 1 + random() % 8; edits > 0; --edits) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<uint8_t>(random());
        break;
      case 1:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<uint8_t>(random()));
        break;
      case 2:
        if (bytes.size() > 1) bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        bytes.resize(at + 1);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Bytes> corpus;
  if (argc > 1) corpus = read_corpus(argv[1]);
  for (const Bytes& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());

  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("%zu corpus files; PELTON_SEED=%llu\n", corpus.size(),
              static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3000; ++i) {
    const Bytes start = corpus.empty() ? Bytes{} : corpus[random() % corpus.size()];
    const Bytes input = mutated(start, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
