// The files of a model folder, each cut into chunks that are checked, and later fetched, one by
// one. Written and read as JSON; what is read may come from anybody. A value; any thread.
//
//   {"pelton_manifest":1,"chunk_bytes":16777216,
//    "files":[{"path":"config.json","bytes":512,"chunks":["<64 hex digits>"]}]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace pelton::weights {

inline constexpr int64_t kChunkBytes = int64_t{16} << 20;  // unless somebody asks for others
// A power of two within these.
inline constexpr int64_t kChunkBytesMin = int64_t{64} << 10;
inline constexpr int64_t kChunkBytesMax = int64_t{64} << 20;
inline constexpr size_t kFilesMax = 10'000;
inline constexpr int64_t kChunksMax = 512 * 1024;  // of 16 MiB: 8 TiB of weights
inline constexpr size_t kManifestBytesMax = size_t{64} << 20;
// What a manifest's own file is called, in a folder and in a bucket; no manifest lists it.
inline constexpr const char* kManifestName = "pelton-manifest.json";
inline constexpr const char* kCopyNote = ".pelton-copy.json";  // in a copy: what it is of

struct ManifestFile {
  std::string path;  // relative, with slashes
  int64_t bytes = 0;
  std::vector<std::string> chunks;  // SHA-256 in lower-case hex; all but the last of chunk_bytes
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  int64_t chunk_bytes = kChunkBytes;
  std::vector<ManifestFile> files;  // by path
  friend bool operator==(const Manifest&, const Manifest&) = default;

  int64_t bytes() const;
  std::string to_json() const;
  std::string digest() const;  // SHA-256 of to_json(): the whole model's name
};

// One chunk of a manifest; chunks are numbered through, file by file.
struct Chunk {
  int file = 0;  // index into Manifest::files
  int64_t offset = 0;
  int64_t bytes = 0;
};
std::vector<Chunk> chunks_of(const Manifest& manifest);
const std::string& digest_of(const Manifest& manifest, const Chunk& chunk);

// A chunk of zeros, as sparse files have them: nobody needs to read or fetch it. Any thread.
std::string zeros_digest(int64_t bytes);

// SHA-256 of bytes of a file; what lies in a hole is not read. Errors: kIo, also where the file is
// shorter.
Result<std::string> digest_of_range(int descriptor, int64_t offset, int64_t bytes,
                                    const std::string& name);

struct MakeOptions {
  int64_t chunk_bytes = kChunkBytes;
  int threads = 1;
};
// Of bytes so far, in all; false: kCancelled.
using MakeProgress = base::FunctionRef<bool(int64_t done, int64_t total)>;

// The folder's files with their sizes, by their paths there, without what make_manifest() leaves
// out. Errors: as it has them.
Result<std::vector<ManifestFile>> files_below(const std::string& folder);
// Reads every byte of the folder's files, but of those whose names, or whose folders' names, begin
// with a dot, and of kManifestName. Links to files are followed, as a hub's cache has them. Errors:
// kBadCheckpoint for a pipe, a link to a folder, a name that no manifest may hold, or too much;
// kIo, kNotFound.
Result<Manifest> make_manifest(const std::string& folder, const MakeOptions& options,
                               MakeProgress progress);

// Errors: kBadCheckpoint; `field` names what is wrong, as "files[2].chunks[0]".
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace pelton::weights
