// One text continued, as other servers ask for it: llama.cpp's /completion, TGI's and SGLang's
// /generate. Their bodies become one of /v1/completions, whose parser then reads it. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

struct TextRequest {
  enum class Form { kLlamaCpp, kTgi, kSglang };
  Form form = Form::kLlamaCpp;
  std::string body;            // of /v1/completions
  bool shows_details = false;  // TGI's "details"
  bool shows_prompt = false;   // TGI's "return_full_text"
  bool shows_tokens = false;   // llama.cpp's "return_tokens"
  std::string parameters;      // the object that its fields came from: "parameters"; empty: none
  std::string prompt;          // what the caller names it: "inputs"; empty: "prompt"
};

// Errors: kInvalidArgument, kUnsupported, with the field's path.
Result<TextRequest> parse_llama_completion(std::string_view body, const RequestLimits& limits);
// TGI's, which has "inputs", or SGLang's, which has "text" or "input_ids".
Result<TextRequest> parse_any_generate(std::string_view body, const RequestLimits& limits);

// The model or adapter that such a body means, as model_asked (json_object.h) says of others':
// TGI's "parameters.adapter_id", SGLang's "lora_path" before its "model". Nothing of it is checked
// but that it is JSON.
Result<std::string> generate_model_asked(std::string_view body);

// What the other parser says of a field, by the name that the caller gave it.
Error named_as_given(const TextRequest& request, Error error);

}  // namespace pelton::api
