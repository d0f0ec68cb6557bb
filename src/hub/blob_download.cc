#include "hub/blob_download.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "hub/hub_names.h"

namespace pelton::hub {
namespace {

constexpr std::chrono::milliseconds kWait{100};
constexpr int kRelocationsMax = 5;  // without a byte in between

// "bytes 5-9/100" -> 5, 9, 100.
struct ContentRange {
  int64_t first = -1;
  int64_t last = -1;
  int64_t total = -1;
};

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  ContentRange range;
  const auto number = [&](int64_t& value, char then) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (then == '\0') return text.empty();
    if (!text.starts_with(then)) return false;
    text.remove_prefix(1);
    return true;
  };
  if (!number(range.first, '-') || !number(range.last, '/') || !number(range.total, '\0')) {
    return std::nullopt;
  }
  return range;
}

}  // namespace

// A stretch of the file, one request at a time until it is all there.
struct BlobDownload::Piece : TransferSink {
  enum class Complaint { kNone, kStatus, kNoRanges, kWrongSize, kDisk };

  Piece(UnfinishedBlob::Gap gap, const RetryOptions& retry_options, int64_t file_size,
        UnfinishedBlob& target)
      : begin(gap.begin), end(gap.end), size(file_size), blob(target), retry(retry_options) {}

  bool on_head(const ResponseHead& answer) override;
  bool on_body(std::string_view bytes) override;
  bool object(Complaint what, std::string why) {
    complaint = what;
    message = std::move(why);
    return false;
  }
  void restart_at_gap() {
    const auto gap = blob.gap(begin, end - begin);
    begin = position = gap && gap->begin < end ? gap->begin : end;
  }
  bool done() const { return begin >= end; }

  int64_t begin;
  const int64_t end;
  const int64_t size;
  UnfinishedBlob& blob;
  Retry retry;
  bool ranged = true;
  int transfer = 0;  // 0: waits for its turn
  int64_t position = 0;
  ResponseHead head;
  Complaint complaint = Complaint::kNone;
  std::string message;
  std::optional<Error> disk_error;
};

bool BlobDownload::Piece::on_head(const ResponseHead& answer) {
  head = answer;
  if (ranged && head.status == 200) return object(Complaint::kNoRanges, "");
  if (head.status != (ranged ? 206 : 200)) return object(Complaint::kStatus, "");
  if (!ranged) {
    const std::string_view length = head.get("content-length");
    if (length.empty() || length == std::to_string(size)) return true;
    return object(Complaint::kWrongSize,
                  fmt::format("the server has {} bytes of it", shown(length)));
  }
  const std::string_view text = head.get("content-range");
  const std::optional<ContentRange> range = parse_content_range(text);
  if (range && range->first == position && range->last < end && range->total == size) return true;
  return object(Complaint::kWrongSize, fmt::format("asked for bytes {}-{}, it answers with {}",
                                                   position, end - 1, shown(text)));
}

bool BlobDownload::Piece::on_body(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > end - position) {
    return object(Complaint::kWrongSize, fmt::format("more than {} bytes came", end - begin));
  }
  Result<int64_t> done = blob.write(position, bytes);
  if (!done.ok()) {
    disk_error = std::move(done).error();
    return object(Complaint::kDisk, "");
  }
  position += static_cast<int64_t>(bytes.size());
  // Without ranges each try begins at the first byte, so that blocks are no progress.
  if (*done > 0 && ranged) retry.progress();
  return true;
}

BlobDownload::BlobDownload(const Options& options, const std::string& name,
                           const std::string& token, Transfers& transfers, const base::Clock& clock)
    : options_(options), name_(name), token_(token), transfers_(transfers), clock_(clock) {}

BlobDownload::~BlobDownload() = default;

Result<void> BlobDownload::run(UnfinishedBlob& blob, int64_t size, Locate locate, Refusal refusal,
                               Progress progress) {
  size_ = size;
  const auto cancel_all = [&] {
    for (Piece& piece : pieces_) transfers_.cancel(piece.transfer);
    pieces_.clear();
  };
  Result<void> result = ask_anew_where(locate);
  while (result.ok() && !blob.complete()) {
    result = step(blob, locate, refusal);
    if (result.ok() && !progress(blob.bytes_done())) {
      result = Error{ErrorCode::kCancelled, "interrupted"};
    }
  }
  cancel_all();
  return result;
}

Result<void> BlobDownload::step(UnfinishedBlob& blob, Locate locate, Refusal refusal) {
  while (static_cast<int>(pieces_.size()) < (ranges_ ? options_.connections : 1)) {
    const auto gap = blob.gap(planned_to_, ranges_ ? options_.piece_bytes : size_);
    if (!gap) break;
    planned_to_ = gap->end;
    pieces_.emplace_back(*gap, options_.retry, size_, blob);
  }
  start_pieces();
  for (const TransferEnd& end : transfers_.wait(kWait)) {
    const auto piece = std::find_if(pieces_.begin(), pieces_.end(),
                                    [&](const Piece& one) { return one.transfer == end.id; });
    if (piece == pieces_.end()) continue;
    piece->transfer = 0;
    TRY(piece_ended(*piece, end, blob, locate, refusal));
  }
  pieces_.remove_if([](const Piece& piece) { return piece.transfer == 0 && piece.done(); });
  return {};
}

void BlobDownload::start_pieces() {
  for (Piece& piece : pieces_) {
    if (piece.transfer != 0 || piece.done() || clock_.now_ns() < piece.retry.not_before_ns()) {
      continue;
    }
    piece.position = piece.begin;
    piece.complaint = Piece::Complaint::kNone;
    piece.head = {};
    piece.ranged = ranges_;
    TransferRequest request{.url = location_.url};
    if (location_.with_token) request.token = token_;
    if (ranges_) request.range = ByteRange{piece.begin, piece.end};
    piece.transfer = transfers_.start(request, piece);
  }
}

Result<void> BlobDownload::piece_ended(Piece& piece, const TransferEnd& end, UnfinishedBlob& blob,
                                       Locate locate, Refusal refusal) {
  const bool arrived = piece.position > piece.begin;
  if (arrived) relocations_ = 0;
  if (ranges_) {
    piece.restart_at_gap();
  } else if (!blob.complete()) {
    // Without ranges the next try starts at the first byte again.
    TRY(blob.start_over());
    piece.begin = 0;
  }
  switch (piece.complaint) {
    case Piece::Complaint::kDisk:
      return std::move(*piece.disk_error);
    case Piece::Complaint::kNoRanges:
      return go_without_ranges(blob);
    case Piece::Complaint::kWrongSize:
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: should have {} bytes, but {}", name_, size_, piece.message)};
    case Piece::Complaint::kStatus:
      return piece_refused(piece, blob, locate, refusal);
    case Piece::Complaint::kNone:
      break;
  }
  if (blob.complete() || piece.done()) return {};
  return try_again(piece,
                   end.how == TransferEnd::How::kFailed ? end.message : "the answer ended early");
}

Result<void> BlobDownload::piece_refused(Piece& piece, UnfinishedBlob& blob, Locate locate,
                                         Refusal refusal) {
  const int status = piece.head.status;
  if (worth_a_retry(status)) return try_again(piece, fmt::format("status {}", status));
  // A signed address has an end; the hub gives a new one.
  const bool expired = status == 401 || status == 403 || status == 404 || status == 410;
  if (!location_.with_token && expired && ++relocations_ <= kRelocationsMax) {
    return ask_anew_where(locate);
  }
  if (status == 416) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: should have {} bytes, but the server has fewer", name_, size_)};
  }
  return refusal(piece.head);
}

Result<void> BlobDownload::try_again(Piece& piece, const std::string& why) {
  if (piece.retry.again(piece.head, fmt::format("{}: {}", name_, why), clock_.now_ns())) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("{}: {} tries at byte {} came to nothing: {}; what is there is kept, "
                           "run the same command again to continue",
                           name_, options_.retry.tries_max, piece.begin, why)};
}

Result<void> BlobDownload::go_without_ranges(UnfinishedBlob& blob) {
  for (Piece& piece : pieces_) transfers_.cancel(piece.transfer);
  pieces_.clear();
  ranges_ = false;
  planned_to_ = 0;
  return blob.start_over();
}

Result<void> BlobDownload::ask_anew_where(Locate locate) {
  // The question is alone on the line: what runs now would end unseen.
  for (Piece& piece : pieces_) {
    if (piece.transfer == 0) continue;
    transfers_.cancel(std::exchange(piece.transfer, 0));
    piece.restart_at_gap();
  }
  TRY_ASSIGN(location_, locate());
  if (location_.size == size_) return {};
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: should have {} bytes, but the hub now says {}", name_, size_,
                           location_.size)};
}

}  // namespace pelton::hub
