#include "weights/share_server.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "net/json_response.h"
#include "net/url.h"
#include "telemetry/prometheus_text.h"
#include "weights/have.h"

namespace pelton::weights {
namespace {

constexpr int kReaders = 2;
constexpr int64_t kPeerForgottenNs = 15'000'000'000;
constexpr std::string_view kChunks = "chunks/";

net::HttpResponse error(int status, const std::string& code, const std::string& message) {
  return net::error_response({.status = status, .code = code, .message = message});
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// "bytes=5-", "bytes=5-9" of so many; nothing for what is no such range.
std::optional<Range> parse_range(std::string_view text, int64_t bytes) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const char* const end = text.data() + text.size();
  Range range{.begin = -1, .end = bytes};
  const auto first = std::from_chars(text.data(), end, range.begin);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  if (first.ptr + 1 != end) {
    int64_t last = -1;
    const auto second = std::from_chars(first.ptr + 1, end, last);
    if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
    range.end = std::min(bytes, last + 1);
  }
  if (range.begin < 0 || range.begin >= range.end) return std::nullopt;
  return range;
}

std::string_view bearer_of(const net::HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view text = request.headers.get("Authorization");
  return text.starts_with(kBearer) ? text.substr(kBearer.size()) : std::string_view();
}

}  // namespace

// Sends a chunk piece by piece: read on a reader's thread, written on the connection's, the next
// one when the last is out.
class ShareServer::ChunkAnswer : public std::enable_shared_from_this<ChunkAnswer> {
 public:
  ChunkAnswer(ShareServer& server, std::shared_ptr<const ChunkFolder> folder, int chunk,
              Range range, std::shared_ptr<net::Exchange> exchange)
      : server_(server),
        folder_(std::move(folder)),
        chunk_(chunk),
        at_(range.begin),
        end_(range.end),
        exchange_(std::move(exchange)),
        reader_(server.readers_[server.next_reader_++ % server.readers_.size()]->queue()) {
    ++server_.answers_;
  }
  ~ChunkAnswer() { --server_.answers_; }

  // On the connection's thread, as all but read().
  void start(int status, net::HttpHeaders headers) {
    exchange_->on_closed([self = shared_from_this()] { self->over_ = true; });
    exchange_->on_drained([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->ask();
    });
    exchange_->start_stream(status, std::move(headers));
    ask();
  }

 private:
  void ask() {
    if (over_ || std::exchange(reading_, true)) return;
    const int64_t bytes = std::min<int64_t>(end_ - at_, kPieceBytes);
    const std::chrono::milliseconds wait = server_.reserve(bytes);
    const auto read = [self = shared_from_this(), bytes] { self->read(bytes); };
    if (wait.count() > 0) {
      reader_->post_after(wait, read);
    } else {
      reader_->post(read);
    }
  }

  void read(int64_t bytes) {
    const auto piece = std::make_shared<std::string>(static_cast<size_t>(bytes), '\0');
    const Result<size_t> got = folder_->read(chunk_, at_, {piece->data(), piece->size()});
    const bool good = got.ok() && *got == piece->size();
    exchange_->post([self = shared_from_this(), piece, good] { self->write(*piece, good); });
  }

  void write(const std::string& piece, bool good) {
    reading_ = false;
    if (over_) return;
    if (!good) return end();  // cut: the receiver sees that it is not whole
    at_ += static_cast<int64_t>(piece.size());
    server_.bytes_sent_ += static_cast<int64_t>(piece.size());
    exchange_->write(piece);
    if (at_ == end_) {
      ++server_.chunks_sent_;
      exchange_->finish();
      return end();
    }
    if (exchange_->queued_bytes() == 0) ask();
  }

  void end() {
    over_ = true;
    exchange_.reset();
  }

  ShareServer& server_;
  const std::shared_ptr<const ChunkFolder> folder_;
  const int chunk_;
  int64_t at_;
  const int64_t end_;
  std::shared_ptr<net::Exchange> exchange_;
  const std::shared_ptr<net::WorkLoop::Queue> reader_;
  bool reading_ = false;
  bool over_ = false;
};

ShareServer::ShareServer(const Options& options, const base::Clock& clock, base::Log& log)
    : options_(options),
      clock_(clock),
      http_(
          {.address = options.address,
           .port = options.port,
           .connections_max = kConnectionsMax,
           .hosts = options.hosts,
           .tls = options.tls,
           .body_bytes_max = 0},
          [this](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
            handle(request, exchange);
          },
          log) {
  for (int i = 0; i < kReaders; ++i) {
    readers_.push_back(std::make_unique<net::WorkLoop>("pelton-share"));
  }
}

ShareServer::~ShareServer() {
  stop();
}

Result<void> ShareServer::start() {
  return http_.start();
}

void ShareServer::stop() {
  http_.stop(std::chrono::milliseconds(0));
  readers_.clear();  // what they still hold counts here
}

void ShareServer::add(const std::string& name, std::shared_ptr<const ChunkFolder> folder) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(models_.begin(), models_.end(),
                                  [&](const Shared& one) { return one.name == name; });
  if (found == models_.end()) {
    models_.push_back({.name = name, .folder = std::move(folder), .peers = {}});
  } else {
    found->folder = std::move(folder);
  }
}

// "/NAME/have" -> that model, "have".
bool ShareServer::find(const std::string& path, Asked& asked) {
  std::lock_guard lock(mutex_);
  const size_t slash = std::min(path.find('/', 1), path.size());
  const std::string name = path.substr(1, slash - 1);
  for (const Shared& model : models_) {
    if (model.name != name && model.folder->digest() != name) continue;
    asked = {.digest = model.folder->digest(),
             .folder = model.folder,
             .rest = slash == path.size() ? "" : path.substr(slash + 1)};
    return true;
  }
  if (models_.size() != 1) return false;
  asked = {
      .digest = models_[0].folder->digest(), .folder = models_[0].folder, .rest = path.substr(1)};
  return true;
}

bool ShareServer::allows(const net::HttpRequest& request, const std::string& digest) const {
  return !options_.allows || options_.allows(bearer_of(request), digest);
}

void ShareServer::handle(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange) {
  if (request.method != "GET") {
    return exchange->send(error(405, "method_not_allowed", "Weights are only given: GET."));
  }
  if (request.path == "/health") return exchange->send(net::json_response(R"({"status":"ok"})"));
  Asked asked;
  const bool is_page = request.path == "/" || request.path == "/metrics";
  const bool found = is_page || find(request.path, asked);
  if (!allows(request, asked.digest)) {
    net::HttpResponse refused = error(401, "invalid_api_key", "These weights ask for a key.");
    refused.headers.add("WWW-Authenticate", "Bearer");
    return exchange->send(std::move(refused));
  }
  if (request.path == "/") return exchange->send(net::json_response(list()));
  if (is_page) {
    net::HttpResponse page{.status = 200, .headers = {}, .body = metrics()};
    page.headers.add("Content-Type", std::string(telemetry::kPrometheusContentType));
    return exchange->send(std::move(page));
  }
  if (found && asked.rest == kManifestName) {
    return exchange->send(net::json_response(asked.folder->manifest_json()));
  }
  if (found && asked.rest == "have") {
    Have have = have_of(*asked.folder, options_.id);
    have.peers = note_peer(request, asked.digest);
    return exchange->send(net::json_response(have.to_json()));
  }
  if (found && asked.rest.starts_with(kChunks)) return answer_chunk(request, asked, exchange);
  exchange->send(error(404, "not_found", "There is no such model or chunk."));
}

void ShareServer::answer_chunk(const net::HttpRequest& request, const Asked& asked,
                               const std::shared_ptr<net::Exchange>& exchange) {
  const int chunk = asked.folder->find(asked.rest.substr(kChunks.size()));
  if (chunk < 0 || asked.folder->state(chunk) != ChunkFolder::State::kThere) {
    return exchange->send(error(404, "not_found", "That chunk is not here."));
  }
  const int64_t bytes = asked.folder->chunks()[static_cast<size_t>(chunk)].bytes;
  const std::string_view text = request.headers.get("Range");
  const std::optional<Range> range = text.empty() ? Range{0, bytes} : parse_range(text, bytes);
  if (!range) {
    net::HttpResponse refused = error(416, "range", "There is no such range of that chunk.");
    refused.headers.add("Content-Range", fmt::format("bytes */{}", bytes));
    return exchange->send(std::move(refused));
  }
  if (answers_ >= kAnswersMax) {
    ++busy_refusals_;
    net::HttpResponse refused = error(503, "slow_down", "Too many chunks are on their way.");
    refused.headers.add("Retry-After", "1");
    return exchange->send(std::move(refused));
  }
  net::HttpHeaders headers;
  headers.add("Content-Type", "application/octet-stream");
  if (!text.empty()) {
    headers.add("Content-Range",
                fmt::format("bytes {}-{}/{}", range->begin, range->end - 1, bytes));
  }
  std::make_shared<ChunkAnswer>(*this, asked.folder, chunk, *range, exchange)
      ->start(text.empty() ? 200 : 206, std::move(headers));
}

// A node that shares says at which port; its address is the one that it comes from, so that nobody
// can name somebody else. Gives the others.
std::vector<std::string> ShareServer::note_peer(const net::HttpRequest& request,
                                                const std::string& digest) {
  const int64_t now = clock_.now_ns();
  const std::string_view text = request.headers.get("x-pelton-share-port");
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  const Result<net::HostPort> from = net::parse_host_port(request.remote);
  std::string own;
  if (from.ok() && port > 0 && port <= 65'535) own = net::format_host_port(from->host, port);
  std::vector<std::string> others;
  std::lock_guard lock(mutex_);
  for (Shared& model : models_) {
    if (model.folder->digest() != digest) continue;
    std::erase_if(model.peers,
                  [&](const auto& peer) { return now - peer.second > kPeerForgottenNs; });
    if (!own.empty() && (model.peers.size() < Have::kPeersMax || model.peers.contains(own))) {
      model.peers[own] = now;
    }
    for (const auto& [peer, heard] : model.peers) {
      if (peer != own) others.push_back(peer);
    }
    break;
  }
  return others;
}

// How long to wait before so many bytes are sent.
std::chrono::milliseconds ShareServer::reserve(int64_t bytes) {
  if (options_.bytes_per_second_max == 0) return std::chrono::milliseconds(0);
  const int64_t now = clock_.now_ns();
  std::lock_guard lock(mutex_);
  const int64_t begin = std::max(now, rate_free_ns_);
  rate_free_ns_ = begin + static_cast<int64_t>(static_cast<double>(bytes) * 1e9 /
                                               static_cast<double>(options_.bytes_per_second_max));
  return std::chrono::milliseconds((begin - now) / 1'000'000);
}

std::string ShareServer::list() const {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("models").begin_array();
  std::lock_guard lock(mutex_);
  for (const Shared& model : models_) {
    int64_t there = 0;
    const std::vector<Chunk>& chunks = model.folder->chunks();
    for (size_t i = 0; i < chunks.size(); ++i) {
      there += model.folder->state(static_cast<int>(i)) == ChunkFolder::State::kThere
                   ? chunks[i].bytes
                   : 0;
    }
    writer.begin_object().key("name").string(model.name);
    writer.key("files").integer(static_cast<int64_t>(model.folder->manifest().files.size()));
    writer.key("bytes").integer(model.folder->manifest().bytes()).key("bytes_there").integer(there);
    writer.key("manifest").string(model.folder->digest()).end_object();
  }
  writer.end_array().end_object();
  return out;
}

std::string ShareServer::metrics() const {
  telemetry::PrometheusText text;
  text.counter("pelton_weights_bytes_sent_total", "Bytes of chunks sent to others.",
               static_cast<double>(bytes_sent_));
  text.counter("pelton_weights_chunks_sent_total", "Chunks sent to their last byte.",
               static_cast<double>(chunks_sent_));
  text.counter("pelton_weights_refused_busy_total",
               "Requests for chunks refused as too many were on their way.",
               static_cast<double>(busy_refusals_));
  text.gauge("pelton_weights_chunks_sending", "Chunks on their way now.", answers_);
  size_t peers = 0;
  {
    std::lock_guard lock(mutex_);
    for (const Shared& model : models_) peers += model.peers.size();
  }
  text.gauge("pelton_weights_peers", "Nodes that fetch and share, as they said lately.",
             static_cast<double>(peers));
  return text.text();
}

}  // namespace pelton::weights
