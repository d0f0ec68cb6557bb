#include "weights/download.h"

#include <fmt/format.h>

#include "hub/hub_names.h"

namespace pelton::weights {

std::string Download::path() const {
  if (by_digest_) return "chunks/" + folder_.digest_of(chunk_);
  const Chunk& chunk = folder_.chunks()[static_cast<size_t>(chunk_)];
  return folder_.manifest().files[static_cast<size_t>(chunk.file)].path;
}

std::optional<hub::ByteRange> Download::range() const {
  const Chunk& chunk = folder_.chunks()[static_cast<size_t>(chunk_)];
  const auto done = static_cast<int64_t>(bytes_.size());
  if (by_digest_) {
    if (done == 0) return std::nullopt;
    return hub::ByteRange{.begin = done, .end = chunk.bytes};
  }
  const int64_t file = folder_.manifest().files[static_cast<size_t>(chunk.file)].bytes;
  if (done == 0 && chunk.bytes == file) return std::nullopt;
  return hub::ByteRange{.begin = chunk.offset + done, .end = chunk.offset + chunk.bytes};
}

void Download::begin_try() {
  begun_with_ = bytes_.size();
  head_ = {};
  fault_.clear();
}

bool Download::on_head(const hub::ResponseHead& head) {
  head_ = head;
  const std::optional<hub::ByteRange> asked = range();
  if (head.status == 200 && asked) {
    fault_ = "answers 200 with the whole file where a range of it was asked for";
  } else if (head.status == 206 && asked) {
    const std::string begin = fmt::format("bytes {}-{}/", asked->begin, asked->end - 1);
    if (!head.get("content-range").starts_with(begin)) {
      fault_ = fmt::format("answers another range than was asked for: {}, not {}",
                           hub::shown(head.get("content-range")), begin);
    }
  } else if (head.status == 206) {
    fault_ = "answers a range where none was asked for";
  }
  return fault_.empty() && (head.status == 200 || head.status == 206);
}

bool Download::on_body(std::string_view bytes) {
  if (static_cast<int64_t>(bytes_.size() + bytes.size()) > wanted()) {
    fault_ = fmt::format("sends more than the {} bytes that were asked for", wanted());
    return false;
  }
  if (bytes_.empty()) bytes_.reserve(static_cast<size_t>(wanted()));
  bytes_ += bytes;
  received_ += static_cast<int64_t>(bytes.size());
  return true;
}

}  // namespace pelton::weights
