#include "weights/mirror.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "cli/human_size.h"
#include "weights/copies.h"
#include "weights/place_answers.h"

namespace pelton::weights {
namespace {

constexpr int64_t kSpareBytes = int64_t{64} << 20;  // of the disk, for its other users
constexpr int kThreadsMax = 8;

using Phase = MirrorProgress::Phase;

int check_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kThreadsMax);
}

Result<void> check_space(const ChunkFolder& folder, const std::string& path) {
  int64_t needed = 0;
  for (size_t i = 0; i < folder.chunks().size(); ++i) {
    const bool there = folder.state(static_cast<int>(i)) == ChunkFolder::State::kThere;
    needed += there ? 0 : folder.chunks()[i].bytes;
  }
  struct statvfs disk {};
  if (needed == 0 || ::statvfs(path.c_str(), &disk) != 0) return {};
  const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (needed + kSpareBytes <= free) return {};
  const auto human = [](int64_t bytes) { return cli::format_bytes(static_cast<double>(bytes)); };
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} needs {} more on its disk, and {} that stay free: {} are free there",
                           path, human(needed), human(kSpareBytes), human(free)),
               "DEST"};
}

}  // namespace

Result<MirrorReport> mirror(MirrorOptions options, const base::Clock& clock,
                            MirrorObserver observer) {
  const int64_t begin_ns = clock.now_ns();
  const auto seconds_since = [&clock](int64_t ns) {
    return static_cast<double>(clock.now_ns() - ns) * 1e-9;
  };
  TRY_ASSIGN(Manifest manifest,
             fetch_manifest(options.fetch.origin, options.fetch.access, options.fetch.retry, clock,
                            [&] { return observer({.phase = Phase::kManifest}); }));
  MirrorReport report{.folder = options.folder, .bytes = manifest.bytes()};
  if (options.below_digest) report.folder += "-" + manifest.digest().substr(0, 12);
  report.manifest_seconds = seconds_since(begin_ns);
  const int64_t fetch_ns = clock.now_ns();
  TRY_ASSIGN(const CopyLock lock,
             CopyLock::take(report.folder, [&] { return observer({.phase = Phase::kWaiting}); }));
  TRY_ASSIGN(report.was_there, find_copy(report.folder, manifest));
  if (report.was_there) {
    if (options.share != nullptr) {
      TRY_ASSIGN(std::shared_ptr<ChunkFolder> whole, ChunkFolder::open(report.folder, manifest));
      options.share->add(options.name, std::move(whole));
    }
    report.fetch_seconds = seconds_since(fetch_ns);
    return report;
  }
  const std::string digest = manifest.digest();
  const std::string partial = partial_folder(report.folder, digest);
  remove_other_partials(report.folder, digest);
  TRY(begin_partial(report.folder, digest, options.fetch.origin.text));
  TRY_ASSIGN(const std::shared_ptr<ChunkFolder> folder,
             ChunkFolder::begin(partial, std::move(manifest), check_threads(),
                                [&](int64_t done, int64_t total) {
                                  return observer({Phase::kChecking, done, total});
                                }));
  TRY(check_space(*folder, partial));
  if (options.share != nullptr) options.share->add(options.name, folder);
  Fetch fetch(*folder, options.fetch, clock);
  TRY(fetch.run([&](int64_t done, int64_t total) {
    return observer({Phase::kFetching, done, total});
  }));
  if (options.durable) TRY(folder->sync());
  TRY(finish_copy(report.folder, *folder));
  report.fetch_seconds = seconds_since(fetch_ns);
  report.fetch = fetch.report();
  if (options.share != nullptr && options.linger.count() > 0) {
    fetch.linger(options.linger, [&] { return observer({.phase = Phase::kSharing}); });
  }
  return report;
}

}  // namespace pelton::weights
