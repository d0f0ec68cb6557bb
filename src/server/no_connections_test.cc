// AP-31: whatever a request names, the server connects to nobody. Every connect() of any of its
// threads would be caught: a filter in the kernel, which threads inherit, turns it into a signal.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <future>
#include <thread>

#include <arpa/inet.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/catalogue_rows.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"}]})";

std::atomic<int> connects{0};

void count_connect(int) {
  ++connects;
}

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#endif

// From here on this thread, and those it starts, raise SIGSYS instead of connecting.
bool trap_connects() {
  struct sigaction action = {};
  action.sa_handler = count_connect;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_connect, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void try_to_connect(int port) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  close(made);
}

// Bodies that name something elsewhere, for each path.
std::vector<std::pair<std::string, std::string>> requests(const std::string& url) {
  const std::string quoted = json_text(url);
  const auto content = [](const std::string& part) {
    return R"([{"role":"user","content":[)" + part + "]}]";
  };
  const std::string image = R"({"type":"image_url","image_url":{"url":)" + quoted + "}}";
  const std::string schema = R"({"$ref":)" + quoted + "}";
  return {
      {"/v1/chat/completions", R"({"messages":)" + content(image) + "}"},
      {"/v1/chat/completions",
       R"({"messages":)" +
           content(R"({"type":"file","file":{"file_id":"f","file_data":)" + quoted + "}}") + "}"},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",)"
       R"("json_schema":{"name":"n","schema":)" +
           schema + "}}}"},
      {"/v1/chat/completions/render", R"({"messages":)" + content(image) + "}"},
      {"/tokenize", R"({"messages":)" + content(image) + "}"},
      {"/v1/responses",
       R"({"input":)" + content(R"({"type":"input_image","image_url":)" + quoted + "}") + "}"},
      {"/v1/responses",
       R"({"input":)" + content(R"({"type":"input_file","file_url":)" + quoted + "}") + "}"},
      {"/v1/messages",
       R"({"max_tokens":9,"messages":)" +
           content(R"({"type":"image","source":{"type":"url","url":)" + quoted + "}}") + "}"},
      {"/v1/messages",
       R"({"max_tokens":9,"messages":)" +
           content(R"({"type":"document","source":{"type":"url","url":)" + quoted + "}}") + "}"},
      {"/v1/embeddings", R"({"input":[)" + image + "]}"},
  };
}

TEST(NoConnections, AP31_whatever_is_named_nothing_is_fetched) {
  std::promise<ServerFixture*> made;
  std::promise<void> done;
  std::promise<bool> trapped;
  std::thread owner([&] {
    trapped.set_value(trap_connects());
    ServerFixture fixture(kScript, {});
    made.set_value(&fixture);
    done.get_future().get();
    try_to_connect(1);  // so that this test can fail
  });
  const bool is_trapped = trapped.get_future().get();
  ServerFixture* const fixture = made.get_future().get();
  net::HttpClient client({});
  const int port = fixture->http().port();
  for (const std::string& url :
       {"http://127.0.0.1:" + std::to_string(port) + "/x.png", std::string("file:///etc/passwd"),
        std::string("http:\\\\@host"), std::string("http://169.254.169.254/latest/meta-data"),
        std::string("data:image/png;base64,AAAA"), std::string("https://localhost/x")}) {
    for (const auto& [path, body] : requests(url)) {
      const Result<net::HttpResponse> response =
          net::http_fetch(client, fixture->call("POST", path, body));
      ASSERT_TRUE(response.ok());
      EXPECT_EQ(response->status, 400) << path << " " << body;
    }
  }
  // Tools of a server elsewhere are left out, and nobody asks it for them.
  const Result<net::HttpResponse> tools = net::http_fetch(
      client, fixture->call("POST", "/v1/responses",
                            R"({"input":"x","tools":[{"type":"mcp","server_label":"s",)"
                            R"("server_url":"http://127.0.0.1:1/"}]})"));
  ASSERT_TRUE(tools.ok());
  EXPECT_EQ(tools->status, 200);
  EXPECT_EQ(connects, 0);
  done.set_value();
  owner.join();
  if (!is_trapped) GTEST_SKIP() << "no filter may be set here: " << std::strerror(errno);
  EXPECT_EQ(connects, 1) << "the filter sees one that is made";
}

}  // namespace
}  // namespace pelton::server
