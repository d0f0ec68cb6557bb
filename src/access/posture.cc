#include "access/posture.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::access {
namespace {

// "these: a, b"; empty: there is none.
std::string named(std::string_view what, const std::vector<std::string>& all) {
  return all.empty() ? std::string() : fmt::format("{}: {}", what, fmt::join(all, ", "));
}

std::string shown(const Posture::Listener& one) {
  return fmt::format("{} at {}", one.name, one.address);
}

std::string listeners_ask(const Posture& posture) {
  std::vector<std::string> open;
  for (const Posture::Listener& one : posture.listeners) {
    if (!one.is_local && !one.asks) open.push_back(shown(one));
  }
  return named("reached from beyond this machine, and asks for no key and no certificate", open);
}

std::string secrets_private(const Posture& posture) {
  constexpr int kOthers = 0007;
  std::vector<std::string> seen;
  for (const Posture::Secret& one : posture.secrets) {
    if (one.file.empty()) {
      seen.push_back(one.what + " in the command's words");
    } else if (!one.mode) {
      seen.push_back(fmt::format("{} ({}, which is not there)", one.file, one.what));
    } else if ((*one.mode & kOthers) != 0) {
      seen.push_back(fmt::format("{} ({}, mode {:04o})", one.file, one.what, *one.mode));
    }
  }
  return named("anybody on this machine may read or change, or cannot be looked at", seen);
}

std::string clients_have_keys(const Posture& posture) {
  std::vector<std::string> open;
  for (const Posture::Listener& one : posture.listeners) {
    if (one.name.starts_with("clients") && !one.asks) open.push_back(shown(one));
  }
  return named("asks for no key and no certificate", open);
}

std::string operators_have_keys(const Posture& posture) {
  std::vector<std::string> open;
  for (const Posture::Listener& one : posture.listeners) {
    if (one.name == "admin" && !one.asks) open.push_back(shown(one));
  }
  return named("asks operators for no key (--admin-keys)", open);
}

std::string audit_kept(const Posture& posture) {
  return posture.keeps_audit ? "" : "nothing keeps who changed what (--audit-log)";
}

std::string links_encrypted(const Posture& posture) {
  std::vector<std::string> plain;
  for (const Posture::Link& one : posture.links) {
    if (!one.is_encrypted) plain.push_back(one.name);
  }
  return named("asked over a network without TLS", plain);
}

std::string workers_bounded(const Posture& posture) {
  if (!posture.finds_workers || posture.bounds_workers) return "";
  return "workers come that no operator has named, and 'allowed_cidrs' does not say where they may "
         "stand";
}

std::string listeners_encrypted(const Posture& posture) {
  std::vector<std::string> plain;
  for (const Posture::Listener& one : posture.listeners) {
    if (!one.is_local && !one.has_tls) plain.push_back(shown(one));
  }
  return named("reached from beyond this machine without TLS", plain);
}

std::string storage_encrypted(const Posture& posture) {
  std::vector<std::string> plain;
  for (const Posture::Storage& one : posture.storage) {
    if (one.has_text && !one.is_encrypted) {
      plain.push_back(fmt::format("{} ({})", one.place, one.what));
    }
  }
  return named("texts lie there as they are", plain);
}

// Whoever only looks, as a scraper of metrics, has no key that changes something.
std::string roles_apart(const Posture& posture) {
  if (posture.keys.admins == 0) return "no key has role=admin, so nobody answers for changes";
  if (posture.keys.viewers + posture.keys.operators > 0) return "";
  return "every operator's key is role=admin: none has role=view or role=operate";
}

std::string no_core_dumps(const Posture& posture) {
  return posture.leaves_core_dumps ? "a crash leaves the memory in a file (--allow-core-dumps)"
                                   : "";
}

struct Rule {
  std::string_view name;
  PostureProfile from;
  std::string (*why)(const Posture& posture);
};
constexpr std::array<Rule, 11> kRules = {{
    {"listeners_ask", PostureProfile::kLocal, listeners_ask},
    {"secrets_private", PostureProfile::kLocal, secrets_private},
    {"clients_have_keys", PostureProfile::kShared, clients_have_keys},
    {"operators_have_keys", PostureProfile::kShared, operators_have_keys},
    {"audit_kept", PostureProfile::kShared, audit_kept},
    {"links_encrypted", PostureProfile::kShared, links_encrypted},
    {"workers_bounded", PostureProfile::kShared, workers_bounded},
    {"listeners_encrypted", PostureProfile::kRegulated, listeners_encrypted},
    {"storage_encrypted", PostureProfile::kRegulated, storage_encrypted},
    {"roles_apart", PostureProfile::kRegulated, roles_apart},
    {"no_core_dumps", PostureProfile::kRegulated, no_core_dumps},
}};

}  // namespace

std::optional<PostureProfile> posture_profile_named(std::string_view name) {
  const auto found = std::ranges::find(kPostureProfiles, name);
  if (found == std::end(kPostureProfiles)) return std::nullopt;
  return static_cast<PostureProfile>(found - std::begin(kPostureProfiles));
}

std::vector<PostureFinding> check_posture(const Posture& posture, PostureProfile profile) {
  std::vector<PostureFinding> findings;
  for (const Rule& rule : kRules) {
    if (rule.from > profile) continue;
    findings.push_back({.rule = rule.name, .why = rule.why(posture)});
  }
  return findings;
}

}  // namespace pelton::access
