#include "hub/pull.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/blob_download.h"
#include "hub/hub_names.h"
#include "hub/model_folder.h"
#include "hub/unfinished_blob.h"

namespace pelton::hub {
namespace {

// Not a guess at what will be needed, but room for links, records and other programs.
constexpr int64_t kSpareBytes = int64_t{64} << 20;

constexpr const char* kUsualFiles[] = {
    "*.safetensors", "*.json",   "*.jinja",       "*.tiktoken", "*.model",
    "*.txt",         "LICENSE*", "USAGE_POLICY*", "README.md",  "sparse_linear.pt"};
// The one folder that a model is not whole without: what sentence-transformers says of pooling.
constexpr const char* kPoolingFile = "[0-9]_Pooling/config.json";

constexpr std::string_view kPublishedWeights = "pytorch_model.bin";

bool matches(const std::string& path, const std::string& glob) {
  return ::fnmatch(glob.c_str(), path.c_str(), 0) == 0;
}

bool matches_any(const std::string& path, const std::vector<std::string>& globs) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return matches(path, glob); });
}

// One file on its way.
struct WantedFile {
  HubFile file;
  std::string blob;  // its name in blobs/
  int64_t size = 0;
  bool there = false;      // the blob is complete already
  int64_t bytes_kept = 0;  // of it that need not come
};

// One call of pull(). The order of its steps is in run().
class Pull {
 public:
  Pull(const PullOptions& options, const base::Clock& clock, PullObserver observer)
      : options_(options),
        clock_(clock),
        observer_(observer),
        folder_(options.cache, options.model),
        transfers_(options.transfers),
        api_(options.access, options.retry, transfers_, clock) {}

  Result<PullReport> run();

 private:
  Result<void> choose_files(const Revision& revision);
  void want_published_weights(const Revision& revision);
  Result<void> identify(WantedFile& wanted);
  Result<void> check_space() const;
  Result<void> fetch(WantedFile& wanted);
  Result<void> fetch_bytes(const WantedFile& wanted, UnfinishedBlob& blob);
  Result<bool> check_hash(const WantedFile& wanted, UnfinishedBlob& blob);
  bool report(PullProgress::Phase phase, const std::string& file, int64_t bytes_done);
  bool asked_to_go_on() {
    return report(PullProgress::Phase::kAsking, options_.model, bytes_done_);
  }

  const PullOptions& options_;
  const base::Clock& clock_;
  PullObserver observer_;
  const ModelFolder folder_;
  Transfers transfers_;
  HubApi api_;
  std::vector<WantedFile> wanted_;
  PullReport report_;
  int64_t bytes_to_fetch_ = 0;
  int64_t bytes_done_ = 0;  // of them, in files that are complete
};

Result<PullReport> Pull::run() {
  TRY_ASSIGN(const Revision revision,
             api_.revision(options_.model, options_.revision, [&] { return asked_to_go_on(); }));
  report_.commit = revision.commit;
  report_.folder = folder_.snapshot(revision.commit);
  TRY(choose_files(revision));
  TRY_ASSIGN(const FolderLock lock, FolderLock::take(folder_));
  TRY(folder_.create(revision.commit));
  // Beyond this point nobody else writes here.

  for (WantedFile& wanted : wanted_) TRY(identify(wanted));
  TRY(check_space());
  for (WantedFile& wanted : wanted_) {
    if (!wanted.there) TRY(fetch(wanted));
    TRY(folder_.link(revision.commit, wanted.file.path, wanted.blob));
  }
  // Beyond this point the snapshot is whole; only now does a name lead to it.
  if (!is_commit(options_.revision)) TRY(folder_.write_ref(options_.revision, revision.commit));
  return report_;
}

// SNAC has no others: where there are no safetensors, PyTorch's file is among the usual ones.
void Pull::want_published_weights(const Revision& revision) {
  if (!options_.include.empty()) return;
  const bool has_weights = std::ranges::any_of(
      wanted_, [](const WantedFile& wanted) { return wanted.file.path.ends_with(".safetensors"); });
  if (has_weights) return;
  for (const HubFile& file : revision.files) {
    if (file.path != kPublishedWeights || matches_any(file.path, options_.exclude)) continue;
    wanted_.push_back({.file = file});
  }
}

Result<void> Pull::choose_files(const Revision& revision) {
  for (const HubFile& file : revision.files) {
    if (wants_file(file.path, options_.include, options_.exclude)) {
      wanted_.push_back({.file = file});
    }
  }
  want_published_weights(revision);
  if (wanted_.empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("none of the {} files of {} is wanted: see --include and --exclude",
                             revision.files.size(), options_.model),
                 "--include"};
  }
  // Small files first: what is wrong with a model shows before its weights have come.
  std::stable_sort(wanted_.begin(), wanted_.end(), [](const WantedFile& a, const WantedFile& b) {
    return a.file.size.value_or(0) < b.file.size.value_or(0);
  });
  return {};
}

// Name and size of the blob: from the list of files if it has them, else the hub is asked.
Result<void> Pull::identify(WantedFile& wanted) {
  const HubFile& file = wanted.file;
  wanted.blob = file.sha256.empty() ? file.git_id : file.sha256;
  if (wanted.blob.empty() || !file.size) {
    TRY_ASSIGN(const FileLocation location, api_.locate(options_.model, report_.commit, file.path,
                                                        [&] { return asked_to_go_on(); }));
    if (wanted.blob.empty()) wanted.blob = location.etag;
    wanted.size = location.size;
  } else {
    wanted.size = *file.size;
  }
  report_.bytes_total += wanted.size;
  wanted.there = file_size(folder_.blob(wanted.blob)) == wanted.size;
  wanted.bytes_kept =
      wanted.there
          ? wanted.size
          : UnfinishedBlob::bytes_there(folder_, wanted.blob,
                                        {.size = wanted.size, .block_bytes = options_.block_bytes});
  if (wanted.there) ++report_.files_kept;
  bytes_to_fetch_ += wanted.size - wanted.bytes_kept;
  return {};
}

Result<void> Pull::check_space() const {
  const int64_t needed = bytes_to_fetch_;
  struct statvfs disk {};
  if (needed == 0 || ::statvfs(folder_.path().c_str(), &disk) != 0) return {};
  const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (needed + kSpareBytes <= free) return {};
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} needs {:.1f} GB more on the disk of {}, which has {:.1f} GB free",
                           options_.model, static_cast<double>(needed) / 1e9, options_.cache,
                           static_cast<double>(free) / 1e9)};
}

Result<void> Pull::fetch(WantedFile& wanted) {
  if (wanted.size == 0) {
    TRY(base::write_file(folder_.blob(wanted.blob), ""));
    ++report_.files_fetched;
    return {};
  }
  TRY_ASSIGN(UnfinishedBlob blob,
             UnfinishedBlob::open(folder_, wanted.blob,
                                  {.size = wanted.size, .block_bytes = options_.block_bytes}));
  // Bytes of an earlier pull may have been lost with the machine's power; so if the hash is wrong
  // and some were kept, all of them come again, once.
  bool good = false;
  for (bool again = true; !good && again;) {
    again = blob.resumed();
    const int64_t kept = blob.bytes_done();
    TRY(fetch_bytes(wanted, blob));
    report_.bytes_fetched += wanted.size - kept;
    bytes_done_ += wanted.size - kept;
    TRY_ASSIGN(good, check_hash(wanted, blob));
    if (!good) {
      TRY(blob.start_over());
      bytes_to_fetch_ += wanted.size;
    }
  }
  if (!good) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: the bytes that came do not have the hash {} that the hub gives; "
                             "they are thrown away",
                             wanted.file.path, wanted.blob)};
  }
  TRY(blob.finish());
  ++report_.files_fetched;
  return {};
}

Result<void> Pull::fetch_bytes(const WantedFile& wanted, UnfinishedBlob& blob) {
  BlobDownload download({.connections = options_.transfers.connections,
                         .piece_bytes = options_.piece_bytes,
                         .retry = options_.retry},
                        wanted.file.path, options_.access.token, transfers_, clock_);
  const auto locate = [&] {
    return api_.locate(options_.model, report_.commit, wanted.file.path,
                       [&] { return asked_to_go_on(); });
  };
  const int64_t kept = blob.bytes_done();
  const auto refusal = [&](const ResponseHead& head) { return api_.refusal(options_.model, head); };
  return download.run(blob, wanted.size, locate, refusal, [&](int64_t bytes) {
    return report(PullProgress::Phase::kFetching, wanted.file.path, bytes_done_ + bytes - kept);
  });
}

// False: the bytes are not what the hub promised.
Result<bool> Pull::check_hash(const WantedFile& wanted, UnfinishedBlob& blob) {
  const auto keep_going = [&] {
    return report(PullProgress::Phase::kChecking, wanted.file.path, bytes_done_);
  };
  if (is_sha256(wanted.blob)) {
    TRY_ASSIGN(const std::string digest, blob.digest(UnfinishedBlob::Hash::kSha256, keep_going));
    return digest == wanted.blob;
  }
  if (!wanted.file.git_id.empty() && wanted.blob == wanted.file.git_id) {
    TRY_ASSIGN(const std::string digest, blob.digest(UnfinishedBlob::Hash::kGitBlob, keep_going));
    return digest == wanted.blob;
  }
  report_.unchecked.push_back(wanted.file.path);
  return true;
}

bool Pull::report(PullProgress::Phase phase, const std::string& file, int64_t bytes_done) {
  return observer_(
      {.phase = phase, .file = file, .bytes_done = bytes_done, .bytes_total = report_.bytes_total});
}

}  // namespace

bool wants_file(const std::string& path, const std::vector<std::string>& include,
                const std::vector<std::string>& exclude) {
  if (matches_any(path, exclude)) return false;
  if (!include.empty()) return matches_any(path, include);
  if (matches(path, kPoolingFile)) return true;
  return path.find('/') == std::string::npos &&
         std::any_of(std::begin(kUsualFiles), std::end(kUsualFiles),
                     [&](const char* glob) { return matches(path, glob); });
}

Result<PullReport> pull(const PullOptions& options, const base::Clock& clock,
                        PullObserver observer) {
  TRY(check_model_id(options.model));
  TRY(check_revision(options.revision));
  if (options.cache.empty()) {
    return Error{ErrorCode::kNotFound,
                 "no Hugging Face cache to write to: none of HF_HUB_CACHE, HF_HOME, "
                 "XDG_CACHE_HOME, HOME is set"};
  }
  if (options.access.offline) {
    return Error{ErrorCode::kUnavailable,
                 "HF_HUB_OFFLINE is set, so nothing is fetched; unset it to pull"};
  }
  return Pull(options, clock, observer).run();
}

}  // namespace pelton::hub
