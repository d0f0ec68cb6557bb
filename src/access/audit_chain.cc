#include "access/audit_chain.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::access {
namespace {

constexpr std::string_view kMac = ",\"mac\":\"";
constexpr size_t kDigest = 64;  // hexadecimal digits
constexpr std::string_view kLineLabel = "pelton audit line v1\n";
constexpr std::string_view kHeadLabel = "pelton audit head v1\n";

std::string sealed(std::string body, std::string_view key, std::string_view label) {
  const std::string mac = base::hmac_sha256(key, std::string(label) + body);
  body += kMac;
  return body + mac + "\"}";
}

// All before its MAC, if that is right.
std::optional<std::string_view> unsealed(std::string_view text, std::string_view key,
                                         std::string_view label) {
  const size_t tail = kMac.size() + kDigest + 2;
  if (text.size() < tail) return std::nullopt;
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string again = sealed(std::string(body), key, label);
  // In the same time wherever they differ.
  unsigned difference = again.size() == text.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(again.size(), text.size()); ++i) {
    difference |= static_cast<unsigned char>(again[i]) ^ static_cast<unsigned char>(text[i]);
  }
  return difference == 0 ? std::optional(body) : std::nullopt;
}

Result<Json> unsealed_json(std::string_view text, std::string_view key, std::string_view label) {
  const std::optional<std::string_view> body = unsealed(text, key, label);
  if (!body) return Error{ErrorCode::kInvalidArgument, "its MAC is not that of this key", "mac"};
  return Json::parse(std::string(*body) + "}");
}

std::string_view cut(std::string_view text) {
  return text.substr(0, AuditChain::kTextMax);
}

}  // namespace

AuditChain::AuditChain(std::string key, AuditHead head)
    : key_(std::move(key)), head_(std::move(head)) {}

std::string AuditChain::append(const AuditEvent& event) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("n").integer(head_.number + 1).key("at").string(cut(event.at));
  w.key("who").string(cut(event.who)).key("from").string(cut(event.from));
  w.key("what").string(cut(event.what)).key("target").string(cut(event.target));
  w.key("result").string(cut(event.result)).key("detail").begin_array();
  size_t bytes = 0;
  for (const std::string& line : event.detail) {
    bytes += line.size();
    if (bytes > kDetailMax) {
      w.string("…");
      break;
    }
    w.string(cut(line));
  }
  w.end_array().key("prev").string(head_.hash);
  std::string line = sealed(std::move(body), key_, kLineLabel);
  head_.number += 1;
  head_.hash = base::sha256(line);
  return line + "\n";
}

std::string AuditChain::head_text() const {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("n").integer(head_.number).key("hash").string(head_.hash);
  w.key("first").integer(head_.first);
  return sealed(std::move(body), key_, kHeadLabel) + "\n";
}

Result<AuditHead> read_audit_head(std::string_view text, std::string_view key) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  TRY_ASSIGN(const Json json, unsealed_json(text, key, kHeadLabel));
  const std::optional<int64_t> number = json.integer("n");
  std::optional<std::string> hash = json.string("hash");
  const std::optional<int64_t> first = json.integer("first");
  if (!number || !hash || !first) {
    return Error{ErrorCode::kInvalidArgument, "this is no head", "n"};
  }
  return AuditHead{.number = *number, .hash = *std::move(hash), .first = *first};
}

Result<AuditLine> read_audit_line(std::string_view line, std::string_view key) {
  TRY_ASSIGN(const Json json, unsealed_json(line, key, kLineLabel));
  AuditLine found{.number = json.integer("n").value_or(0),
                  .previous = json.string("prev").value_or(""),
                  .hash = base::sha256(line)};
  const auto text = [&](std::string_view name) { return json.string(name).value_or(""); };
  found.event = {.at = text("at"),
                 .who = text("who"),
                 .from = text("from"),
                 .what = text("what"),
                 .target = text("target"),
                 .result = text("result")};
  const Json* detail = json.find("detail");
  if (detail == nullptr || !detail->is_array()) return found;
  for (const Json& one : detail->as_array()) {
    if (one.is_string()) found.event.detail.push_back(one.as_string());
  }
  return found;
}

AuditVerdict verify_audit(std::string_view text, std::string_view key, const AuditProof& proof,
                          std::vector<AuditLine>* seen) {
  AuditVerdict verdict{.end = proof.before};
  const auto fail = [&](int64_t line, std::string what) {
    verdict.fault = {.line = line, .what = std::move(what)};
    return verdict;
  };
  // Its head says where it begins; what stands in that line before it is sealed.
  if (proof.head && proof.before.number == 0 && proof.head->first > 1) {
    const Result<AuditLine> first = read_audit_line(text.substr(0, text.find('\n')), key);
    if (first.ok()) verdict.end = {.number = first->number - 1, .hash = first->previous};
    if (text.empty()) verdict.end = *proof.head;
  }
  if (proof.head && verdict.end.number + 1 != proof.head->first) {
    return fail(text.empty() ? 0 : 1,
                fmt::format("it is not line {}, with which the file begins", proof.head->first));
  }
  // The head names a line that has been seen, the last one or the one before it.
  bool has_head = !proof.head || proof.head->number == verdict.end.number;
  if (has_head && proof.head && !proof.head->is_at(verdict.end)) {
    return fail(0, "the head is not that of the line before");
  }
  while (!text.empty()) {
    const int64_t number = verdict.lines + 1;
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return fail(number, "its end is missing");
    Result<AuditLine> line = read_audit_line(text.substr(0, end), key);
    if (!line.ok()) return fail(number, line.error().message);
    if (line->number != verdict.end.number + 1 || line->previous != verdict.end.hash) {
      return fail(number, fmt::format("it is line {} of a log, and does not follow line {}",
                                      line->number, verdict.end.number));
    }
    verdict.end.number = line->number;
    verdict.end.hash = line->hash;
    verdict.has_noted = verdict.has_noted || line->hash == proof.noted;
    if (proof.head && line->number == proof.head->number) {
      if (line->hash != proof.head->hash) return fail(0, "the head is that of another log");
      has_head = true;
    }
    ++verdict.lines;
    if (seen != nullptr) seen->push_back(*std::move(line));
    text.remove_prefix(end + 1);
  }
  if (!has_head) {
    return fail(0, fmt::format("lines are missing at its end: it has {}, and its head says {}",
                               verdict.end.number, proof.head->number));
  }
  const int64_t ahead = proof.head ? verdict.end.number - proof.head->number : 0;
  if (ahead > 1)
    return fail(
        0, fmt::format("its head says {} of {} lines", proof.head->number, verdict.end.number));
  verdict.is_ahead = ahead == 1;
  if (!proof.noted.empty() && !verdict.has_noted) {
    return fail(0, "no line has the hash that was noted");
  }
  return verdict;
}

}  // namespace pelton::access
