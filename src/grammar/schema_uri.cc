#include "grammar/schema_uri.h"

#include <vector>

namespace pelton::grammar {
namespace {

struct Parts {
  std::string_view scheme;     // with ':'
  std::string_view authority;  // with '//'
  std::string_view path;
  std::string_view query;  // with '?'
};

Parts parts_of(std::string_view uri) {
  Parts parts;
  const size_t stop = uri.find_first_of(":/?#");
  if (stop != std::string_view::npos && stop > 0 && uri[stop] == ':') {
    parts.scheme = uri.substr(0, stop + 1);
    uri.remove_prefix(stop + 1);
  }
  if (uri.starts_with("//")) {
    const size_t end = std::min(uri.find_first_of("/?", 2), uri.size());
    parts.authority = uri.substr(0, end);
    uri.remove_prefix(end);
  }
  const size_t query = std::min(uri.find('?'), uri.size());
  parts.path = uri.substr(0, query);
  parts.query = uri.substr(query);
  return parts;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool rooted = path.starts_with('/');
  bool ends_open = false;
  size_t at = rooted ? 1 : 0;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    ends_open = segment == "." || segment == "..";
    if (segment == "..") {
      if (!kept.empty()) kept.pop_back();
    } else if (segment != ".") {
      kept.push_back(segment);
    }
    at = end + 1;
  }
  std::string result = rooted ? "/" : "";
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) result += '/';
    result += kept[i];
  }
  if (ends_open && !kept.empty()) result += '/';
  return result;
}

}  // namespace

SplitUri split_uri(std::string_view uri) {
  const size_t hash = uri.find('#');
  if (hash == std::string_view::npos) return {.resource = uri, .fragment = {}};
  return {.resource = uri.substr(0, hash), .fragment = uri.substr(hash + 1)};
}

std::string resolved_uri(std::string_view base, std::string_view reference) {
  const SplitUri split = split_uri(reference);
  const std::string fragment =
      split.fragment.empty() ? std::string() : "#" + std::string(split.fragment);
  const Parts from = parts_of(split_uri(base).resource);
  const Parts to = parts_of(split.resource);
  std::string result;
  if (!to.scheme.empty()) return std::string(split.resource) + fragment;
  result += from.scheme;
  if (!to.authority.empty()) {
    result += to.authority;
    result += without_dots(to.path);
    result += to.query;
    return result + fragment;
  }
  result += from.authority;
  if (to.path.empty()) {
    result += from.path;
    result += to.query.empty() ? from.query : to.query;
  } else if (to.path.starts_with('/')) {
    result += without_dots(to.path);
    result += to.query;
  } else {
    const size_t slash = from.path.rfind('/');
    std::string merged;
    if (slash != std::string_view::npos) {
      merged = from.path.substr(0, slash + 1);
    } else if (!from.authority.empty()) {
      merged = "/";
    }
    merged += to.path;
    result += without_dots(merged);
    result += to.query;
  }
  return result + fragment;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex(text[i + 1]);
    const int low = hex(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return result;
}

std::optional<std::string> pointer_step(std::string_view token) {
  std::string result;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '~') {
      result += token[i];
      continue;
    }
    if (i + 1 >= token.size() || (token[i + 1] != '0' && token[i + 1] != '1')) return std::nullopt;
    result += token[++i] == '0' ? '~' : '/';
  }
  return result;
}

std::string pointer_token(std::string_view name) {
  std::string result = "/";
  for (const char c : name) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace pelton::grammar
