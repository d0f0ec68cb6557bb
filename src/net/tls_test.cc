// HTTPS end to end over loopback, and what comes to its port that is none.
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/clock.h"
#include "base/machine.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/test_certificates.h"
#include "net/test_socket.h"
#include "net/tls_identity.h"
#include "net/tls_trust.h"
#include "net/websocket.h"

namespace pelton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

// A blocking TLS client that can do what a well-behaved one would not.
class RawTls {
 public:
  RawTls(int port, int version_max) : socket_(port), context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_security_level(context_, 0);
    SSL_CTX_set_min_proto_version(context_, 0);
    if (version_max != 0) SSL_CTX_set_max_proto_version(context_, version_max);
    session_ = SSL_new(context_);
    SSL_set_fd(session_, socket_.fd());
    connected_ = SSL_connect(session_) == 1;
    ERR_clear_error();
  }
  ~RawTls() {
    SSL_free(session_);
    SSL_CTX_free(context_);
  }
  RawTls(const RawTls&) = delete;
  RawTls& operator=(const RawTls&) = delete;

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(session_); }
  void send(std::string_view bytes) {
    EXPECT_EQ(SSL_write(session_, bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }
  std::string read_until(std::string_view part) {
    std::string got;
    char bytes[4096];
    while (got.find(part) == std::string::npos) {
      const int count = SSL_read(session_, bytes, sizeof bytes);
      if (count <= 0) break;
      got.append(bytes, static_cast<size_t>(count));
    }
    return got;
  }
  bool ask_for_new_keys() { return SSL_key_update(session_, SSL_KEY_UPDATE_REQUESTED) == 1; }
  bool said_goodbye() { return (SSL_get_shutdown(session_) & SSL_RECEIVED_SHUTDOWN) != 0; }
  TestSocket& socket() { return socket_; }

 private:
  TestSocket socket_;
  SSL_CTX* context_;
  SSL* session_ = nullptr;
  bool connected_ = false;
};

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    const TestCertificates::Pair pair = certificates_.issue_server();
    files_ = {.certificate = pair.certificate, .key = pair.key, .client_ca = {}};
    options_.port = 0;
  }

  void start() {
    Result<std::shared_ptr<TlsIdentity>> loaded = TlsIdentity::load(files_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    identity_ = *loaded;
    options_.tls = identity_;
    server_.emplace(
        options_,
        [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          answer(std::move(request), std::move(exchange));
        },
        log_);
    const Result<void> started = server_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    trust({.ca = certificates_.ca_file(), .certificate = {}, .key = {}});
  }

  void trust(const TlsTrust::Files& files) {
    Result<std::shared_ptr<const TlsTrust>> loaded = TlsTrust::load(files);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    trust_ = *loaded;
  }

  void answer(HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (request.path == "/socket") {
      Exchange::WebSocket socket;
      // Held here and not by its own callback: a WebSocket's are let go with its connection.
      socket.on_message = [&held = *exchange](std::string message) {
        held.write("heard " + message);
      };
      socket.on_drain = [] {};
      held_ = exchange;
      return exchange->accept_websocket({}, std::move(socket));
    }
    if (request.path == "/endless") {
      exchange->on_closed([this] { ++gone_; });
      exchange->start_stream(200, {});
      return tick(exchange);
    }
    HttpResponse response;
    response.headers.add("X-Remote", request.remote);
    response.body = request.method + " " + request.body;
    exchange->send(std::move(response));
  }
  static void tick(const std::shared_ptr<Exchange>& exchange) {
    if (exchange->closed()) return;
    exchange->write("data: tick\n\n");
    exchange->post_after(milliseconds(2), [exchange] { tick(exchange); });
  }

  HttpCall call(std::string method, std::string target) {
    HttpCall call;
    call.method = std::move(method);
    call.host = "localhost";
    call.port = server_->port();
    call.target = std::move(target);
    call.tls = true;
    call.trust = trust_;
    return call;
  }
  std::string problem_of(const Result<HttpResponse>& response) {
    return response.ok() ? "fine" : response.error().message;
  }
  static bool soon(const std::function<bool()>& condition) {
    const auto end = steady_clock::now() + milliseconds(5000);
    while (!condition()) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }

  TestCertificates certificates_;
  TlsIdentity::Files files_;
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  HttpServer::Options options_;
  std::shared_ptr<TlsIdentity> identity_;
  std::shared_ptr<const TlsTrust> trust_;
  std::atomic<int> gone_{0};
  std::shared_ptr<Exchange> held_;  // net thread; outlives the server
  std::optional<HttpServer> server_;
};

TEST_F(Tls, AnswersAndKeepsConnections) {
  start();
  HttpClient client({});
  std::string remote;
  for (int i = 0; i < 4; ++i) {
    HttpCall post = call("POST", "/x");
    post.body = "body" + std::to_string(i);
    const Result<HttpResponse> response = http_fetch(client, std::move(post));
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->body, "POST body" + std::to_string(i));
    if (i > 0) {
      EXPECT_EQ(response->headers.get("X-Remote"), remote);
    }
    remote = response->headers.get("X-Remote");
  }
  HttpCall by_address = call("GET", "/x");
  by_address.host = "127.0.0.1";
  EXPECT_EQ(problem_of(http_fetch(client, std::move(by_address))), "fine");
  EXPECT_EQ(server_->handshakes_failed(), 0);
}

TEST_F(Tls, LargeBodiesBothWays) {
  start();
  HttpCall post = call("POST", "/x");
  std::mt19937 random(7);
  for (int i = 0; i < 12'000'000; ++i) post.body += static_cast<char>('a' + random() % 26);
  const std::string sent = post.body;
  const Result<HttpResponse> response = http_fetch(std::move(post));
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->body, "POST " + sent);
}

// The kernel's buffer is full most of the time: records go out in parts.
TEST_F(Tls, ASlowReaderGetsEveryByte) {
  start();
  RawTls client(server_->port(), 0);
  ASSERT_TRUE(client.connected());
  const std::string body(3'000'000, 'b');
  std::thread writer([&] {
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + body);
  });
  writer.join();
  std::this_thread::sleep_for(milliseconds(100));
  const std::string got = client.read_until(body);
  EXPECT_NE(got.find("POST " + body), std::string::npos);
}

TEST_F(Tls, StreamsAndSeesThatItsReaderIsGone) {
  start();
  for (const bool politely : {false, true}) {
    HttpClient client({});
    std::promise<void> some;
    std::atomic<int> pieces{0};
    HttpCallEvents events;
    events.on_body = [&](std::string_view) {
      if (++pieces == 3) some.set_value();
    };
    const HttpClient::CallId id = client.start(call("GET", "/endless"), std::move(events));
    some.get_future().wait();
    const int gone_before = gone_;
    if (politely) client.cancel(id);
    if (!politely) {
      RawTls other(server_->port(), 0);
      other.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
      other.read_until("tick");
      other.socket().reset();
    }
    EXPECT_TRUE(soon([&] { return gone_ > gone_before; }));
  }
}

TEST_F(Tls, CarriesWebSockets) {
  start();
  RawTls client(server_->port(), 0);
  client.send(
      "GET /socket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  EXPECT_NE(client.read_until("\r\n\r\n").find("101 "), std::string::npos);
  client.send(std::string("\x81\x85\0\0\0\0hello", 11));  // a text, masked with zeros
  EXPECT_NE(client.read_until("heard hello").find("heard hello"), std::string::npos);
}

TEST_F(Tls, NewKeysAmidAConnection) {
  start();
  RawTls client(server_->port(), TLS1_3_VERSION);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client.ask_for_new_keys());
    client.send(kGet);
    EXPECT_NE(client.read_until("GET ").find("200 OK"), std::string::npos);
  }
}

TEST_F(Tls, GoodbyesAreSaid) {
  options_.idle_time_max = milliseconds(50);
  options_.first_byte_time_max = milliseconds(300);
  start();
  RawTls client(server_->port(), 0);
  client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  client.read_until("never");
  EXPECT_TRUE(client.said_goodbye());
  RawTls idle(server_->port(), 0);
  idle.read_until("never");
  EXPECT_TRUE(idle.said_goodbye());
}

TEST_F(Tls, SpeaksTls12And13OnlyAndAskedForHttp11) {
  start();
  EXPECT_EQ(RawTls(server_->port(), 0).version(), "TLSv1.3");
  EXPECT_EQ(RawTls(server_->port(), TLS1_2_VERSION).version(), "TLSv1.2");
  EXPECT_FALSE(RawTls(server_->port(), TLS1_1_VERSION).connected());
  EXPECT_FALSE(RawTls(server_->port(), TLS1_VERSION).connected());
  // SSLv3's hello, which no library of today would write.
  TestSocket old(server_->port());
  old.send(std::string("\x16\x03\0\0\x2d\x01\0\0\x29\x03\0", 11) + std::string(32, 'r') +
           std::string("\0\0\x02\0\x2f\x01\0", 7));
  const std::string heard = old.read_all();
  EXPECT_TRUE(old.closed_by_peer());
  EXPECT_TRUE(heard.empty() || heard[0] == 0x15) << heard;  // an alert
  EXPECT_TRUE(soon([&] { return server_->handshakes_failed() == 3; }));
}

TEST_F(Tls, ClientsBelieveOnlyWhomTheyTrustUnderTheRightName) {
  const TestCertificates::Pair named = certificates_.issue("named", "DNS:localhost");
  files_.certificate = named.certificate;
  files_.key = named.key;
  start();
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
  HttpCall wrong_name = call("GET", "/x");
  wrong_name.host = "127.0.0.1";
  EXPECT_NE(problem_of(http_fetch(std::move(wrong_name))).find("IP address mismatch"),
            std::string::npos);
  trust({});  // the system's authorities
  EXPECT_NE(problem_of(http_fetch(call("GET", "/x"))).find("certificate verify failed"),
            std::string::npos);
  HttpCall plain = call("GET", "/x");
  plain.tls = false;
  const Result<HttpResponse> told = http_fetch(std::move(plain));
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_EQ(told->status, 400);
  EXPECT_NE(told->body.find("https://"), std::string::npos);
}

TEST_F(Tls, ClientsSayWhyAPlainServerWillNotDo) {
  start();
  HttpServer plain(
      {.port = 0},
      [](HttpRequest, std::shared_ptr<Exchange> exchange) { exchange->send({.status = 204}); },
      log_);
  ASSERT_TRUE(plain.start().ok());
  HttpCall get = call("GET", "/x");
  get.port = plain.port();
  const Result<HttpResponse> response = http_fetch(std::move(get));
  EXPECT_EQ(response.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(problem_of(response).find("no TLS with localhost"), std::string::npos)
      << problem_of(response);
  // And the server has closed that connection, and is well.
  TestSocket hello(plain.port());
  hello.send(std::string("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 11) + std::string(505, 'h'));
  EXPECT_TRUE(hello.wait_closed());
  TestSocket good(plain.port());
  good.send(kGet);
  EXPECT_NE(good.read_response().find("204"), std::string::npos);
}

TEST_F(Tls, ClientsMayBeAskedForCertificates) {
  files_.client_ca = certificates_.ca_file();
  start();
  EXPECT_NE(problem_of(http_fetch(call("GET", "/x"))).find("certificate required"),
            std::string::npos)
      << problem_of(http_fetch(call("GET", "/x")));
  const TestCertificates::Pair good = certificates_.issue("client", "");
  trust({certificates_.ca_file(), good.certificate, good.key});
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
  TestCertificates others;
  const TestCertificates::Pair stranger = others.issue("stranger", "");
  trust({certificates_.ca_file(), stranger.certificate, stranger.key});
  EXPECT_NE(problem_of(http_fetch(call("GET", "/x"))), "fine");
  EXPECT_TRUE(soon([&] { return server_->handshakes_failed() >= 2; }));
}

TEST_F(Tls, NewCertificatesAreForNewConnections) {
  start();
  RawTls old(server_->port(), 0);
  ASSERT_TRUE(old.connected());
  TestCertificates others;
  const TestCertificates::Pair pair = others.issue_server();
  ASSERT_TRUE(identity_->reload({pair.certificate, pair.key, {}}).ok());
  old.send(kGet);
  EXPECT_NE(old.read_until("GET ").find("200 OK"), std::string::npos);
  EXPECT_NE(problem_of(http_fetch(call("GET", "/x"))), "fine");
  trust({others.ca_file(), {}, {}});
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
}

TEST_F(Tls, BadFilesAreNamedAndChangeNothing) {
  start();
  const TlsIdentity::Files good = files_;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string file = certificates_.folder() + "/" + name;
    std::ofstream(file) << text;
    return file;
  };
  const auto refused = [&](const TlsIdentity::Files& files, const std::string& file,
                           const std::string& why) {
    const Result<void> reloaded = identity_->reload(files);
    ASSERT_FALSE(reloaded.ok());
    EXPECT_EQ(reloaded.error().code, ErrorCode::kBadConfig);
    EXPECT_NE(reloaded.error().message.find(file), std::string::npos) << reloaded.error().message;
    EXPECT_NE(reloaded.error().message.find(why), std::string::npos) << reloaded.error().message;
  };
  const std::string empty = write("empty.pem", "");
  const std::string torn = write("torn.pem", "-----BEGIN CERTIFICATE-----\nMIIB");
  const std::string locked = certificates_.folder() + "/locked.key";
  const std::string command =
      "openssl pkey -in " + good.key + " -aes256 -passout pass:x -out " + locked + " 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  refused({"/nowhere.pem", good.key, {}}, "/nowhere.pem", "");
  refused({empty, good.key, {}}, empty, "holds no certificate");
  refused({torn, good.key, {}}, torn, "");
  refused({good.certificate, empty, {}}, empty, "holds no private key");
  refused({good.certificate, good.certificate, {}}, good.certificate, "holds no private key");
  refused({good.certificate, locked, {}}, locked, "passphrase");
  refused({good.certificate, certificates_.issue("other", "").key, {}}, "other.key",
          "is not the key of");
  refused({good.certificate, good.key, empty}, empty, "holds no certificate");
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
  EXPECT_NEAR(static_cast<double>(identity_->expires_s()),
              static_cast<double>(clock_.unix_ms()) / 1000 + 3600, 60);
}

// HT-19.
TEST_F(Tls, ThousandsOfHalfHandshakesEndAtTheirDeadline) {
  constexpr int kCount = 5000;
  if (base::raise_descriptor_limit() < 2 * kCount + 100) GTEST_SKIP() << "needs 10 100 descriptors";
  options_.handshake_time_max = milliseconds(1500);
  options_.connections_max = 2 * kCount;
  start();
  const std::string hello = std::string("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 11);
  std::vector<std::unique_ptr<TestSocket>> halves;
  for (int i = 0; i < kCount; ++i) {
    halves.push_back(std::make_unique<TestSocket>(server_->port()));
    halves.back()->send(hello.substr(0, static_cast<size_t>(i) % (hello.size() + 1)));
  }
  // Amid them a good client is answered.
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
  EXPECT_TRUE(soon([&] { return server_->handshakes_failed() == kCount; }))
      << server_->handshakes_failed();
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
}

TEST_F(Tls, NoiseInsteadOfAHandshake) {
  const unsigned seed = 20'240'817;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  options_.handshake_time_max = milliseconds(200);
  start();
  for (int i = 0; i < 200; ++i) {
    TestSocket client(server_->port());
    std::string noise(random() % 600, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    if (i % 2 == 0) noise = std::string("\x16\x03\x01", 3) + noise;
    client.send(noise);
    if (i % 3 == 0) client.reset();
  }
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 0; }));
  EXPECT_EQ(problem_of(http_fetch(call("GET", "/x"))), "fine");
}

TEST_F(Tls, StopsAmidHandshakes) {
  start();
  TestSocket half(server_->port());
  half.send("\x16");
  EXPECT_TRUE(soon([&] { return server_->connection_count() == 1; }));
  server_->stop(milliseconds(5000));
  EXPECT_TRUE(half.wait_closed());
}

}  // namespace
}  // namespace pelton::net
