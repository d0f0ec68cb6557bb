// A model's files on this machine, chunk by chunk: some may still be missing. What is there has
// been checked. Shared by whoever fetches it and whoever serves it; any thread, but a chunk is
// written by one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "weights/manifest.h"

namespace pelton::weights {

class ChunkFolder {
 public:
  enum class State : uint8_t { kMissing, kComing, kThere };

  // A folder that was just hashed, or is a whole copy: all of it is there. Errors: kNotFound, kIo.
  static Result<std::shared_ptr<ChunkFolder>> open(const std::string& folder, Manifest manifest);
  // A folder that is being filled: its files are made, in full size and without bytes. What an
  // earlier process left in them is hashed and kept where it is right. Errors: kIo, kCancelled.
  static Result<std::shared_ptr<ChunkFolder>> begin(const std::string& folder, Manifest manifest,
                                                    int threads, MakeProgress progress);
  ~ChunkFolder();
  ChunkFolder(const ChunkFolder&) = delete;
  ChunkFolder& operator=(const ChunkFolder&) = delete;

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_json() const { return manifest_json_; }
  const std::string& digest() const { return digest_; }  // of the manifest
  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::string& digest_of(int chunk) const {
    return weights::digest_of(manifest_, chunks_[static_cast<size_t>(chunk)]);
  }
  // "model.safetensors from byte 16777216", for messages.
  std::string text_of(int chunk) const;
  // One of that digest that is there, else the first; -1: none. Two chunks may be equal.
  int find(const std::string& digest) const;

  State state(int chunk) const { return states_[static_cast<size_t>(chunk)]; }
  void set_state(int chunk, State state) { states_[static_cast<size_t>(chunk)] = state; }
  bool whole() const;
  // Bytes that have come for it, of chunks on their way too: what others see that it gets on by.
  int64_t received() const { return received_; }
  void set_received(int64_t bytes) { received_ = bytes; }

  // Of a chunk that is there; as many bytes as fit and are left. Also once the folder has another
  // name. Errors: kIo.
  Result<size_t> read(int chunk, int64_t offset, std::span<char> into) const;
  // All of a chunk, which becomes kThere. Errors: kIo, kDoesNotFit.
  Result<void> write(int chunk, std::string_view bytes);
  // Everything, and every name, is on the disk when this returns. Errors: kIo.
  Result<void> sync() const;

 private:
  ChunkFolder(std::string folder, Manifest manifest);
  Result<void> open_folder();
  Result<void> make_files();
  Result<void> check_files(int threads, MakeProgress progress);
  Result<void> check_file_chunk(size_t chunk);
  Result<int> open_file(const Chunk& chunk, int flags) const;
  Error io_error(const Chunk& chunk, const char* what) const;

  const std::string folder_;
  const Manifest manifest_;
  const std::string manifest_json_;
  const std::string digest_;
  const std::vector<Chunk> chunks_;
  std::unordered_multimap<std::string_view, int> index_;  // by digest
  std::vector<std::atomic<State>> states_;
  std::atomic<int64_t> received_{0};
  int descriptor_ = -1;  // of the folder, whatever it is called by now
};

}  // namespace pelton::weights
