#include "server/openapi.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/routes.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kScript =
    R"({"rules": [{"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"}]})";

Json document() {
  return parsed(openapi_document(endpoints(), "1.2.3"));
}

const Json& at(const Json& object, std::string_view key) {
  static const Json none;
  const Json* found = object.find(key);
  EXPECT_NE(found, nullptr) << key << " is missing in " << object.dump().substr(0, 200);
  return found == nullptr ? none : *found;
}

std::string lower(std::string_view method) {
  std::string text(method);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Every "$ref" below `value`.
void references(const Json& value, std::vector<std::string>& found) {
  if (value.is_array()) {
    for (const Json& item : value.as_array()) references(item, found);
  }
  if (!value.is_object()) return;
  for (const Json::Member& member : value.as_object()) {
    if (member.key == "$ref") found.push_back(member.value.as_string());
    references(member.value, found);
  }
}

// What OpenAPI 3.1 asks of an operation: an answer at least, each with a description; a parameter
// for each name in the path.
void check_operation(const std::string& path, const Json& operation) {
  const Json& responses = at(operation, "responses");
  EXPECT_FALSE(responses.as_object().empty()) << path;
  for (const Json::Member& response : responses.as_object()) {
    EXPECT_EQ(response.key.size(), 3u) << path;
    EXPECT_TRUE(response.value.string("description").has_value()) << path << response.key;
  }
  std::set<std::string> named;
  if (const Json* parameters = operation.find("parameters")) {
    for (const Json& one : parameters->as_array()) {
      EXPECT_EQ(one.string("in"), "path");
      EXPECT_TRUE(at(one, "required").as_bool());
      EXPECT_EQ(at(one, "schema").string("type"), "string");
      named.insert(*one.string("name"));
    }
  }
  std::set<std::string> wanted;
  for (size_t open = path.find('{'); open != std::string::npos; open = path.find('{', open + 1)) {
    wanted.insert(path.substr(open + 1, path.find('}', open) - open - 1));
  }
  EXPECT_EQ(named, wanted) << path;
}

TEST(OpenApi, HasTheStructureOfOpenApi31) {
  const Json json = document();
  EXPECT_EQ(json.string("openapi"), "3.1.0");
  EXPECT_TRUE(at(json, "info").string("title").has_value());
  EXPECT_EQ(at(json, "info").string("version"), "1.2.3");
  std::set<std::string> operations;
  for (const Json::Member& path : at(json, "paths").as_object()) {
    EXPECT_TRUE(path.key.starts_with("/")) << path.key;
    EXPECT_EQ(path.key.find('*'), std::string::npos) << path.key;
    for (const Json::Member& operation : path.value.as_object()) {
      EXPECT_TRUE(operations.insert(*operation.value.string("operationId")).second) << path.key;
      check_operation(path.key, operation.value);
    }
  }
  const Json& components = at(json, "components");
  std::vector<std::string> used;
  references(json, used);
  EXPECT_GT(used.size(), 100u);
  for (const std::string& reference : used) {
    constexpr std::string_view kSchemas = "#/components/schemas/";
    ASSERT_TRUE(reference.starts_with(kSchemas)) << reference;
    EXPECT_NE(at(components, "schemas").find(reference.substr(kSchemas.size())), nullptr)
        << reference;
  }
  for (const Json& requirement : at(json, "security").as_array()) {
    const std::string& scheme = requirement.as_object().front().key;
    EXPECT_NE(at(components, "securitySchemes").find(scheme), nullptr) << scheme;
  }
}

TEST(OpenApi, HasEachEndpointAndNoOther) {
  std::set<std::string> listed;
  const Json json = document();
  for (const Json::Member& path : at(json, "paths").as_object()) {
    for (const Json::Member& operation : path.value.as_object()) {
      listed.insert(operation.key + " " + path.key);
    }
  }
  std::set<std::string> wanted;
  for (const Endpoint& endpoint : endpoints()) {
    for (const std::string_view path : documented_paths(endpoint)) {
      wanted.insert(lower(endpoint.method) + " " + std::string(path));
      // What is documented is what is answered.
      std::string concrete(path);
      for (size_t open = concrete.find('{'); open != std::string::npos; open = concrete.find('{')) {
        concrete.replace(open, concrete.find('}', open) - open + 1, "x");
      }
      EXPECT_EQ(find_endpoint(endpoint.method, concrete).endpoint, &endpoint) << path;
    }
  }
  EXPECT_EQ(listed, wanted);
}

// Of the table of fields: what the parsers take, with their limits.
TEST(OpenApi, SaysWhichFieldsAreRead) {
  const Json json = document();
  const Json& schemas = at(at(json, "components"), "schemas");
  const auto field = [&](std::string_view schema, std::string_view name) -> const Json& {
    return at(at(at(schemas, schema), "properties"), name);
  };
  const Json& temperature = field("ChatRequest", "temperature");
  EXPECT_EQ(at(temperature, "type").dump(), R"(["number","null"])");
  EXPECT_EQ(at(temperature, "minimum").as_number(), 0);
  EXPECT_EQ(at(temperature, "maximum").as_number(), 2);
  EXPECT_EQ(field("ChatRequest", "top_p").find("exclusiveMinimum")->as_number(), 0);
  EXPECT_THAT(at(field("ChatRequest", "messages"), "type").dump(), R"(["array","null"])");
  EXPECT_GT(at(field("CompletionRequest", "model"), "maxLength").as_integer(), 0);
  EXPECT_EQ(at(field("EmbeddingRequest", "dimensions"), "minimum").as_integer(), 1);
  EXPECT_EQ(at(field("ResponseRequest", "background"), "type").dump(), R"(["boolean","null"])");
  for (const char* const schema : {"ChatRequest", "ResponseRequest", "MessagesRequest"}) {
    field(schema, "tool_choice");
  }
  for (const char* const name : {"messages", "prompt", "input", "query", "documents", "text_1",
                                 "temperature", "dimensions", "stream"}) {
    field("InvocationRequest", name);
  }
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.request.empty()) continue;
    EXPECT_FALSE(at(at(schemas, endpoint.request), "properties").as_object().empty())
        << endpoint.request;
  }
}

TEST(OpenApi, SaysWhichStatusesThereAre) {
  const Json json = document();
  const auto statuses = [&](std::string_view path, std::string_view method) {
    std::set<std::string> found;
    for (const Json::Member& status :
         at(at(at(at(json, "paths"), path), method), "responses").as_object()) {
      EXPECT_TRUE(found.insert(status.key).second) << path << status.key;
    }
    return found;
  };
  using testing::UnorderedElementsAre;
  for (const char* const path : {"/v1/chat/completions", "/v1/messages", "/invocations"}) {
    EXPECT_THAT(statuses(path, "post"),
                UnorderedElementsAre("200", "400", "401", "404", "413", "415", "429", "503"))
        << path;
  }
  EXPECT_THAT(statuses("/v1/responses/{response_id}", "get"),
              UnorderedElementsAre("200", "401", "404"));
  EXPECT_THAT(statuses("/v1/models/{model}", "get"), UnorderedElementsAre("200", "401", "404"));
  EXPECT_THAT(statuses("/v1/models", "get"), UnorderedElementsAre("200", "401"));
  EXPECT_THAT(statuses("/v1/responses", "get"), testing::Contains("426"));
}

TEST(OpenApi, WhatIsOpenAsksForNoKey) {
  ServerFixture::Options options;
  EXPECT_TRUE(options.server.keys.add_file("k wheel\n", "keys").ok());
  ServerFixture fixture(kScript, std::move(options));
  net::HttpCall call = fixture.call("GET", "/openapi.json", "");
  call.headers.add("x-api-key", "k");
  const net::HttpResponse answer = fixture.fetch(std::move(call));
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(fixture.get("/openapi.json").status, 401);
  const Json json = parsed(answer.body);
  for (const Json::Member& path : at(json, "paths").as_object()) {
    for (const Json::Member& operation : path.value.as_object()) {
      if (operation.key != "get" || path.key.find('{') != std::string::npos) continue;
      const Json* security = operation.value.find("security");
      const bool open = security != nullptr && security->as_array().empty();
      EXPECT_EQ(fixture.get(path.key).status == 401, !open) << path.key;
    }
  }
}

// Each path of the document is answered by a running server, as something else than an unknown one.
TEST(OpenApi, ARunningServerAnswersEachPath) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse unknown = fixture.get("/no/such/path");
  ASSERT_EQ(unknown.status, 404);
  const Json json = parsed(fixture.get("/openapi.json").body);
  for (const Json::Member& path : at(json, "paths").as_object()) {
    std::string concrete = path.key;
    for (size_t open = concrete.find('{'); open != std::string::npos; open = concrete.find('{')) {
      concrete.replace(open, concrete.find('}', open) - open + 1, "x");
    }
    for (const Json::Member& operation : path.value.as_object()) {
      std::string method = operation.key;
      std::transform(method.begin(), method.end(), method.begin(),
                     [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
      const std::string body = operation.value.find("requestBody") == nullptr ? "" : "{}";
      const net::HttpResponse answer = fixture.fetch(fixture.call(method, concrete, body));
      EXPECT_NE(answer.status, 405) << method << " " << path.key;
      const bool is_socket = at(operation.value, "responses").find("101") != nullptr;
      // 501: a modality that no model here has.
      EXPECT_EQ(answer.status == 426 || (is_socket && answer.status == 501), is_socket)
          << method << " " << path.key;
      EXPECT_TRUE(answer.status < 500 || answer.status == 501)
          << method << " " << path.key << answer.body;
      EXPECT_THAT(answer.body, Not(HasSubstr("unknown_url"))) << method << " " << path.key;
    }
  }
}

}  // namespace
}  // namespace pelton::server
