#include "gateway/foreign_pair.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/json_visitor.h"

namespace pelton::gateway {
namespace {

constexpr std::array<std::string_view, 4> kTransferFields = {"kv_transfer_params", "bootstrap_host",
                                                             "bootstrap_port", "bootstrap_room"};

// Whose members the server takes for fields of its own.
constexpr std::array<std::string_view, 4> kPassedOn = {"vllm_xargs", "extra_args", "extra_body",
                                                       "sampling_params"};

// Stops at the first of them; nothing is kept of a large body.
class TransferVisitor final : public base::JsonVisitor {
 public:
  bool begin_object() override { return (depth_ == 0 || value()) && opens(); }
  bool begin_array() override { return value() && opens(); }
  bool end_object() override { return closes(); }
  bool end_array() override { return closes(); }
  bool key(std::string_view name) override {
    const bool is_one = std::ranges::find(kTransferFields, name) != kTransferFields.end();
    if (depth_ > 1) {
      if (is_one && passes_on_) found = name;
      return !(is_one && passes_on_) && value();
    }
    asked_ = is_one ? std::string(name) : "";
    passes_on_ = std::ranges::find(kPassedOn, name) != kPassedOn.end();
    return true;
  }
  bool string(std::string_view /*value*/) override { return value(); }
  bool integer(int64_t /*value*/) override { return value(); }
  bool other(const Json& one) override { return one.is_null() ? depth_ > 0 : value(); }

  std::string found;

 private:
  // Something stands in the field at hand, be it {}; goes on if that is none of them.
  bool value() {
    found = asked_;
    return depth_ > 0 && found.empty();
  }
  bool opens() {
    ++depth_;
    return true;
  }
  bool closes() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::string asked_;       // the top level's key, if it is one of them
  bool passes_on_ = false;  // it is one of kPassedOn
};

Json without(const Json& object, std::string_view key) {
  Json::Object kept;
  for (const Json::Member& member : object.as_object()) {
    if (member.key != key) kept.push_back(member);
  }
  return Json(std::move(kept));
}

Error bad(std::string_view field) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("kv_transfer_params of the worker that computed the prompt: {}", field)};
}

}  // namespace

std::string transfer_field_of(std::string_view body) {
  TransferVisitor visitor;
  (void)base::visit_json(body, visitor).ok();  // it stops where it has found one
  return std::move(visitor.found);
}

bool can_pair(WorkerKind kind, std::string_view path, std::string_view body) {
  if (!answers_in_pairs(kind)) return false;
  const bool is_chat = path == "/v1/chat/completions";
  if (!is_chat && path != "/v1/completions") return false;
  const Result<Json> json = Json::parse(body);
  if (!json.ok() || !json->is_object()) return false;
  for (const std::string_view key : {"n", "best_of"}) {
    if (json->integer(key).value_or(1) != 1) return false;
  }
  for (const std::string_view key : {"max_tokens", "max_completion_tokens"}) {
    if (json->integer(key).value_or(2) < 2) return false;  // KV-16
  }
  if (json->boolean("echo").value_or(false)) return false;
  const Json* const scores = json->find("prompt_logprobs");
  if (scores != nullptr && !scores->is_null()) return false;
  if (is_chat) return json->find("messages") != nullptr;
  // KV-12: several prompts are several answers.
  const Json* const prompt = json->find("prompt");
  if (prompt == nullptr) return false;
  return prompt->is_string() || (prompt->is_array() && !prompt->as_array().empty() &&
                                 std::ranges::all_of(prompt->as_array(), [](const Json& one) {
                                   return one.is_integer();
                                 }));
}

std::string vllm_prefill_body(std::string_view body) {
  const Result<Json> json = Json::parse(body);
  if (!json.ok()) return std::string(body);
  Json asked = without(without(*json, "stream_options"), "min_tokens");
  asked.set("max_tokens", Json(1));
  if (asked.find("max_completion_tokens") != nullptr) asked.set("max_completion_tokens", Json(1));
  asked.set("stream", Json(false));
  Json params{Json::Object{}};
  params.set("do_remote_decode", Json(true));
  params.set("do_remote_prefill", Json(false));
  for (const std::string_view none :
       {"remote_engine_id", "remote_block_ids", "remote_host", "remote_port"}) {
    params.set(std::string(none), Json());
  }
  asked.set("kv_transfer_params", std::move(params));
  return asked.dump();
}

Result<VllmHandOff> read_vllm_hand_off(std::string_view answer) {
  constexpr int64_t kPortMax = 65535;
  TRY_ASSIGN(const Json json, Json::parse(answer));
  const Json* const params = json.find("kv_transfer_params");
  if (params == nullptr || !params->is_object()) return bad("missing");
  if (!params->boolean("do_remote_prefill").value_or(false)) return bad("do_remote_prefill");
  if (params->string("remote_engine_id").value_or("").empty()) return bad("remote_engine_id");
  if (params->string("remote_host").value_or("").empty()) return bad("remote_host");
  const int64_t port = params->integer("remote_port").value_or(0);
  if (port < 1 || port > kPortMax) return bad("remote_port");
  const Json* const blocks = params->find("remote_block_ids");
  if (blocks == nullptr || !blocks->is_array() || blocks->as_array().empty()) {
    return bad("remote_block_ids");
  }
  const Json* const expiry = params->find("remote_blocks_expiry_time");
  const bool is_said = expiry != nullptr && expiry->is_number();
  return VllmHandOff{.params = *params,
                     .expires_s = is_said ? std::optional(expiry->as_number()) : std::nullopt};
}

std::string vllm_decode_body(std::string_view body, const VllmHandOff& hand_off) {
  Result<Json> json = Json::parse(body);
  if (!json.ok()) return std::string(body);
  json->set("kv_transfer_params", hand_off.params);
  return json->dump();
}

std::string sglang_body(std::string_view body, const SglangMeeting& meeting) {
  Result<Json> json = Json::parse(body);
  if (!json.ok()) return std::string(body);
  json->set("bootstrap_host", Json(meeting.host));
  json->set("bootstrap_port", Json(static_cast<int64_t>(meeting.port)));
  json->set("bootstrap_room", Json(meeting.room));
  return json->dump();
}

}  // namespace pelton::gateway
