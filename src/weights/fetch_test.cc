#include "weights/fetch.h"

#include <filesystem>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/random.h"
#include "hub/fake_hub.h"
#include "net/http_client.h"
#include "weights/copies.h"
#include "weights/mirror.h"
#include "weights/place_answers.h"
#include "weights/share_server.h"

namespace pelton::weights {
namespace {

using hub::FakeAnswer;
using hub::FakeRequest;
using hub::FakeServer;
using testing::HasSubstr;

const auto kGoOn = [](const MirrorProgress&) { return true; };

std::string random_bytes(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(base::random_bits(seed, i));
  return bytes;
}

// A model of a few chunks, a web server that has it as files, and a place for its copy.
class FetchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "/fetch_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
    std::filesystem::create_directories(folder_ + "/model/sub");
    add("model.safetensors", random_bytes(5 * kChunkBytesMin + 17, 1));
    add("sub/config.json", "{}");
    add("empty", "");
    Result<Manifest> made = make_manifest(folder_ + "/model", {.chunk_bytes = kChunkBytesMin},
                                          [](int64_t, int64_t) { return true; });
    ASSERT_TRUE(made.ok()) << made.error().message;
    manifest_ = *made;
    files_[kManifestName] = manifest_.to_json();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void add(const std::string& name, const std::string& bytes) {
    files_[name] = bytes;
    ASSERT_TRUE(base::write_file(folder_ + "/model/" + name, bytes).ok());
  }

  // As a web server would answer, below "/m/".
  FakeAnswer good(const FakeRequest& request) {
    const auto found =
        files_.find(request.target.substr(std::min<size_t>(3, request.target.size())));
    return found == files_.end() ? FakeAnswer{.status = 404} : file_answer(request, found->second);
  }
  FakeServer::Answer files_answer() {
    return [this](const FakeRequest& request) { return good(request); };
  }

  MirrorOptions options(const std::string& origin, std::vector<std::string> peers = {}) {
    MirrorOptions options;
    options.fetch.access.key = "secret";
    options.fetch.origin = *parse_place(origin + "/m", options.fetch.access);
    for (const std::string& peer : peers) {
      options.fetch.peers.push_back(*parse_place(peer + "/m", options.fetch.access));
    }
    options.fetch.retry.delay = std::chrono::milliseconds(1);
    options.fetch.retry.delay_max = std::chrono::milliseconds(5);
    options.fetch.say = [this](const std::string& line) { said_ += line + "\n"; };
    options.folder = folder_ + "/copy";
    return options;
  }
  Result<MirrorReport> fetch(const MirrorOptions& options) {
    return mirror(options, clock_, kGoOn);
  }
  void expect_copy() {
    for (const auto& [name, bytes] : files_) {
      const Result<std::string> got = base::read_file(folder_ + "/copy/" + name);
      ASSERT_TRUE(got.ok()) << name;
      EXPECT_TRUE(*got == bytes) << name;
    }
  }
  std::string error_of(const Result<MirrorReport>& report) {
    return report.ok() ? "none" : report.error().message;
  }

  const base::SystemClock clock_{};
  std::string folder_;
  std::map<std::string, std::string> files_;
  Manifest manifest_;
  std::string said_;
};

TEST_F(FetchTest, AWebServersFilesBecomeACopyAndNothingIsFetchedTwice) {
  FakeServer server(files_answer());
  const Result<MirrorReport> report = fetch(options(server.url()));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->fetch.bytes_from_origin, manifest_.bytes());
  expect_copy();
  for (const FakeRequest& request : server.requests()) {
    EXPECT_EQ(request.authorization, "Bearer secret");
  }
  const size_t asked = server.requests().size();
  EXPECT_TRUE(fetch(options(server.url()))->was_there);
  EXPECT_EQ(server.requests().size(), asked + 1);  // the manifest alone
}

TEST_F(FetchTest, ADiskThatIsTooSmallIsNamedBeforeAByteIsFetched) {
  constexpr int64_t kTiB = int64_t{1} << 40;
  if (std::filesystem::space(folder_).available > 4 * kTiB) GTEST_SKIP() << "4 TiB fit here";
  constexpr int kFiles = 16;
  Manifest large{.chunk_bytes = kChunkBytesMax, .files = {}};
  for (int i = 0; i < kFiles; ++i) {
    ManifestFile file{.path = fmt::format("{:02}", i), .bytes = 4 * kTiB / kFiles, .chunks = {}};
    for (int64_t at = 0; at < file.bytes; at += kChunkBytesMax) {
      file.chunks.push_back(base::sha256(fmt::format("{} {}", i, at)));
    }
    large.files.push_back(std::move(file));
  }
  files_[kManifestName] = large.to_json();
  FakeServer server(files_answer());
  const Result<MirrorReport> report = fetch(options(server.url()));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(report.error().message, HasSubstr("needs 4.0 TiB more"));
  EXPECT_THAT(report.error().message, HasSubstr("64.0 MiB that stay free"));
  EXPECT_EQ(server.requests().size(), 1u);  // the manifest
}

TEST_F(FetchTest, CutConnectionsGoOnWhereTheyWereCut) {
  std::mutex mutex;
  std::map<std::string, int> cuts;
  FakeServer server([&](const FakeRequest& request) {
    FakeAnswer answer = good(request);
    std::lock_guard lock(mutex);
    if (!request.range.empty() && ++cuts[request.target] <= 8) answer.cut_after = 20'000;
    return answer;
  });
  const Result<MirrorReport> report = fetch(options(server.url()));
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_copy();
  bool continued = false;  // from within a chunk
  for (const FakeRequest& request : server.requests()) {
    continued |= !request.range.empty() && std::stoll(request.range) % kChunkBytesMin != 0;
  }
  EXPECT_TRUE(continued);
}

// Every try brings a little: that is no progress, or it would go on for ever.
TEST_F(FetchTest, AnOriginThatSendsTenBytesARangeIsGivenUp) {
  FakeServer server([&](const FakeRequest& request) {
    FakeAnswer answer = good(request);
    if (!request.range.empty()) answer.cut_after = 10;
    return answer;
  });
  const Result<MirrorReport> report = fetch(options(server.url()));
  EXPECT_THAT(error_of(report), HasSubstr("again and again"));
  EXPECT_LT(server.requests().size(), 200u);
}

// What begins a copy's lock is gone with it where nothing was begun.
TEST_F(FetchTest, ARefusedMirrorLeavesNothing) {
  FakeServer server(files_answer());
  ASSERT_TRUE(base::write_file(folder_ + "/copy", "somebody's file").ok());
  EXPECT_FALSE(fetch(options(server.url())).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/.copy.weights-lock"));
  std::filesystem::remove(folder_ + "/copy");
  ASSERT_TRUE(fetch(options(server.url())).ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/.copy.weights-lock"));
}

TEST_F(FetchTest, WhatAnEarlierProcessLeftIsHashedAndKept) {
  std::atomic<bool> down{false};
  FakeServer server([&](const FakeRequest& request) {
    const bool late = request.range.starts_with("262144-");
    return late && down ? FakeAnswer{.status = 403} : good(request);
  });
  down = true;
  EXPECT_THAT(error_of(fetch(options(server.url()))), HasSubstr("403"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/copy"));
  // A byte of what came rots.
  const std::string partial = partial_folder(folder_ + "/copy", manifest_.digest());
  std::string bytes = *base::read_file(partial + "/model.safetensors");
  bytes[3] = static_cast<char>(bytes[3] ^ 1);
  ASSERT_TRUE(base::write_file(partial + "/model.safetensors", bytes).ok());
  down = false;
  const Result<MirrorReport> report = fetch(options(server.url()));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LT(report->fetch.bytes_from_origin, manifest_.bytes());
  EXPECT_GE(report->fetch.bytes_from_origin,
            2 * kChunkBytesMin);  // the rotten one, the refused one
  expect_copy();
}

TEST_F(FetchTest, A200ToARangeIsNamed) {
  FakeServer server([&](FakeRequest request) {
    request.range.clear();
    return good(request);
  });
  EXPECT_THAT(error_of(fetch(options(server.url()))),
              HasSubstr("answers 200 with the whole file where a range of it was asked for"));
}

TEST_F(FetchTest, AnotherRangeIsNamed) {
  FakeServer server([&](FakeRequest request) {
    if (!request.range.empty()) request.range = "5-70000";
    return good(request);
  });
  EXPECT_THAT(error_of(fetch(options(server.url()))), HasSubstr("another range"));
}

TEST_F(FetchTest, SlowDownIsWaitedForAndThenNamed) {
  std::atomic<int> left{3};
  std::vector<std::string> waits;
  FakeServer server([&](const FakeRequest& request) {
    return !request.range.empty() && left-- > 0 ? FakeAnswer{.status = 503} : good(request);
  });
  MirrorOptions wanted = options(server.url());
  wanted.fetch.retry.on_retry = [&](const hub::RetryNote& note) { waits.push_back(note.why); };
  ASSERT_EQ(error_of(fetch(wanted)), "none");
  EXPECT_FALSE(waits.empty());
  std::filesystem::remove_all(folder_ + "/copy");
  left = 1'000'000;
  EXPECT_THAT(error_of(fetch(wanted)), HasSubstr("answers 503, again and again"));
}

// Who has not answered yet may be a wrong name: that is found out sooner.
TEST_F(FetchTest, AnOriginThatHasNotAnsweredYetIsAskedFourTimes) {
  std::atomic<bool> is_away{true};
  FakeServer server([&](const FakeRequest& request) {
    return is_away || !request.range.empty() ? FakeAnswer{.status = 503} : good(request);
  });
  MirrorOptions wanted = options(server.url());
  EXPECT_THAT(error_of(fetch(wanted)), HasSubstr("answers 503"));
  EXPECT_EQ(server.requests().size(), 4u);
  is_away = false;
  wanted.fetch.connections = 1;
  EXPECT_NE(error_of(fetch(wanted)), "none");
  EXPECT_GE(server.requests().size(), 4u + 1 + 8) << "one that has answered is asked eight times";
}

TEST_F(FetchTest, RedirectsToAnotherHostGetNoKey) {
  FakeServer store(files_answer());
  FakeServer server([&](const FakeRequest& request) {
    if (request.range.empty()) return good(request);
    return FakeAnswer{.status = 302, .headers = {{"Location", store.url() + request.target}}};
  });
  ASSERT_EQ(error_of(fetch(options(server.url()))), "none");
  expect_copy();
  ASSERT_FALSE(store.requests().empty());
  for (const FakeRequest& request : store.requests()) EXPECT_EQ(request.authorization, "");
}

TEST_F(FetchTest, SignedRequestsAreLedNowhere) {
  FakeServer server([](const FakeRequest&) {
    return FakeAnswer{
        .status = 301,
        .headers = {{"Location", "http://127.0.0.1:1/x"}, {"x-amz-bucket-region", "eu-west-3"}}};
  });
  MirrorOptions wanted = options(server.url());
  wanted.fetch.access.s3_endpoint = server.url();
  wanted.fetch.access.aws = {.access_key = "a", .secret_key = "b"};
  wanted.fetch.origin = *parse_place("s3://bucket/m", wanted.fetch.access);
  const std::string error = error_of(fetch(wanted));
  EXPECT_THAT(error, HasSubstr("AWS_REGION=\"eu-west-3\""));
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(FetchTest, RefusalsAreNamed) {
  FakeServer server([](const FakeRequest&) { return FakeAnswer{.status = 403}; });
  EXPECT_THAT(error_of(fetch(options(server.url()))), HasSubstr("refuses the key (403)"));
  FakeServer nothing([](const FakeRequest&) { return FakeAnswer{.status = 404}; });
  EXPECT_THAT(error_of(fetch(options(nothing.url()))),
              HasSubstr("pelton-manifest.json is looked for"));
  FakeServer text([](const FakeRequest&) { return FakeAnswer{.body = "<html>"}; });
  EXPECT_THAT(error_of(fetch(options(text.url()))), HasSubstr("manifest's text"));
}

TEST_F(FetchTest, AnOriginThatSendsOtherBytesIsNamed) {
  std::atomic<int> asked{0};
  FakeServer server([&](const FakeRequest& request) {
    FakeAnswer answer = good(request);
    if (request.range.starts_with("65536-")) {
      ++asked;
      answer.body[7] = static_cast<char>(answer.body[7] ^ 1);
    }
    return answer;
  });
  EXPECT_THAT(error_of(fetch(options(server.url()))),
              HasSubstr("sent other bytes than the manifest has for model.safetensors from byte "
                        "65536, twice"));
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/copy"));
}

TEST_F(FetchTest, ALyingPeerIsDroppedAndItsChunksComeFromElsewhere) {
  FakeServer origin(files_answer());
  FakeServer liar([&](const FakeRequest& request) {
    FakeAnswer answer = good(request);
    if (!request.range.empty()) answer.body[0] = static_cast<char>(answer.body[0] ^ 1);
    return answer;
  });
  const Result<MirrorReport> report = fetch(options(origin.url(), {liar.url()}));
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_copy();
  EXPECT_THAT(said_, HasSubstr(liar.url()));
  EXPECT_THAT(said_, HasSubstr("sent other bytes than the manifest has for"));
  EXPECT_EQ(report->fetch.dropped.size(), 1u);
  EXPECT_GE(report->fetch.bytes_from_origin, 5 * kChunkBytesMin);
}

TEST_F(FetchTest, APeerThatIsAwayCostsNothingButTime) {
  FakeServer origin(files_answer());
  ASSERT_EQ(error_of(fetch(options(origin.url(), {"http://127.0.0.1:1"}))), "none");
  expect_copy();
}

// A node of ours, by the digests of its chunks.
class ShareTest : public FetchTest {
 protected:
  std::unique_ptr<ShareServer> serve(const std::string& key = "") {
    ShareServer::Options share{.id = "node"};
    if (!key.empty()) {
      share.allows = [key](std::string_view token, const std::string& digest) {
        return token == key || token == peer_key(key, digest);
      };
    }
    auto server = std::make_unique<ShareServer>(share, clock_, log_);
    EXPECT_TRUE(server->start().ok());
    server->add("m", *ChunkFolder::open(folder_ + "/model", manifest_));
    return server;
  }
  static std::string url(const ShareServer& server) {
    return fmt::format("http://127.0.0.1:{}", server.port());
  }
  net::HttpResponse get(const ShareServer& server, const std::string& target,
                        const std::string& range = "", const std::string& token = "") {
    net::HttpCall call = *net::make_http_call("GET", url(server) + target);
    if (!range.empty()) call.headers.add("Range", range);
    if (!token.empty()) call.headers.add("Authorization", "Bearer " + token);
    const Result<net::HttpResponse> response = net::http_fetch(std::move(call));
    return response.ok() ? *response : net::HttpResponse{.status = 0};
  }

  static std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

// It says to have all of the model, and gives nothing of one chunk.
TEST_F(ShareTest, WhatAPeerIsSlowWithComesFromElsewhere) {
  std::atomic<bool> over{false};
  const auto whole = ChunkFolder::open(folder_ + "/model", manifest_);
  FakeServer peer([&](const FakeRequest& request) {
    if (request.target.ends_with("/have")) {
      return FakeAnswer{.status = 200, .body = have_of(**whole, "slow").to_json()};
    }
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return FakeAnswer{.status = 404};
  });
  FakeServer origin(files_answer());
  MirrorOptions wanted = options(origin.url(), {peer.url()});
  wanted.fetch.overdue = std::chrono::milliseconds(50);
  const Result<MirrorReport> report = fetch(wanted);
  over = true;
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->fetch.bytes_from_origin, manifest_.bytes());
  expect_copy();
}

// With as many chunks as it may be asked for at a time it holds up nobody for longer.
TEST_F(ShareTest, APeerThatHangsWithAllItsConnectionsIsPassedOver) {
  std::atomic<bool> over{false};
  const auto whole = ChunkFolder::open(folder_ + "/model", manifest_);
  FakeServer peer([&](const FakeRequest& request) {
    if (request.target.ends_with("/have")) {
      return FakeAnswer{.status = 200, .body = have_of(**whole, "slow").to_json()};
    }
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return FakeAnswer{.status = 404};
  });
  FakeServer origin(files_answer());
  MirrorOptions wanted = options(origin.url(), {peer.url()});
  wanted.fetch.overdue = std::chrono::milliseconds(50);
  wanted.fetch.connections = 2;
  const int64_t began_ns = clock_.now_ns();
  const Result<MirrorReport> report = fetch(wanted);
  over = true;
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->fetch.bytes_from_origin, manifest_.bytes());
  EXPECT_LT(clock_.now_ns() - began_ns, 5'000'000'000);
}

// A whole peer whose chunks come at a pace that no chunk by itself is late at: the origin, which
// would rest, fetches beside it.
TEST_F(ShareTest, BesideAPeerThatIsSlowTheOriginFetchesToo) {
  add("more.safetensors", random_bytes(60 * kChunkBytesMin, 9));
  Result<Manifest> made = make_manifest(folder_ + "/model", {.chunk_bytes = kChunkBytesMin},
                                        [](int64_t, int64_t) { return true; });
  ASSERT_TRUE(made.ok());
  manifest_ = *made;
  files_[kManifestName] = manifest_.to_json();
  const auto whole = ChunkFolder::open(folder_ + "/model", manifest_);
  FakeServer files(files_answer());
  FakeServer peer([&](const FakeRequest& request) {
    if (request.target.ends_with("/have")) {
      return FakeAnswer{.status = 200, .body = have_of(**whole, "slow").to_json()};
    }
    for (size_t i = 0; i < (*whole)->chunks().size(); ++i) {
      const int chunk = static_cast<int>(i);
      if (!request.target.ends_with((*whole)->digest_of(chunk))) continue;
      const Chunk& wanted = (*whole)->chunks()[i];
      const std::string& file = manifest_.files[static_cast<size_t>(wanted.file)].path;
      return FakeAnswer{.body = files_[file].substr(static_cast<size_t>(wanted.offset),
                                                    static_cast<size_t>(wanted.bytes)),
                        .pause = std::chrono::milliseconds(60)};
    }
    return FakeAnswer{.status = 404};
  });
  MirrorOptions wanted = options(files.url(), {peer.url()});
  wanted.fetch.overdue = std::chrono::milliseconds(300);
  wanted.fetch.connections = 1;
  const Result<MirrorReport> report = fetch(wanted);
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_copy();
  EXPECT_GT(report->fetch.bytes_from_origin, manifest_.bytes() / 2);
  EXPECT_GT(report->fetch.bytes_from_peers, 0) << "it is asked before the origin";
  EXPECT_THAT(said_, HasSubstr("the origin is asked besides"));
}

// Beside one that hangs another one is not kept waiting, and the origin keeps its rest.
TEST_F(ShareTest, APeerThatSendsNothingKeepsNoOtherWaiting) {
  std::atomic<bool> over{false};
  const auto whole = ChunkFolder::open(folder_ + "/model", manifest_);
  FakeServer hangs([&](const FakeRequest& request) {
    if (request.target.ends_with("/have")) {
      return FakeAnswer{.status = 200, .body = have_of(**whole, "hangs").to_json()};
    }
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return FakeAnswer{.status = 404};
  });
  FakeServer good(files_answer());
  FakeServer origin([&](const FakeRequest& request) {
    return request.target.ends_with(kManifestName) ? this->good(request)
                                                   : FakeAnswer{.status = 503};
  });
  MirrorOptions wanted = options(origin.url(), {hangs.url(), good.url()});
  wanted.fetch.retry.delay = std::chrono::milliseconds(100);
  wanted.fetch.retry.delay_max = std::chrono::milliseconds(60'000);
  wanted.fetch.overdue = std::chrono::milliseconds(60'000);
  wanted.fetch.patience = std::chrono::milliseconds(100);
  wanted.fetch.connections = 1;
  const int64_t began_ns = clock_.now_ns();
  const Result<MirrorReport> report = fetch(wanted);
  over = true;
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_copy();
  EXPECT_EQ(report->fetch.bytes_from_origin, 0);
  EXPECT_LT(clock_.now_ns() - began_ns, 10'000'000'000);
}

// It says to fetch all from the origin for others too, and that it gets on.
TEST_F(ShareTest, WhoOnlyPromisesIsWaitedForOnce) {
  std::atomic<size_t> asked = 0;
  const size_t chunks = chunks_of(manifest_).size();
  Have have{.id = "promises",
            .manifest = manifest_.digest(),
            .there = std::vector<bool>(chunks),
            .coming = std::vector<bool>(chunks, true),
            .peers = {}};
  FakeServer peer([&](const FakeRequest& request) {
    if (!request.target.ends_with("/have")) return FakeAnswer{.status = 500};
    Have now = have;
    now.there[0] = ++asked % 2 == 0;  // always more than before
    return FakeAnswer{.status = 200, .body = now.to_json()};
  });
  const auto origin = serve();
  MirrorOptions wanted = options(url(*origin), {peer.url()});
  wanted.fetch.id = "me";
  wanted.fetch.gather = std::chrono::milliseconds(1);
  wanted.fetch.connections = 1;  // nor again for each of its chunks
  wanted.fetch.patience = std::chrono::milliseconds(1'000);
  const int64_t began_ns = clock_.now_ns();
  const Result<MirrorReport> report = fetch(wanted);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LT(clock_.now_ns() - began_ns, 5'000'000'000) << "of seven chunks one by one: seven times";
  expect_copy();
}

// A chunk takes longer than anybody has patience: bytes that come to who fetches it are progress,
// so that it leaves the origin once.
TEST_F(ShareTest, OneToWhomBytesComeIsWaitedFor) {
  const auto whole = ChunkFolder::open(folder_ + "/model", manifest_);
  const size_t chunks = chunks_of(manifest_).size();
  Have have{.id = "slow",
            .manifest = manifest_.digest(),
            .there = std::vector<bool>(chunks),
            .coming = std::vector<bool>(chunks, true),
            .peers = {}};
  const int64_t began_ns = clock_.now_ns();
  std::atomic<int64_t> received{0};
  FakeServer peer([&](const FakeRequest& request) {
    const bool is_there = clock_.now_ns() - began_ns > 1'200'000'000;
    if (request.target.ends_with("/have")) {
      Have now = have;
      now.received = received += 70'000;
      if (is_there) now.there.assign(chunks, true);
      return FakeAnswer{.status = 200, .body = now.to_json()};
    }
    for (size_t i = 0; i < chunks; ++i) {
      if (!request.target.ends_with((*whole)->digest_of(static_cast<int>(i)))) continue;
      const Chunk& wanted = (*whole)->chunks()[i];
      const std::string& file = manifest_.files[static_cast<size_t>(wanted.file)].path;
      return FakeAnswer{.body = files_[file].substr(static_cast<size_t>(wanted.offset),
                                                    static_cast<size_t>(wanted.bytes))};
    }
    return FakeAnswer{.status = 404};
  });
  const auto origin = serve();
  MirrorOptions wanted = options(url(*origin), {peer.url()});
  wanted.fetch.id = "me";
  wanted.fetch.gather = std::chrono::milliseconds(1);
  wanted.fetch.patience = std::chrono::milliseconds(400);
  const Result<MirrorReport> report = fetch(wanted);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->fetch.bytes_from_origin, 0);
  expect_copy();
}

// The origin goes while a slow peer has been passed over: the peer is asked again.
TEST_F(ShareTest, WithoutItsOriginASlowPeerIsAskedAgain) {
  const auto whole = ChunkFolder::open(folder_ + "/model", manifest_);
  std::atomic<int> begun = 0;
  std::atomic<bool> origin_gone{false};
  FakeServer peer([&](const FakeRequest& request) {
    if (request.target.ends_with("/have")) {
      return FakeAnswer{.status = 200, .body = have_of(**whole, "slow").to_json()};
    }
    ++begun;
    while (!origin_gone) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::string digest = request.target.substr(request.target.rfind('/') + 1);
    const int chunk = (*whole)->find(digest);
    std::string bytes(static_cast<size_t>((*whole)->chunks()[static_cast<size_t>(chunk)].bytes), 0);
    EXPECT_TRUE((*whole)->read(chunk, 0, bytes).ok());
    return FakeAnswer{.status = 200, .body = bytes};
  });
  FakeServer origin([&](const FakeRequest& request) {
    if (request.target.ends_with(kManifestName)) return good(request);
    origin_gone = begun > 0;
    return FakeAnswer{.status = 403};
  });
  MirrorOptions wanted = options(origin.url(), {peer.url()});
  wanted.fetch.overdue = std::chrono::milliseconds(50);
  const Result<MirrorReport> report = fetch(wanted);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->fetch.bytes_from_peers, manifest_.bytes());
  expect_copy();
}

TEST_F(ShareTest, OfEqualChunksTheOneThatIsThereIsGiven) {
  const std::string once = random_bytes(kChunkBytesMin, 9);
  std::filesystem::create_directories(folder_ + "/twice");
  ASSERT_TRUE(base::write_file(folder_ + "/twice/a", once + once).ok());
  const Manifest manifest = *make_manifest(folder_ + "/twice", {.chunk_bytes = kChunkBytesMin},
                                           [](int64_t, int64_t) { return true; });
  const auto folder = *ChunkFolder::open(folder_ + "/twice", manifest);
  ASSERT_EQ(folder->chunks().size(), 2u);
  folder->set_state(0, ChunkFolder::State::kMissing);
  EXPECT_EQ(folder->find(folder->digest_of(0)), 1);
  folder->set_state(1, ChunkFolder::State::kMissing);
  EXPECT_EQ(folder->find(folder->digest_of(0)), 0);
}

TEST_F(ShareTest, GivesChunksAndRanges) {
  const auto server = serve();
  const std::string digest = manifest_.files[1].chunks[5];
  ASSERT_EQ(manifest_.files[1].path, "model.safetensors");
  const std::string chunk = files_["model.safetensors"].substr(5 * kChunkBytesMin);
  EXPECT_EQ(get(*server, "/m/chunks/" + digest).body, chunk);
  EXPECT_EQ(get(*server, "/chunks/" + digest).body, chunk);  // there is one model
  EXPECT_EQ(get(*server, "/" + manifest_.digest() + "/chunks/" + digest).body, chunk);
  const net::HttpResponse part = get(*server, "/m/chunks/" + digest, "bytes=5-");
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, chunk.substr(5));
  EXPECT_EQ(part.headers.get("Content-Range"), "bytes 5-16/17");
  EXPECT_EQ(get(*server, "/m/chunks/" + digest, "bytes=2-3").body, chunk.substr(2, 2));
  for (const char* range : {"bytes=17-", "bytes=-5", "bytes=5-2", "bytes=a-b", "lines=1-2",
                            "bytes=1-2,4-5", "bytes=99999999999999999999-"}) {
    EXPECT_EQ(get(*server, "/m/chunks/" + digest, range).status, 416) << range;
  }
  EXPECT_EQ(get(*server, "/m/chunks/" + std::string(64, '0')).status, 404);
  EXPECT_EQ(get(*server, "/m/chunks/../x").status, 400);
  EXPECT_EQ(get(*server, "/m/pelton-manifest.json").body, manifest_.to_json());
  EXPECT_THAT(get(*server, "/").body, HasSubstr("\"name\":\"m\""));
  EXPECT_THAT(get(*server, "/metrics").body, HasSubstr("pelton_weights_chunks_sent_total 5"));
}

TEST_F(ShareTest, AsksForItsKey) {
  const auto server = serve("secret");
  EXPECT_EQ(get(*server, "/m/have").status, 401);
  EXPECT_EQ(get(*server, "/m/have", "", "other").status, 401);
  EXPECT_EQ(get(*server, "/nothing/have").status, 401);
  EXPECT_EQ(get(*server, "/m/have", "", "secret").status, 200);
  EXPECT_EQ(get(*server, "/m/have", "", peer_key("secret", manifest_.digest())).status, 200);
  EXPECT_EQ(get(*server, "/health").status, 200);
  ASSERT_EQ(error_of(fetch(options(url(*server)))), "none");
  expect_copy();
}

TEST_F(ShareTest, APeerThatHasAllIsAskedBeforeTheOrigin) {
  const auto peer = serve();
  FakeServer origin(files_answer());
  const Result<MirrorReport> report = fetch(options(origin.url(), {url(*peer)}));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->fetch.bytes_from_peers, manifest_.bytes());
  EXPECT_EQ(report->fetch.bytes_from_origin, 0);
  expect_copy();
}

TEST_F(ShareTest, APeerWithAnotherVersionIsNamed) {
  const auto peer = serve();
  add("sub/config.json", "{\"a\":1}");
  manifest_ = *make_manifest(folder_ + "/model", {.chunk_bytes = kChunkBytesMin},
                             [](int64_t, int64_t) { return true; });
  files_[kManifestName] = manifest_.to_json();
  FakeServer origin(files_answer());
  ASSERT_EQ(error_of(fetch(options(origin.url(), {url(*peer)}))), "none");
  EXPECT_THAT(said_, HasSubstr("has another version of the model"));
  expect_copy();
}

// It says where others are by the address that they come from, and forgets nobody in between.
TEST_F(ShareTest, TellsNodesOfEachOther) {
  const auto server = serve();
  net::HttpCall call = *net::make_http_call("GET", url(*server) + "/m/have");
  call.headers.add("x-pelton-share-port", "9000");
  EXPECT_THAT(net::http_fetch(call)->body, HasSubstr("\"peers\":[]"));
  EXPECT_THAT(get(*server, "/m/have").body, HasSubstr("\"peers\":[\"127.0.0.1:9000\"]"));
  call.headers = {};
  call.headers.add("x-pelton-share-port", "evil.example:80");
  EXPECT_EQ(net::http_fetch(call)->status, 200);
  EXPECT_THAT(get(*server, "/m/have").body, HasSubstr("\"peers\":[\"127.0.0.1:9000\"]"));
}

// 60 GB with some data: what is hashed, sent and written is the data's chunks.
TEST_F(ShareTest, HolesStayHoles) {
  constexpr int64_t kBytes = int64_t{60} * 1000 * 1000 * 1000;
  const std::string model = folder_ + "/sparse";
  std::filesystem::create_directories(model);
  ASSERT_TRUE(base::write_file(model + "/model.safetensors", random_bytes(1000, 3)).ok());
  ASSERT_EQ(::truncate((model + "/model.safetensors").c_str(), kBytes), 0);
  const Result<Manifest> manifest = make_manifest(model, {}, [](int64_t, int64_t) { return true; });
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  ShareServer server({.id = "node"}, clock_, log_);
  ASSERT_TRUE(server.start().ok());
  server.add("m", *ChunkFolder::open(model, *manifest));
  const Result<MirrorReport> report = fetch(options(url(server)));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->bytes, kBytes);
  EXPECT_EQ(report->fetch.bytes_from_origin, kChunkBytes);
  const std::string copy = folder_ + "/copy/model.safetensors";
  EXPECT_EQ(std::filesystem::file_size(copy), static_cast<uintmax_t>(kBytes));
  EXPECT_LT(list_copies(folder_ + "/copy")[0].bytes, 2 * kChunkBytes + (64 << 20));
  EXPECT_EQ(manifest_of(folder_ + "/copy", {}, [](int64_t, int64_t) { return true; })->digest(),
            manifest->digest());
}

TEST_F(ShareTest, CopiesAreListedAndErasedToTheLastByte) {
  FakeServer server(files_answer());
  ASSERT_EQ(error_of(fetch(options(server.url()))), "none");
  const std::string partial = partial_folder(folder_ + "/copy", std::string(64, 'a'));
  ASSERT_TRUE(begin_partial(folder_ + "/copy", std::string(64, 'a'), "elsewhere").ok());
  ASSERT_TRUE(base::write_file(partial + "/x", "abc").ok());
  std::vector<Copy> copies = list_copies(folder_);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_TRUE(copies[0].whole);
  EXPECT_EQ(copies[0].from, server.url() + "/m");
  EXPECT_GE(copies[0].bytes, manifest_.bytes());
  EXPECT_GT(copies[0].partial_bytes, 0);
  EXPECT_EQ(list_copies(folder_ + "/copy/").size(), 1u);

  EXPECT_EQ(erase_copy(folder_ + "/model").error().code, ErrorCode::kNotFound);  // a user's own
  {
    const Result<CopyLock> lock = CopyLock::take(folder_ + "/copy", [] { return true; });
    ASSERT_TRUE(lock.ok());
    EXPECT_EQ(erase_copy(folder_ + "/copy").error().code, ErrorCode::kUnavailable);
  }
  const Result<Erased> erased = erase_copy(folder_ + "/copy");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_GE(erased->bytes, manifest_.bytes());
  EXPECT_TRUE(erased->left.empty());
  EXPECT_EQ(names_in(folder_), std::vector<std::string>{"model"});
}

TEST_F(ShareTest, WhatALinkLeadsToIsNotErased) {
  FakeServer server(files_answer());
  ASSERT_EQ(error_of(fetch(options(server.url()))), "none");
  namespace fs = std::filesystem;
  fs::rename(folder_ + "/copy/sub", folder_ + "/outside");
  fs::create_directory_symlink(folder_ + "/outside", folder_ + "/copy/sub");
  const std::vector<std::string> before = names_in(folder_ + "/outside");
  ASSERT_FALSE(before.empty());
  const Result<Erased> erased = erase_copy(folder_ + "/copy");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_EQ(names_in(folder_ + "/outside"), before);
}

TEST_F(ShareTest, WhatSomebodyElsePutThereIsNotErased) {
  FakeServer server(files_answer());
  ASSERT_EQ(error_of(fetch(options(server.url()))), "none");
  ASSERT_TRUE(base::write_file(folder_ + "/copy/sub/notes.txt", "mine").ok());
  const std::string named = partial_folder(folder_ + "/copy", std::string(64, 'b'));
  std::filesystem::create_directories(named);  // by its name alone
  const Result<Erased> erased = erase_copy(folder_ + "/copy");
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_GE(erased->bytes, manifest_.bytes());
  ASSERT_EQ(erased->left.size(), 1u);
  EXPECT_THAT(erased->left[0], testing::EndsWith("/copy/sub/notes.txt"));
  EXPECT_EQ(names_in(folder_ + "/copy"), std::vector<std::string>{"sub"});
  EXPECT_TRUE(std::filesystem::exists(named));
  EXPECT_EQ(erase_copy(folder_ + "/copy").error().code, ErrorCode::kNotFound);
}

TEST_F(ShareTest, AFolderThatIsSomethingElseIsLeftAlone) {
  FakeServer server(files_answer());
  MirrorOptions wanted = options(server.url());
  wanted.folder = folder_ + "/model";
  EXPECT_THAT(error_of(fetch(wanted)), HasSubstr("is there already"));
  wanted.folder = folder_ + "/copy";
  ASSERT_EQ(error_of(fetch(wanted)), "none");
  std::filesystem::resize_file(folder_ + "/copy/model.safetensors", 5);
  EXPECT_THAT(error_of(fetch(wanted)), HasSubstr("pelton weights erase"));
}

TEST_F(ShareTest, AManifestBesideFilesIsTakenUnlessTheyChanged) {
  FakeServer server(files_answer());
  ASSERT_EQ(error_of(fetch(options(server.url()))), "none");
  int asked = 0;
  const auto count = [&](int64_t, int64_t) { return ++asked > 0; };
  EXPECT_EQ(*manifest_of(folder_ + "/copy", {}, count), manifest_);
  EXPECT_EQ(asked, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the file system's clock ticks
  std::filesystem::last_write_time(
      folder_ + "/copy/sub/config.json",
      std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(manifest_of(folder_ + "/copy", {.chunk_bytes = kChunkBytesMin}, count)->files,
            manifest_.files);
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace pelton::weights
