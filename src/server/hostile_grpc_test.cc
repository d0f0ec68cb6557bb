// Rows GR of the catalogue of bad inputs, as HTTP/2 frames by hand: what gRPC's own client would
// not send. GR-07 and GR-12 with that client: grpc_test.cc.
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include "server/grpc_listener.h"
#include "server/hostile_fixture.h"

namespace pelton::server {
namespace {

constexpr int kOk = 0;
constexpr int kCancelled = 1;
constexpr int kInvalidArgument = 3;
constexpr int kDeadlineExceeded = 4;
constexpr int kNotFound = 5;
constexpr int kResourceExhausted = 8;
constexpr int kUnimplemented = 12;
constexpr int kUnauthenticated = 16;
// Of the frames' own: the stream or the connection was ended without a status.
constexpr int kReset = -1;
constexpr int kNothing = -2;

constexpr char kGenerate[] = "/pelton.v1.Inference/Generate";
constexpr char kTokenize[] = "/pelton.v1.Inference/Tokenize";

// One connection, one call on it (stream 1).
class RawCall {
 public:
  enum class Window { kOpen, kShut };

  RawCall(int port, Window window) : socket_(port) {
    socket_.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // SETTINGS_INITIAL_WINDOW_SIZE: with 0 we say that we take no answer.
    std::string settings;
    if (window == Window::kShut) settings = std::string("\0\4\0\0\0\0", 6);
    frame(kSettings, 0, 0, settings);
  }
  explicit RawCall(int port) : RawCall(port, Window::kOpen) {}

  using Headers = std::vector<std::pair<std::string, std::string>>;

  void head(std::string_view path, const Headers& more = {}, bool is_end = false) {
    std::string block = header(":method", "POST") + header(":scheme", "http") +
                        header(":path", path) + header(":authority", "test") +
                        header("content-type", "application/grpc") + header("te", "trailers");
    for (const auto& [name, value] : more) block += header(name, value);
    constexpr size_t kFrameMax = 16'384;
    const int end_stream = is_end ? 1 : 0;
    const auto last = [&](size_t at) { return at + kFrameMax >= block.size() ? kEndHeaders : 0; };
    frame(kHeaders, last(0) | end_stream, 1, block.substr(0, kFrameMax));
    for (size_t at = kFrameMax; at < block.size(); at += kFrameMax) {
      frame(kContinuation, last(at), 1, block.substr(at, kFrameMax));
    }
  }
  void data(std::string_view bytes, bool is_end = true) { frame(kData, is_end ? 1 : 0, 1, bytes); }
  // A whole message before its length.
  void message(std::string_view bytes, bool is_end = true) { data(prefixed(bytes), is_end); }
  void reset() { frame(kRstStream, 0, 1, std::string("\0\0\0\x08", 4)); }
  static std::string prefixed(std::string_view bytes) {
    return number(0, 1) + number(bytes.size(), 4) + std::string(bytes);
  }

  // The call's status, once it is over.
  int status(int limit_ms = 10'000) {
    for (;;) {
      const auto [type, payload] = read_frame(limit_ms);
      if (type < 0) return kNothing;
      if (type == kRstStream || type == kGoAway) return kReset;
      if (type == kData) body_ += payload;
      // gRPC writes its status in plain letters the first time: a name, a length, digits.
      const size_t at = type == kHeaders ? payload.find("grpc-status") : std::string::npos;
      if (at == std::string::npos) continue;
      return std::stoi(payload.substr(at + 12, static_cast<uint8_t>(payload[at + 11])));
    }
  }
  int descriptor() const { return socket_.descriptor(); }
  // What came of messages, each before its length.
  const std::string& body() const { return body_; }
  // Sends so many bytes of a message of `size` that is never whole, as far as we are let; whether
  // all of them went.
  bool send_of_endless(size_t size, size_t bytes) {
    frame(kData, 0, 1, number(0, 1) + number(size, 4));
    constexpr size_t kFrameMax = 16'384;
    int64_t initial = 65'535;  // what we may send, as HTTP/2 begins
    int64_t connection = initial - 5, stream = initial - 5;
    const std::string zeros(kFrameMax, '\0');
    while (bytes > 0) {
      const int64_t room = std::min(connection, stream);
      if (room <= 0) {
        const auto [type, payload, on] = read_whole_frame(2000);
        if (type < 0 || type == kRstStream || type == kGoAway) return false;
        if (type == kWindowUpdate) (on == 0 ? connection : stream) += value_of(payload, 0, 4);
        if (type != kSettings || payload.empty()) continue;
        frame(kSettings, 1, 0, "");  // they hold once we have said that we know
        for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
          constexpr int64_t kInitialWindow = 4;
          if (value_of(payload, at, 2) != kInitialWindow) continue;
          stream += value_of(payload, at + 2, 4) - initial;
          initial = value_of(payload, at + 2, 4);
        }
        continue;
      }
      const size_t part = std::min({bytes, kFrameMax, static_cast<size_t>(room)});
      frame(kData, 0, 1, std::string_view(zeros).substr(0, part));
      bytes -= part;
      connection -= static_cast<int64_t>(part);
      stream -= static_cast<int64_t>(part);
    }
    return true;
  }
  // Waits for something of the answer.
  bool answered() {
    for (auto got = read_frame(5000); got.first >= 0; got = read_frame(5000)) {
      if (got.first == kData) return true;
    }
    return false;
  }

 private:
  enum Type {
    kData = 0,
    kHeaders = 1,
    kRstStream = 3,
    kSettings = 4,
    kGoAway = 7,
    kWindowUpdate = 8,
    kContinuation = 9
  };
  static constexpr int kEndHeaders = 4;

  static std::string number(uint64_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 0xFF);
    return text;
  }
  // HPACK: a string of plain letters.
  static std::string plain(std::string_view text) {
    std::string out;
    size_t size = text.size();
    if (size < 127) return static_cast<char>(size) + std::string(text);
    out += static_cast<char>(127);
    for (size -= 127; size >= 128; size /= 128) out += static_cast<char>(size % 128 | 128);
    return out + static_cast<char>(size) + std::string(text);
  }
  static std::string header(std::string_view name, std::string_view value) {
    return std::string(1, '\0') + plain(name) + plain(value);
  }

  void frame(int type, int flags, int stream, std::string_view payload) {
    socket_.send(number(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
                 number(static_cast<uint64_t>(stream), 4) + std::string(payload));
  }
  static int64_t value_of(std::string_view bytes, size_t at, size_t count) {
    int64_t value = 0;
    for (const char c : bytes.substr(at, count)) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }
  struct Frame {
    int type = -1;
    std::string payload;
    int64_t stream = 0;
  };
  Frame read_whole_frame(int limit_ms) {
    if (!fill(9, limit_ms)) return {};
    const auto size = static_cast<size_t>(value_of(bytes_, 0, 3));
    if (!fill(9 + size, limit_ms)) return {};
    Frame frame{static_cast<uint8_t>(bytes_[3]), bytes_.substr(9, size), value_of(bytes_, 5, 4)};
    bytes_.erase(0, 9 + size);
    return frame;
  }
  std::pair<int, std::string> read_frame(int limit_ms) {
    Frame frame = read_whole_frame(limit_ms);
    return {frame.type, std::move(frame.payload)};
  }
  bool fill(size_t size, int limit_ms) {
    while (bytes_.size() < size) {
      const std::string more = socket_.read_some_bytes(limit_ms);
      if (more.empty()) return false;
      bytes_ += more;
    }
    return true;
  }

  net::TestSocket socket_;
  std::string bytes_;
  std::string body_;
};

// protobuf: field `number` is this text.
std::string field(int number, std::string_view text) {
  return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(text.size())) +
         std::string(text);
}

class HostileGrpc : public Hostile {
 protected:
  // gRPC's own threads and descriptors come and go as it likes.
  HostileGrpc() : Hostile(Counts::kBooksOnly) {}

  void SetUp() override {
    Hostile::SetUp();
    open_listener({});
  }
  void TearDown() override {
    listener_.reset();
    Hostile::TearDown();
  }
  void open_listener(const GrpcListener::Options& options) {
    listener_ = std::make_unique<GrpcListener>(fixture_->server().services(), fixture_->log());
    ASSERT_TRUE(listener_->open(options).ok());
  }
  int port() const { return listener_->port(); }

  // The status of one call with this message.
  int called(std::string_view path, std::string_view message,
             const RawCall::Headers& headers = {}) {
    RawCall call(port());
    call.head(path, headers);
    call.message(message);
    return call.status();
  }
  // And the listener still answers.
  void expect_well() { EXPECT_EQ(called(kTokenize, field(2, "hi")), kOk); }

  std::unique_ptr<GrpcListener> listener_;
};

TEST_F(HostileGrpc, GR_00_TheFramesAreUnderstood) {
  expect_well();
  EXPECT_EQ(called(kGenerate, field(2, "hi")), kOk);
}

TEST_F(HostileGrpc, GR_01_MethodsThatAreNone) {
  for (const char* path :
       {"/pelton.v1.Inference/Nothing", "/nothing/Nothing", "/", "Generate", ""}) {
    const int status = called(path, field(2, "hi"));
    EXPECT_TRUE(status == kUnimplemented || status == kReset) << path << " " << status;
  }
  EXPECT_EQ(called("/pelton.v1.Inference/Nothing", ""), kUnimplemented);
  expect_well();
}

TEST_F(HostileGrpc, GR_02_MessagesThatAreNone) {
  for (const char* path : {kGenerate, kTokenize, "/pelton.v1.Inference/Embed"}) {
    for (const std::string& bad :
         {std::string("\xFF\xFF\xFF"), std::string("\x12\x7Fx"), std::string("\x07"),
          std::string("\x12\xFF\xFF\xFF\xFF\x0F"), std::string(1000, '\x80')}) {
      EXPECT_EQ(called(path, bad), kInvalidArgument) << path;
    }
  }
  expect_well();
}

// Each is answered by a chunk of turn 0, and what is left is heard: the session ends well.
TEST_F(HostileGrpc, GR_02_ASessionsMessagesThatAreNone) {
  for (const std::string& bad : {std::string("\xFF\xFF\xFF"), std::string("\x0A\x7Fx"),
                                 std::string("\x0A\x02\x12\x7F"), std::string(1000, '\x80')}) {
    EXPECT_EQ(called("/pelton.v1.Inference/Session", bad), kOk);
  }
  expect_well();
}

TEST_F(HostileGrpc, GR_03_LengthsThatAreNotBelieved) {
  const int64_t before = telemetry::process_usage().resident_bytes;
  for (const char* length : {"\xFF\xFF\xFF\xFF", "\x7F\xFF\xFF\xFF", "\x02\x00\x00\x01"}) {
    RawCall call(port());
    call.head(kGenerate);
    call.data(std::string(1, '\0') + std::string(length, 4) + "abc");
    const int status = call.status();
    EXPECT_TRUE(status > 0 || status == kReset) << status;
  }
  EXPECT_LT(telemetry::process_usage().resident_bytes - before, int64_t{64} << 20);
  expect_well();
}

// Nor may many together take what each alone may: of all messages on their way so much is kept.
TEST_F(HostileGrpc, GR_03_ManyLongMessagesHaveABoundTogether) {
  constexpr size_t kCalls = 12, kEach = size_t{15} << 20;
  {
    RawCall alone(port());
    alone.head(kTokenize);
    EXPECT_TRUE(alone.send_of_endless(size_t{16} << 20, kEach)) << "that is allowed";
  }
  listener_.reset();
  open_listener({.memory_bytes_max = size_t{32} << 20});
  const int64_t before = telemetry::process_usage().resident_bytes;
  std::vector<std::unique_ptr<RawCall>> calls;
  for (size_t i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<RawCall>(port()));
    calls.back()->head(kTokenize);
    static_cast<void>(calls.back()->send_of_endless(size_t{16} << 20, kEach));
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what is freed
  EXPECT_LT(telemetry::process_usage().resident_bytes - before, int64_t{96} << 20)
      << "of " << (kCalls * kEach >> 20) << " MiB that were sent";
#endif
  calls.clear();
  EXPECT_TRUE(comes_true([&] { return called(kTokenize, field(2, "hi")) == kOk; }));
}

TEST_F(HostileGrpc, GR_04_CompressionThatIsNotKnown) {
  RawCall call(port());
  call.head(kGenerate, {{"grpc-encoding", "nothing-known"}});
  std::string message = RawCall::prefixed(field(2, "hi"));
  message[0] = 1;
  call.data(message);
  // gRPC's library takes a coding that it does not know for none, and the message as it is.
  const int status = call.status();
  EXPECT_TRUE(status == kOk || status == kUnimplemented) << status;
  // Of those that it knows: what cannot be decompressed is no message.
  RawCall broken(port());
  broken.head(kGenerate, {{"grpc-encoding", "gzip"}});
  broken.data(message);
  EXPECT_NE(broken.status(), kOk);
  expect_well();
}

TEST_F(HostileGrpc, GR_05_TimeoutsThatAreNone) {
  EXPECT_EQ(called(kGenerate, field(2, "endless"), {{"grpc-timeout", "0n"}}), kDeadlineExceeded);
  EXPECT_EQ(called(kGenerate, field(2, "hi"), {{"grpc-timeout", "99999999H"}}), kOk);
  // gRPC's library takes one that it cannot read for none.
  for (const char* timeout : {"abc", "-5S", "1", "", "999999999999S", "1.5S"}) {
    const int status = called(kGenerate, field(2, "hi"), {{"grpc-timeout", timeout}});
    EXPECT_TRUE(status == kOk || status == kInvalidArgument) << timeout << " " << status;
  }
  expect_well();
}

TEST_F(HostileGrpc, GR_06_MetadataOfAMebibyte) {
  RawCall call(port());
  call.head(kGenerate, {{"x", std::string(1 << 20, 'a')}});
  call.message(field(2, "hi"));
  const int status = call.status();
  EXPECT_TRUE(status == kResourceExhausted || status == kReset) << status;
  RawCall many(port());
  many.head(kGenerate, RawCall::Headers(20'000, {"x-many", "yes"}));
  many.message(field(2, "hi"));
  const int of_many = many.status();
  EXPECT_TRUE(of_many == kResourceExhausted || of_many == kReset) << of_many;
  expect_well();
}

TEST_F(HostileGrpc, GR_07_LeavingFreesThePlace) {
  for (int i = 0; i < 20; ++i) {
    RawCall call(port());
    call.head(kGenerate);
    call.message(field(2, "endless"));
    EXPECT_TRUE(call.answered());
    if (i % 2 == 0) call.reset();  // the other half just goes
  }
  EXPECT_TRUE(comes_true([&] { return fixture_->engine().ledger().clean(); }));
}

TEST_F(HostileGrpc, GR_08_MessagesInMessages) {
  // Groups of an unknown field, the only thing that may nest.
  EXPECT_EQ(called(kGenerate, std::string(101, '\x7B') + std::string(101, '\x7C')),
            kInvalidArgument);
  EXPECT_EQ(called(kGenerate, std::string(16'000, '\x7B')), kInvalidArgument);
  EXPECT_EQ(called(kGenerate, field(2, "hi") + std::string(50, '\x7B') + std::string(50, '\x7C')),
            kOk);
}

TEST_F(HostileGrpc, GR_09_Health) {
  constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
  EXPECT_EQ(called(kHealth, field(1, "no.such.Service")), kNotFound);
  const auto state = [&] {
    RawCall call(port());
    call.head(kHealth);
    call.message(field(1, "pelton.v1.Inference"));
    EXPECT_EQ(call.status(), kOk);
    return call.body();
  };
  EXPECT_EQ(state(), RawCall::prefixed("\x08\x01")) << "SERVING";
  listener_->set_serving(false);
  EXPECT_EQ(state(), RawCall::prefixed("\x08\x02")) << "NOT_SERVING";
}

TEST_F(HostileGrpc, GR_10_CallsWithoutAMessage) {
  for (const char* path : {kGenerate, kTokenize}) {
    RawCall call(port());
    call.head(path, {}, true);
    EXPECT_EQ(call.status(), kInvalidArgument) << path;
    RawCall half(port());
    half.head(path);
    half.data(std::string("\0\0\0\0\x09", 5) + "abc");  // nine were said
    const int status = half.status();
    EXPECT_TRUE(status > 0 || status == kReset) << status;
  }
  expect_well();
}

TEST_F(HostileGrpc, GR_11_TextThatIsNoUtf8) {
  EXPECT_EQ(called(kGenerate, field(2, "\xFF\xFE")), kInvalidArgument);
  EXPECT_EQ(called(kTokenize, field(1, "\xC0\xAF")), kInvalidArgument);
}

// It says nothing, and nothing is said to it.
TEST_F(HostileGrpc, FT_06_AVanishedClientIsNoticed) {
  listener_.reset();
  open_listener({.stall_time_max = std::chrono::milliseconds(2000)});
  const auto sockets = [] { return telemetry::process_usage().descriptors["socket"]; };
  const int before = sockets();
  RawCall call(port());
  EXPECT_TRUE(comes_true([&] { return sockets() == before + 2; })) << "both ends are ours";
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // it has been seen
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop_all};
  ASSERT_EQ(
      ::setsockopt(call.descriptor(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
  EXPECT_TRUE(comes_true([&] { return sockets() == before + 1; }, 10'000));
}

// H2-08: a client that asks and never takes an answer.
TEST_F(HostileGrpc, FT_05_AReaderThatTakesNothingIsCutOff) {
  listener_.reset();
  open_listener({.stall_time_max = std::chrono::milliseconds(300)});
  std::vector<std::unique_ptr<RawCall>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<RawCall>(port(), RawCall::Window::kShut));
    calls.back()->head(kGenerate);
    calls.back()->message(field(2, "endless"));
  }
  for (const auto& call : calls) {
    const int status = call->status();
    EXPECT_TRUE(status == kReset || status == kCancelled) << status;
  }
  EXPECT_TRUE(comes_true([&] { return fixture_->engine().ledger().clean(); }));
  expect_well();
}

// Connections on which nobody asks for anything, or only with a wrong key, do not last; one that
// health is asked on does, and so does a caller's.
TEST_F(HostileGrpc, E2_WhoHasNoCallIsClosed) {
  listener_.reset();
  open_listener({.first_call_time_max = std::chrono::milliseconds(400)});
  const net::TestSocket silent(port());
  const RawCall idle(port());
  RawCall healthy(port());
  healthy.head("/grpc.health.v1.Health/Check");
  healthy.message("");
  EXPECT_EQ(healthy.status(), kOk);
  RawCall caller(port());
  caller.head(kTokenize);
  caller.message(field(2, "hello"));
  EXPECT_EQ(caller.status(), kOk);
  EXPECT_TRUE(comes_true([&] { return listener_->connection_count() == 2; }, 10'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(1'000));
  EXPECT_EQ(listener_->connection_count(), 2);
  expect_well();
}

TEST(HostileGrpcKeys, E2_AWrongKeyIsNoClaim) {
  ServerFixture::Options options;
  options.server.keys.add("secret");
  ServerFixture fixture(R"({"rules": [{"when": "", "then": "<|return|>"}]})", std::move(options));
  GrpcListener listener(fixture.server().services(), fixture.log());
  ASSERT_TRUE(listener.open({.first_call_time_max = std::chrono::milliseconds(400)}).ok());
  RawCall stranger(listener.port());
  stranger.head(kTokenize, {{"authorization", "Bearer guess"}});
  stranger.message(field(2, "hello"));
  EXPECT_EQ(stranger.status(), kUnauthenticated);
  RawCall caller(listener.port());
  caller.head(kTokenize, {{"authorization", "Bearer secret"}});
  caller.message(field(2, "hello"));
  EXPECT_EQ(caller.status(), kOk);
  EXPECT_TRUE(comes_true([&] { return listener.connection_count() == 1; }, 10'000));
}

TEST_F(HostileGrpc, E2_AnIdleCallerIsClosedLater) {
  listener_.reset();
  open_listener({.idle_time_max = std::chrono::milliseconds(500)});
  RawCall caller(port());
  caller.head(kTokenize);
  caller.message(field(2, "hello"));
  EXPECT_EQ(caller.status(), kOk);
  EXPECT_EQ(listener_->connection_count(), 1);
  EXPECT_TRUE(comes_true([&] { return listener_->connection_count() == 0; }, 15'000));
}

TEST_F(HostileGrpc, E2_ManyThatAskForNothingMakeRoom) {
  listener_.reset();
  open_listener({.connections_max = 8});
  std::vector<std::unique_ptr<RawCall>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<RawCall>(port()));
    EXPECT_LE(listener_->connection_count(), 8);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1'200));
  for (int i = 0; i < 5; ++i) {
    RawCall caller(port());
    caller.head(kTokenize);
    caller.message(field(2, "hello"));
    EXPECT_EQ(caller.status(), kOk);
  }
  expect_well();
}

}  // namespace
}  // namespace pelton::server
