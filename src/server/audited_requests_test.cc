#include "server/audited_requests.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "access/test_audit_log.h"
#include "access/test_exchange.h"
#include "server/routes.h"

namespace pelton::server {
namespace {

// Of each row that is not only read: it changes the server, and is a line of the audit log, or it
// stands here, since it computes or is its caller's own business. A new row is in neither.
const std::set<std::string_view> kCallersOwn = {"/v1/chat/completions",
                                                "/v1/responses",
                                                "/v1/responses/input_tokens",
                                                "/v1/responses/*",
                                                "/v1/chat/completions/input_tokens",
                                                "/v1/chat/completions/control",
                                                "/v1/completions",
                                                "/v1/messages",
                                                "/v1/messages/count_tokens",
                                                "/v1/chat/completions/render",
                                                "/v1/completions/render",
                                                "/inference/v1/generate",
                                                "/api/chat",
                                                "/api/generate",
                                                "/api/embed",
                                                "/api/show",
                                                "/completion",
                                                "/apply-template",
                                                "/generate",
                                                "/generate_stream",
                                                "/v1/images/*",
                                                "/v1/videos",
                                                "/v1/videos/*",
                                                "/v1/realtime/*",
                                                "/v1/moderations",
                                                "/v1/audio/transcriptions",
                                                "/v1/audio/translations",
                                                "/v1/audio/speech",
                                                "/v1/files",
                                                "/v1/files/*",
                                                "/v1/chains/*",
                                                "/v1/batches",
                                                "/v1/batches/*",
                                                "/v1/embeddings",
                                                "/pooling",
                                                "/v2/embed",
                                                "/v1/rerank",
                                                "/v2/rerank",
                                                "/rerank",
                                                "/v1/reranking",
                                                "/reranking",
                                                "/v1/score",
                                                "/score",
                                                "/embed",
                                                "/embed_all",
                                                "/embed_sparse",
                                                "/similarity",
                                                "/predict",
                                                "/classify",
                                                "/tokenize",
                                                "/detokenize",
                                                "/invocations",
                                                "/ping"};

TEST(AuditedRequests, EachRowOfTheTableIsALineOrItsCallersOwn) {
  std::set<std::string_view> changing;
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.method == "GET") continue;
    EXPECT_NE(changes_server(endpoint), kCallersOwn.contains(endpoint.path))
        << endpoint.method << " " << endpoint.path
        << ": is it to be in the audit log (server/audited_requests.h)?";
    if (changes_server(endpoint)) changing.insert(endpoint.path);
  }
  EXPECT_EQ(changing, (std::set<std::string_view>{"/sleep", "/wake_up", "/reset_prefix_cache",
                                                  "/erase_tenant", "/v1/load_lora_adapter",
                                                  "/v1/unload_lora_adapter"}));
}

TEST(AuditedRequests, ACommandThatNobodyHasThoughtOfIsALine) {
  access::TestAuditLog audit;
  const auto beneath = std::make_shared<access::TestExchange>();
  const auto answer = [&](std::string method, std::string path, std::string body) {
    const net::HttpRequest request{.method = std::move(method),
                                   .path = std::move(path),
                                   .body = std::move(body),
                                   .remote = "127.0.0.1:9"};
    audited_command(request, beneath, "an operator", audit.log.get())->send({.status = 200});
  };
  answer("POST", "/admin/what_nobody_has_thought_of", "");
  answer("POST", "/admin/prefixes", R"({"model":"m","prompt":"a canary in its cage"})");
  answer("GET", "/admin/models", "");
  const std::vector<access::AuditEvent> events = audit.close();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].target, "/admin/what_nobody_has_thought_of");
  EXPECT_EQ(events[1].detail, std::vector<std::string>{"model = m"}) << "no text of a prompt";
}

TEST(AuditedRequests, OfThePublicListenerOnlyWhatChangesTheServer) {
  access::TestAuditLog audit;
  base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kError});
  Services::Options options;
  options.root_path = "/models/one";
  const Services services(options, clock, log);
  const auto beneath = std::make_shared<access::TestExchange>();
  const auto is_audited = [&](std::string method, std::string path) {
    const net::HttpRequest request{.method = std::move(method), .path = std::move(path)};
    return audited(request, beneath, services, audit.log.get()) != beneath;
  };
  EXPECT_TRUE(is_audited("POST", "/models/one/sleep"));
  EXPECT_TRUE(is_audited("POST", "/v1/unload_lora_adapter"));
  EXPECT_FALSE(is_audited("POST", "/models/one/v1/chat/completions"));
  EXPECT_FALSE(is_audited("GET", "/sleep"));
  EXPECT_FALSE(is_audited("POST", "/nowhere"));
}

}  // namespace
}  // namespace pelton::server
