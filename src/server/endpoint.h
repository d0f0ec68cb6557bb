// One row of the table of endpoints: which method and path, who may call it, what it needs, what is
// said of it in the OpenAPI document, and the function that answers.
#pragma once

#include <string_view>

#include "api/field_table.h"
#include "server/call.h"

namespace pelton::server {

struct Services;

// What a model must be able to do for an endpoint to be answered by it.
enum class Capability { kNone, kGenerate, kChat, kEmbed, kTranscribe, kSpeak };

struct Endpoint {
  // Probes of the platform carry no key; where keys are asked for, what changes the server asks for
  // an operator's.
  enum class Access { kApiKey, kOpen, kAdminKey };

  std::string_view method;
  std::string_view path;  // ending in '*': everything that begins so
  void (*function)(Call call, Services& services);
  std::string_view summary;
  Capability needs = Capability::kNone;
  // The name of the request's schema, and what notes the fields that its parser reads; none: it
  // takes no body.
  std::string_view request = {};
  void (*note_fields)(api::FieldTable& table) = nullptr;
  std::string_view response = "object";  // the name of the answer's schema
  Access access = Access::kApiKey;
  Dialect dialect = Dialect::kOpenAi;  // of its errors
  bool takes_form = false;             // its body is a form with files, no JSON
  // Of a path that ends in '*': what it stands for, "/v1/models/{model}", apart by blanks.
  std::string_view templates = {};
};

}  // namespace pelton::server
